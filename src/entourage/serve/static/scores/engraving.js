// The engraving of the systems of a page; a system is fetched again when it changes.

import { get } from "../api.js";
import { h } from "../dom.js";
import { svg } from "../svg.js";

export class EngravingView {
  constructor(client, root) {
    this.client = client;
    this.root = root;
    this.shownPage = -1;
    this.systems = new Map(); // element, version that is shown and version that was requested, by number of the system
    client.addEventListener("page", () => this.draw());
    client.addEventListener("state", () => this.shownPage >= 0 && this.draw()); // before notes and symbols arrive
    client.addEventListener("select", () => this.mark());
    root.addEventListener("click", (event) => this.onClick(event));
  }

  async draw() {
    const { client } = this;
    if (this.shownPage !== client.page) {
      this.shownPage = client.page;
      this.systems.clear();
      this.root.replaceChildren();
      client.state.systems.forEach(({ page }, number) => {
        if (page !== client.page) return;
        const element = h("div", { class: "system", "data-system": number });
        this.root.append(element);
        this.systems.set(number, { element, version: -1, requested: -1 });
      });
    }
    const isOutdated = ([number, { requested }]) => requested < (client.state.systems[number]?.version ?? -1);
    await Promise.all([...this.systems].filter(isOutdated).map(([number, system]) => this.load(number, system)));
    this.mark();
  }

  async load(number, system) {
    system.requested = this.client.state.systems[number].version;
    const { version, svg: source } = await get(`${this.client.path}/systems/${number}`);
    if (version <= system.version) return; // a newer one has arrived meanwhile
    system.version = version;
    const parsed = new DOMParser().parseFromString(source || "<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml");
    const figure = document.importNode(parsed.documentElement, true);
    figure.setAttribute("role", "img");
    figure.setAttribute("aria-label", `Engraving of system ${number + 1}`);
    system.element.replaceChildren(figure);
    for (const measure of figure.querySelectorAll("g.measure")) addArea(measure);
    this.markProblems();
    this.dispatch(number);
  }

  /** Tell the page that a system is drawn. */
  dispatch(number) {
    this.drawn = { number, version: this.systems.get(number)?.version, time: performance.now() };
    this.client.dispatchEvent(new CustomEvent("engraved", { detail: this.drawn }));
  }

  markProblems() {
    for (const measure of this.root.querySelectorAll("g.measure")) {
      const { state } = this.client.measureAt(Number(measure.dataset.m));
      measure.classList.toggle("marked", state === "marked");
      measure.classList.toggle("unsure", state === "unsure");
    }
  }

  onClick(event) {
    const note = event.target.closest("[data-note]");
    const measure = event.target.closest("[data-m]");
    if (note) this.client.selectTarget(note.dataset.note);
    else if (measure) this.client.selectMeasure(Number(measure.dataset.m));
  }

  mark() {
    const { client } = this;
    this.markProblems();
    for (const other of this.root.querySelectorAll(".lit, .selected")) other.classList.remove("lit", "selected");
    const measure = this.root.querySelector(`[data-m="${client.measure}"]`);
    measure?.classList.add("lit");
    if (client.note) this.root.querySelector(`[data-note="${client.note[0].join("-")}"]`)?.classList.add("selected");
    scrollInto(this.root, measure?.closest(".system"));
  }

  /** Mark the measure that is played. */
  follow(index) {
    const measure = this.root.querySelector(`[data-m="${index}"]`);
    if (measure === this.playing) return;
    this.playing?.classList.remove("playing");
    measure?.classList.add("playing");
    this.playing = measure;
    scrollInto(this.root, measure?.closest(".system"));
  }
}

/** Let the pointer touch the whole area of a measure. */
function addArea(measure) {
  const { x, y, width, height } = measure.getBBox();
  measure.prepend(svg("rect", { class: "hit", x, y, width, height }));
}

/** Scroll a list so that an element is visible, without scrolling the page. */
function scrollInto(root, element) {
  if (!element) return;
  const [outer, inner] = [root.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.top < outer.top) root.scrollTop += inner.top - outer.top;
  else if (inner.bottom > outer.bottom) root.scrollTop += Math.min(inner.bottom - outer.bottom, inner.top - outer.top);
}
