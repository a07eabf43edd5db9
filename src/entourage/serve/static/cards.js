// A grid of items with one of them in focus, for the keyboard and for screen readers.

import { classColor, h } from "./dom.js";
import { picture } from "./pictures.js";

export class CardGrid {
  /** `describe(item)` returns {text, label, color, pressed}; `choose(item)` is called by a click and by `Space`. */
  constructor(root, label, { describe, choose, pictures }) {
    this.items = [];
    this.focused = 0;
    this.describe = describe;
    this.choose = choose;
    this.hasPictures = pictures;
    this.element = h("ol", { class: "grid", "aria-label": label });
    root.append(this.element);
  }

  get current() {
    return this.items[this.focused];
  }

  show(items) {
    this.items = items;
    this.draw();
  }

  move(step) {
    this.focused = Math.max(0, Math.min(this.items.length - 1, this.focused + step));
    this.draw();
    this.element.children[this.focused]?.firstChild.focus();
  }

  /** Handle arrows and `Space`; return whether the key has a meaning. */
  onKey(event) {
    const columns = getComputedStyle(this.element).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === " " && this.current) this.choose(this.current);
    else return false;
    return true;
  }

  draw() {
    const hadFocus = this.element.contains(document.activeElement);
    this.focused = Math.max(0, Math.min(this.focused, this.items.length - 1));
    this.element.replaceChildren(...this.items.map((item, position) => this.card(item, position)));
    if (hadFocus) this.element.children[this.focused]?.firstChild.focus();
  }

  card(item, position) {
    const { text, label, code, pressed } = this.describe(item);
    const properties = {
      class: "thumbnail",
      tabindex: position === this.focused ? "0" : "-1",
      title: item.name,
      "aria-pressed": pressed === undefined ? undefined : String(pressed),
      "aria-label": label,
      "--color": classColor(code ?? -1),
      onclick: () => {
        this.focused = position;
        this.choose(item);
      },
    };
    return h("li", {}, h("button", properties, picture(item, 192, this.hasPictures()), h("span", {}, text)));
  }
}
