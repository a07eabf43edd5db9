// The view "Label": one item after the other, the next ones loaded before a key is pressed.

import { classColor, h, percent } from "../dom.js";
import { picture } from "../pictures.js";

const SHOWN_AHEAD = 8;

export class FocusView {
  constructor(session, root) {
    this.session = session;
    this.items = []; // items that were shown or will be
    this.position = 0;
    this.stage = h("figure", { class: "stage" });
    this.strip = h("ol", { class: "strip", "aria-label": "Next items" });
    root.append(this.stage, this.strip);
    session.addEventListener("state", () => this.refresh());
    session.addEventListener("change", (event) => this.follow(event.detail));
  }

  get current() {
    return this.items[this.position];
  }

  /** Items that a class key labels. */
  get targets() {
    return this.current ? [this.current] : [];
  }

  /** Keep the items up to the current one and continue with the newest suggestions. */
  refresh() {
    const kept = this.items.slice(0, this.position + 1);
    const seen = new Set(kept.map((item) => item.index));
    const fresh = this.session.state.suggestions;
    const byIndex = new Map(fresh.map((item) => [item.index, item]));
    const labelled = (item) => this.session.labelOf(item) !== "";
    const updated = kept.map((item) => byIndex.get(item.index) ?? item);
    this.items = [...updated, ...fresh.filter((item) => !seen.has(item.index) && !labelled(item))];
    this.draw();
  }

  /** After an undo, return to the item whose label was taken back. */
  follow(event) {
    if (event.kind !== "undo" || event.changes.length !== 1) return;
    const index = this.items.findIndex((item) => item.index === event.changes[0][0]);
    if (index >= 0) this.position = index;
    this.draw();
  }

  move(step) {
    this.position = Math.max(0, Math.min(this.items.length - 1, this.position + step));
    this.draw();
  }

  label(name) {
    const item = this.current;
    if (!item) return;
    this.session.label([item], name);
    this.items[this.position] = { ...item, given: true, label: name };
    this.move(1);
  }

  onKey(event) {
    const { key } = event;
    if (key === "ArrowRight" || key === "ArrowDown") this.move(1);
    else if (key === "ArrowLeft" || key === "ArrowUp") this.move(-1);
    else if (key === " " && this.current) {
      this.session.skip(this.current);
      this.move(1);
    } else if (key === "Enter" && this.current?.label) this.label(this.current.label);
    else return false;
    return true;
  }

  draw() {
    const { session } = this;
    const item = this.current;
    if (!item) {
      this.stage.replaceChildren(h("p", { class: "empty" }, session.state.message || "There is nothing left to label."));
      this.strip.replaceChildren();
      return;
    }
    const own = session.labelOf(item);
    const label = own || item.label;
    const hint = own ? `labelled ${own}` : label ? `${label}, ${percent(item.confidence)}: Enter accepts` : "no label reaches it yet";
    if (this.stage.dataset.index !== String(item.index)) {
      this.stage.dataset.index = item.index;
      this.stage.replaceChildren(picture(item, 1280, session.state.pictures), h("figcaption", {}));
      this.preload();
    }
    const caption = this.stage.querySelector("figcaption");
    const dot = h("span", { class: "dot", style: { background: classColor(session.codeOf(label)) } });
    caption.replaceChildren(h("span", { class: "name" }, item.name), h("span", { class: "hint", "aria-live": "polite" }, dot, hint));
    const next = this.items.slice(Math.max(0, this.position - 2), this.position + SHOWN_AHEAD);
    this.strip.replaceChildren(...next.map((one) => this.thumbnail(one)));
  }

  thumbnail(item) {
    const label = this.session.labelOf(item);
    const properties = {
      class: "thumbnail",
      "aria-current": item === this.current ? "true" : undefined,
      "--color": classColor(this.session.codeOf(label || item.label)),
      onclick: () => {
        this.position = this.items.indexOf(item);
        this.draw();
      },
    };
    return h("li", {}, h("button", properties, picture(item, 192, this.session.state.pictures), h("span", {}, label || item.label)));
  }

  preload() {
    if (!this.session.state.pictures) return;
    for (const item of this.items.slice(this.position + 1, this.position + 4)) {
      new Image().src = `api/picture/${item.index}?side=1280`;
    }
  }
}
