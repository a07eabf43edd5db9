// A legend of what is shown: a switch and the count of each class, and a threshold of the scores if there are any.

import { h, plural } from "./dom.js";

const CLASSES_FILTERED = 12; // classes from which on there is a filter by name

export class Legend {
  /**
   * Add a legend to `place` for the marks within `root`: elements with data-class and, optionally, data-score, data-color
   * and data-count, the number of items that they stand for.
   */
  constructor(root, place, { threshold = 0 } = {}) {
    this.root = root;
    this.hiddenClasses = new Set();
    this.threshold = threshold;
    this.filter = h("input", { type: "search", placeholder: "Filter classes", "aria-label": "Filter classes", oninput: () => this.narrow() });
    this.list = h("ul", { class: "legend-classes" });
    this.total = h("p", { class: "legend-total", "aria-live": "polite" });
    const all = h("button", { type: "button", onclick: () => this.switchAll(true) }, "All");
    const none = h("button", { type: "button", onclick: () => this.switchAll(false) }, "None");
    this.slider = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: threshold, oninput: () => this.setThreshold(Number(this.slider.value)) });
    this.value = h("output", {}, threshold.toFixed(2));
    this.scores = h("label", { class: "legend-scores" }, "Score of at least ", this.slider, this.value);
    this.element = h("div", { class: "legend", role: "group", "aria-label": "Classes" }, h("div", { class: "legend-tools" }, all, none, this.filter), this.scores, this.list, this.total);
    place.prepend(this.element);
    this.refresh();
  }

  /** Read the marks again, after others are shown. */
  refresh() {
    this.marks = [...this.root.querySelectorAll("[data-class]")];
    this.hasScores = this.marks.some((mark) => mark.dataset.score !== undefined);
    this.scores.hidden = !this.hasScores;
    const first = new Map(this.marks.map((mark) => [mark.dataset.class, mark]));
    this.names = [...first.keys()];
    this.rows = new Map(this.names.map((name) => [name, this.row(name, first.get(name).dataset.color)]));
    this.list.replaceChildren(...[...this.rows.values()].map((row) => row.element));
    this.filter.hidden = this.names.length < CLASSES_FILTERED;
    this.apply();
    const order = [...this.rows.values()].sort((a, b) => b.total - a.total);
    this.list.append(...order.map((row) => row.element));
  }

  row(name, color) {
    const box = h("input", { type: "checkbox", checked: !this.hiddenClasses.has(name), onchange: () => this.switchClass(name, box.checked) });
    const dot = h("span", { class: "legend-color", "--color": color ?? "transparent" });
    const count = h("span", { class: "legend-count" });
    const only = h("button", { type: "button", "aria-label": `Only ${name}`, onclick: () => this.only(name) }, "only");
    return { box, count, total: 0, element: h("li", {}, h("label", {}, box, dot, h("span", { class: "legend-name" }, name), count), only) };
  }

  switchClass(name, isOn) {
    if (isOn) this.hiddenClasses.delete(name);
    else this.hiddenClasses.add(name);
    this.apply();
  }

  switchAll(isOn) {
    this.hiddenClasses = new Set(isOn ? [] : this.names);
    this.apply();
  }

  only(name) {
    this.hiddenClasses = new Set(this.names.filter((other) => other !== name));
    this.apply();
  }

  setThreshold(value) {
    this.threshold = value;
    this.value.textContent = value.toFixed(2);
    this.apply();
  }

  narrow() {
    const text = this.filter.value.toLowerCase();
    for (const [name, row] of this.rows) row.element.hidden = !name.toLowerCase().includes(text);
  }

  /** Show and hide the marks, and count those that pass the threshold. */
  apply() {
    for (const row of this.rows.values()) row.total = 0;
    let shown = 0;
    for (const mark of this.marks) {
      const passes = !this.hasScores || Number(mark.dataset.score ?? 1) >= this.threshold;
      const isShown = passes && !this.hiddenClasses.has(mark.dataset.class);
      mark.toggleAttribute("hidden", !isShown);
      const count = Number(mark.dataset.count ?? 1);
      if (passes) this.rows.get(mark.dataset.class).total += count;
      if (isShown) shown += count;
    }
    for (const [name, row] of this.rows) {
      row.box.checked = !this.hiddenClasses.has(name);
      row.count.textContent = row.total.toLocaleString("en");
    }
    this.total.textContent = `${plural(shown, "item")} shown, of ${plural(this.names.length, "class", "classes")}`;
  }
}
