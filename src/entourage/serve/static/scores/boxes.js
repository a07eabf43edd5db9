// Boxes of symbols that are changed and drawn with the mouse.

import { svg } from "../svg.js";

const CORNERS = [[0, 1], [2, 1], [0, 3], [2, 3]]; // sides of the box that a corner moves
const SMALLEST = 3; // pixels of the page
const RADIUS = 4; // pixels of the screen

export class BoxEditor {
  constructor(client, figure, group, zoom) {
    this.client = client;
    this.figure = figure;
    this.group = group;
    this.zoom = zoom;
    this.drag = null;
    this.isAdding = false; // the next drag draws the box of a new symbol
    this.isBusy = false;
    // Before those of the zoom, which would move the page.
    figure.addEventListener("pointerdown", (event) => this.onDown(event), { capture: true });
    figure.addEventListener("pointermove", (event) => this.onMove(event), { capture: true });
    figure.addEventListener("pointerup", (event) => this.onUp(event), { capture: true });
  }

  /** Show the corners of a symbol, to be moved. */
  show(symbol) {
    this.group.replaceChildren();
    if (!symbol || symbol[3].length !== 4) return;
    const box = symbol[3];
    const radius = RADIUS * this.zoom.scale();
    if (Math.min(box[2] - box[0], box[3] - box[1]) < 3 * radius) return; // too small to be moved at this zoom
    this.group.append(...CORNERS.map(([x, y], corner) => svg("circle", { cx: box[x], cy: box[y], r: radius, "data-corner": corner })));
  }

  onDown(event) {
    const { corner } = event.target.dataset ?? {};
    if (event.button || (!this.isAdding && corner === undefined)) return;
    event.stopPropagation();
    event.preventDefault();
    this.isBusy = true;
    this.figure.setPointerCapture(event.pointerId);
    const [x, y] = this.zoom.at(event);
    this.drag = this.isAdding ? { box: [x, y, x, y], sides: CORNERS[3] } : { box: [...this.client.symbol[3]], sides: CORNERS[corner] };
    this.outline = svg("rect", { class: "outline" });
    this.group.append(this.outline);
  }

  onMove(event) {
    if (!this.drag) return;
    event.stopPropagation();
    const { width, height } = this.zoom.whole;
    const [x, y] = this.zoom.at(event);
    this.drag.box[this.drag.sides[0]] = Math.min(width, Math.max(0, x));
    this.drag.box[this.drag.sides[1]] = Math.min(height, Math.max(0, y));
    const [x0, y0, x1, y1] = this.sorted();
    for (const [name, value] of Object.entries({ x: x0, y: y0, width: x1 - x0, height: y1 - y0 })) this.outline.setAttribute(name, value);
  }

  async onUp(event) {
    if (!this.drag) return;
    event.stopPropagation();
    const box = this.sorted().map((side) => Math.round(100 * side) / 100);
    this.drag = null;
    this.outline.remove();
    setTimeout(() => (this.isBusy = false)); // after the click that ends the drag
    if (box[2] - box[0] < SMALLEST || box[3] - box[1] < SMALLEST) return;
    if (!this.isAdding) {
      await this.client.editSymbol("box", { box });
      return;
    }
    this.isAdding = false;
    this.figure.classList.remove("adding");
    await this.client.editSymbol("add", { box, name: this.addedClass });
  }

  /** Let the next drag draw a symbol of a class. */
  add(name) {
    this.isAdding = true;
    this.addedClass = name;
    this.figure.classList.add("adding");
  }

  cancel() {
    this.isAdding = false;
    this.figure.classList.remove("adding");
  }

  sorted() {
    const [x0, y0, x1, y1] = this.drag.box;
    return [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
  }
}
