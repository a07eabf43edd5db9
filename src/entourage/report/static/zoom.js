// Zoom and pan of an SVG figure by its viewBox: wheel, drag, pinch, keys and buttons.

import { h } from "./dom.js";

const STEP = 1.25;
const MAX_ZOOM = 40;

export class Zoom {
  /**
   * `always`: the wheel zooms without Ctrl, also if the figure has no focus; otherwise it scrolls the page. `keys`: whether
   * keys zoom and move the figure. `onShow(view)` is called with every part of the figure that is shown.
   */
  constructor(figure, { always = false, keys = true, onShow = () => {} } = {}) {
    this.figure = figure;
    this.always = always;
    this.keys = keys;
    this.onShow = onShow;
    this.pointers = new Map();
    const box = figure.viewBox.baseVal;
    this.whole = { x: box.x, y: box.y, width: box.width, height: box.height };
    this.view = { ...this.whole };
    figure.tabIndex = 0;
    figure.classList.add("zoomable");
    const button = (text, label, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    const buttons = [
      button("+", "Zoom in (+)", () => this.by(STEP)),
      button("−", "Zoom out (-)", () => this.by(1 / STEP)),
      button("1:1", "Show all (0)", () => this.reset()),
    ];
    this.frame = h("div", { class: "zoom-frame" });
    figure.replaceWith(this.frame);
    this.frame.append(figure, h("div", { class: "zoom-tools" }, ...buttons));
    this.listen();
  }

  get factor() {
    return this.whole.width / this.view.width;
  }

  listen() {
    const { figure } = this;
    figure.addEventListener("wheel", (event) => {
      if (!(this.always || event.ctrlKey || document.activeElement === figure)) return;
      event.preventDefault();
      this.by(Math.exp(-event.deltaY * 0.0015), this.at(event));
    }, { passive: false });
    figure.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      this.moved = 0;
    });
    figure.addEventListener("pointermove", (event) => this.onMove(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      figure.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    }
    figure.addEventListener("dblclick", (event) => this.by(event.shiftKey ? 1 / 2 : 2, this.at(event)));
    figure.addEventListener("keydown", (event) => {
      if (this.keys && event.target === figure && !event.ctrlKey && !event.metaKey && !event.altKey && this.onKey(event.key)) event.preventDefault();
    });
  }

  onMove(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last || (this.factor === 1 && this.pointers.size < 2 && !this.always)) return;
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    if (others.length) {
      const distance = (place) => Math.hypot(place[0] - others[0][0], place[1] - others[0][1]);
      const now = [event.clientX, event.clientY];
      this.by(distance(now) / Math.max(1, distance(last)), this.at(event));
    } else {
      const scale = this.scale();
      this.moved += Math.abs(event.clientX - last[0]) + Math.abs(event.clientY - last[1]);
      if (this.moved > 3) this.figure.setPointerCapture(event.pointerId);
      this.show({ ...this.view, x: this.view.x - (event.clientX - last[0]) * scale, y: this.view.y - (event.clientY - last[1]) * scale });
    }
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  /** Handle a key; return whether it has a meaning. */
  onKey(key) {
    const step = 0.15;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (key === "+" || key === "=") this.by(STEP);
    else if (key === "-") this.by(1 / STEP);
    else if (key === "0" || key === "Escape") this.reset();
    else if (key in moves && this.factor > 1) {
      const [x, y] = moves[key];
      this.show({ ...this.view, x: this.view.x + x * this.view.width, y: this.view.y + y * this.view.height });
    } else return false;
    return true;
  }

  /** Units of the figure per pixel of the screen. */
  scale() {
    const { width, height } = this.figure.getBoundingClientRect();
    return Math.max(this.view.width / Math.max(1, width), this.view.height / Math.max(1, height));
  }

  /** Place of the pointer in units of the figure. */
  at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.figure.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  by(factor, [x, y] = [this.view.x + this.view.width / 2, this.view.y + this.view.height / 2]) {
    const zoom = Math.min(MAX_ZOOM, Math.max(1, this.factor * factor));
    const change = this.factor / zoom;
    const { view } = this;
    this.show({ x: x + (view.x - x) * change, y: y + (view.y - y) * change, width: view.width * change, height: view.height * change });
  }

  reset() {
    this.show(this.whole);
  }

  /** Show a part of the figure, moved inside its borders. */
  show({ x, y, width, height }) {
    const { whole } = this;
    const inside = (value, start, size, length) => Math.min(start + size - length, Math.max(start, value));
    this.view = { x: inside(x, whole.x, whole.width, width), y: inside(y, whole.y, whole.height, height), width, height };
    this.figure.setAttribute("viewBox", `${this.view.x} ${this.view.y} ${width} ${height}`);
    this.figure.classList.toggle("zoomed", this.factor > 1.001);
    this.onShow(this.view);
  }
}
