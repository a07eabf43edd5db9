// The report of `entourage read`: the same measure is marked on the scan and in the engraving; zoom and tables.

import { svg } from "./svg.js";
import { enhanceTable } from "./tables.js";
import { Zoom } from "./zoom.js";

class ScoreSection {
  constructor(section, status) {
    this.section = section;
    this.status = status;
    this.lit = [];
    this.marks = [...section.querySelectorAll("g.m")];
    this.markOf = new Map(this.marks.map((mark) => [mark.dataset.m, mark]));
    for (const measure of section.querySelectorAll(".engraving g.measure")) this.addArea(measure);
    for (const figure of section.querySelectorAll(".scan > svg, .engraving > svg")) new Zoom(figure);
    this.listen();
  }

  /** Let the pointer touch the whole area of a measure, and mark it if it does not add up. */
  addArea(measure) {
    const { x, y, width, height } = measure.getBBox();
    measure.prepend(svg("rect", { class: "hit", x, y, width, height }));
    if (this.markOf.get(measure.dataset.m)?.classList.contains("marked")) measure.classList.add("marked");
  }

  listen() {
    const measureOf = (event) => event.target.closest?.("[data-m]");
    for (const name of ["pointerover", "focusin"]) {
      this.section.addEventListener(name, (event) => {
        const measure = measureOf(event);
        if (measure) this.light(measure.dataset.m, false);
      });
    }
    this.section.addEventListener("click", (event) => {
      const measure = measureOf(event);
      if (measure) this.go(this.markOf.get(measure.dataset.m));
    });
    this.section.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    const place = this.marks.indexOf(document.activeElement);
    if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const following = [...this.marks.slice(place + 1), ...this.marks.slice(0, place)];
    const target = {
      ArrowRight: this.marks[place + 1],
      ArrowLeft: this.marks[place - 1],
      n: following.find((mark) => mark.classList.contains("marked")),
    };
    if (!(event.key in target)) return;
    event.preventDefault();
    this.go(target[event.key]);
  }

  go(mark) {
    if (!mark) return;
    for (const other of mark.parentNode.querySelectorAll("g.m")) other.tabIndex = other === mark ? 0 : -1;
    mark.focus();
    this.light(mark.dataset.m, true);
  }

  light(number, isScrolled) {
    for (const other of document.querySelectorAll("g.lit")) other.classList.remove("lit");
    const lit = this.section.querySelectorAll(`g[data-m="${number}"]`);
    const label = this.markOf.get(number)?.getAttribute("aria-label");
    this.status.textContent = label ?? `Measure ${Number(number) + 1}`;
    for (const element of lit) {
      element.classList.add("lit");
      if (isScrolled) element.scrollIntoView({ block: "nearest", behavior: "auto" });
    }
  }
}

for (const section of document.querySelectorAll("section[data-score]")) new ScoreSection(section, document.getElementById("status"));
for (const table of document.querySelectorAll("table")) enhanceTable(table);
