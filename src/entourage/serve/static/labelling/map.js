// The view "Map": all items in the plane, colour by label, opacity by confidence, with zoom and lasso.

import { get, getArrays } from "../api.js";
import { classRgb, h, percent, plural } from "../dom.js";
import { picture } from "../pictures.js";
import { nearestPoint, PointRenderer, pointsInside } from "./points.js";

const UNDECIDED = 0xffff;
const SAMPLE = 24; // pictures of a selection
const MIN_ZOOM = 50;
const MAX_ZOOM = 200000;
const REACH = 8; // pixels from the pointer to the item that is shown

/** Pixels of a point: larger for fewer items, and while zooming in. */
const pointSize = (n, zoom) => Math.max(2.5, Math.min(14, (70 / n ** 0.3) * Math.sqrt(zoom / 1200)));

export class MapView {
  constructor(session, root) {
    this.session = session;
    this.view = { x: 0, y: 0, zoom: 300 };
    this.selected = [];
    this.isShown = false;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Map of all items. Drag with Shift to select, arrows move, + and - zoom." });
    this.overlay = h("canvas", { class: "overlay", "aria-hidden": "true" });
    this.tip = h("figure", { class: "tip", hidden: true });
    this.frame = h("div", { class: "map" }, this.canvas, this.overlay, this.tip);
    this.panel = h("aside", { class: "selection", "aria-live": "polite" });
    this.controls(root);
    root.append(h("div", { class: "map-columns" }, this.frame, this.panel));
    this.renderer = new PointRenderer(this.canvas);
    this.listen();
    session.addEventListener("state", () => this.onState());
  }

  controls(root) {
    const recolor = () => this.recolor();
    this.lassoMode = h("input", { type: "checkbox", id: "lasso" });
    this.classes = h("select", { onchange: recolor });
    const options = [["all", "all items"], ["found", "found"], ["given", "labelled"], ["unsure", "confidence below 75 %"], ["undecided", "undecided"]];
    this.kind = h("select", { onchange: recolor }, ...options.map(([value, text]) => h("option", { value }, text)));
    const whole = h("button", { onclick: () => this.showAll() }, "Show all");
    this.note = h("span", { "aria-live": "polite" });
    const field = (text, control) => h("label", {}, text, control);
    root.append(h("div", { class: "controls" }, field("Class ", this.classes), field("Items ", this.kind), h("label", {}, this.lassoMode, " lasso (or hold Shift)"), whole, this.note));
  }

  get targets() {
    return this.selected;
  }

  show() {
    this.isShown = true;
    this.resize();
    this.drawPanel();
    this.onState();
  }

  hide() {
    this.isShown = false;
  }

  async onState() {
    if (!this.isShown || this.isLoading) return;
    const { state } = this.session;
    this.isLoading = true;
    try {
      if (state.map && state.map !== this.mapNumber) await this.loadPositions();
      if (this.positions && state.number !== this.number) await this.loadResults();
    } catch (error) {
      this.session.report(error.message);
    }
    this.isLoading = false;
    const newer = this.session.state;
    if (newer.map !== this.mapNumber || newer.number !== this.number) setTimeout(() => this.onState(), 100);
    if (!this.positions) this.note.textContent = state.message || "The map is being computed.";
  }

  async loadPositions() {
    const { header, buffer, offset } = await getArrays("map");
    const count = (buffer.byteLength - offset) / 12;
    const isFirst = !this.positions;
    this.indices = new Uint32Array(buffer, offset, count);
    this.positions = new Float32Array(buffer, offset + 4 * count, 2 * count);
    this.mapNumber = header.number;
    this.renderer.setPositions(this.positions);
    const sampled = count < header.n ? ` (a sample of ${count.toLocaleString("en")})` : "";
    this.note.textContent = plural(header.n, "item") + sampled;
    this.number = undefined; // new points need new colours
    if (isFirst) this.showAll();
  }

  async loadResults() {
    const number = this.session.state.number;
    const { header, buffer, offset } = await getArrays("results");
    const count = this.indices.length;
    this.codes = new Uint16Array(buffer, offset, count);
    this.confidence = new Uint8Array(buffer, offset + 2 * count, count);
    this.kinds = new Uint8Array(buffer, offset + 3 * count, count);
    this.names = header.classes;
    this.number = Math.max(number, header.number);
    const value = this.classes.value;
    this.classes.replaceChildren(h("option", { value: "" }, "all classes"), ...this.names.map((name) => h("option", { value: name }, name)));
    this.classes.value = this.names.includes(value) ? value : "";
    this.recolor();
  }

  /** Colours of all points: of their class, more opaque if confident, hidden if filtered out. */
  recolor() {
    if (!this.codes) return;
    const palette = this.names.map((name, code) => classRgb(code).map((value) => Math.round(255 * value)));
    const wanted = this.classes.value ? this.names.indexOf(this.classes.value) : -1;
    const colors = new Uint8Array(4 * this.codes.length);
    for (let i = 0; i < this.codes.length; i += 1) {
      const code = this.codes[i];
      if (!this.passes(this.kind.value, i) || (wanted >= 0 && code !== wanted)) continue;
      const color = code === UNDECIDED ? [140, 140, 140] : palette[code];
      const opacity = code === UNDECIDED ? 150 : 60 + 0.65 * this.confidence[i];
      colors.set([color[0], color[1], color[2], this.kinds[i] & 1 ? 255 : opacity], 4 * i);
    }
    this.renderer.setColors(colors);
    this.requestDraw();
  }

  passes(kind, i) {
    const isGiven = (this.kinds[i] & 1) === 1;
    const isUndecided = this.codes[i] === UNDECIDED;
    if (kind === "found") return !isGiven && !isUndecided;
    if (kind === "given") return isGiven;
    if (kind === "unsure") return !isGiven && this.confidence[i] < 0.75 * 255;
    return kind === "all" || isUndecided;
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.max(1, Math.round(this.frame.clientWidth * ratio));
      canvas.height = Math.max(1, Math.round(this.frame.clientHeight * ratio));
    }
    this.ratio = ratio;
    this.requestDraw();
  }

  showAll() {
    this.view = { x: 0, y: 0, zoom: 0.48 * Math.min(this.canvas.width, this.canvas.height) };
    this.requestDraw();
  }

  requestDraw() {
    if (this.isRequested || !this.isShown) return;
    this.isRequested = true;
    requestAnimationFrame(() => {
      this.isRequested = false;
      const start = performance.now();
      const size = this.ratio * pointSize(this.positions?.length / 2, this.view.zoom / this.ratio);
      if (this.positions) this.renderer.draw(this.view, size);
      this.drawOverlay();
      this.frameSeconds = (performance.now() - start) / 1000;
    });
  }

  drawOverlay() {
    const context = this.overlay.getContext("2d");
    context.clearRect(0, 0, this.overlay.width, this.overlay.height);
    if (!this.polygon?.length) return;
    context.beginPath();
    for (const [x, y] of this.polygon) context.lineTo(...this.toPixels(x, y));
    context.closePath();
    context.lineWidth = 2 * this.ratio;
    context.strokeStyle = getComputedStyle(this.frame).getPropertyValue("--accent");
    context.stroke();
  }

  toPixels(x, y) {
    return [(x - this.view.x) * this.view.zoom + this.canvas.width / 2, this.canvas.height / 2 - (y - this.view.y) * this.view.zoom];
  }

  /** Position of the pointer on the map. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * this.ratio - this.canvas.width / 2;
    const y = this.canvas.height / 2 - (event.clientY - box.top) * this.ratio;
    return [this.view.x + x / this.view.zoom, this.view.y + y / this.view.zoom];
  }

  zoomBy(factor, [x, y] = [this.view.x, this.view.y]) {
    const zoom = Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, this.view.zoom * factor));
    const change = this.view.zoom / zoom;
    this.view = { x: x + (this.view.x - x) * change, y: y + (this.view.y - y) * change, zoom };
    this.requestDraw();
  }

  listen() {
    const { canvas } = this;
    new ResizeObserver(() => this.isShown && this.resize()).observe(this.frame);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.0015), this.at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = [event.clientX, event.clientY];
      this.polygon = event.shiftKey || this.lassoMode.checked ? [this.at(event)] : null;
    });
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", () => {
      this.drag = null;
      if (this.polygon) this.select();
    });
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  onMove(event) {
    if (this.drag && this.polygon) {
      this.polygon.push(this.at(event));
      this.requestDraw();
    } else if (this.drag) {
      const scale = this.ratio / this.view.zoom;
      this.view.x -= (event.clientX - this.drag[0]) * scale;
      this.view.y += (event.clientY - this.drag[1]) * scale;
      this.drag = [event.clientX, event.clientY];
      this.requestDraw();
    } else {
      clearTimeout(this.hover);
      this.hover = setTimeout(() => this.showTip(event), 40);
    }
  }

  async showTip(event) {
    if (!this.positions || !this.isShown) return;
    const [x, y] = this.at(event);
    const point = nearestPoint(x, y, (REACH * this.ratio) / this.view.zoom, this.positions, this.renderer.colors);
    this.tip.hidden = point < 0;
    if (point < 0 || point === this.tipPoint) return;
    this.tipPoint = point;
    const { items } = await get("items", { ids: this.indices[point] });
    const item = items[0];
    const text = `${item.label || "undecided"} · ${item.given ? "labelled" : percent(item.confidence)}`;
    this.tip.replaceChildren(picture(item, 192, this.session.state.pictures), h("figcaption", {}, item.name, h("br"), text));
    const box = this.frame.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 170)}px`;
    this.tip.style.top = `${Math.min(event.clientY - box.top + 14, box.height - 190)}px`;
  }

  /** Select what is inside the lasso, once it is released. */
  async select() {
    const points = this.polygon.length > 2 ? pointsInside(this.polygon, this.positions, this.renderer.colors) : [];
    this.selected = points.map((point) => this.indices[point]);
    if (!points.length) this.polygon = null;
    this.requestDraw();
    await this.drawPanel();
  }

  clear() {
    this.selected = [];
    this.polygon = null;
    this.requestDraw();
    this.drawPanel();
  }

  async drawPanel() {
    const count = this.selected.length;
    if (!count) {
      this.panel.replaceChildren(h("p", {}, "Select items with the lasso, then press the key of a class."));
      return;
    }
    const step = Math.max(1, Math.floor(count / SAMPLE));
    const sample = this.selected.filter((_, position) => position % step === 0).slice(0, SAMPLE);
    const { items } = await get("items", { ids: sample.join(",") });
    const title = count > items.length ? `${plural(count, "item")}; ${items.length} of them:` : `${plural(count, "item")}:`;
    const cells = items.map((item) => h("li", { title: item.name }, picture(item, 96, this.session.state.pictures)));
    const advice = "The key of a class labels them all, except those that have a label. Escape clears the selection.";
    this.panel.replaceChildren(h("h2", {}, title), h("ol", { class: "sample" }, ...cells), h("p", {}, advice));
  }

  async label(name) {
    if (!this.selected.length) return;
    const count = this.selected.length;
    const event = await this.session.labelUnlabelled(this.selected, name);
    if (event) this.session.report(`${plural(count, "item")} labelled ${name}; Backspace takes it back.`, false);
    this.clear();
  }

  onKey(event) {
    const step = 60 / this.view.zoom;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) {
      this.view.x += moves[event.key][0];
      this.view.y += moves[event.key][1];
      this.requestDraw();
    } else if (event.key === "+" || event.key === "=") this.zoomBy(1.3);
    else if (event.key === "-") this.zoomBy(1 / 1.3);
    else if (event.key === "Escape") this.clear();
    else return false;
    return true;
  }
}
