// The view "Items": a grid that is filtered by class, kind and name, the least confident items first.

import { get } from "../api.js";
import { CardGrid } from "../cards.js";
import { h, percent, plural } from "../dom.js";

const PAGE = 60;

export class GridView {
  constructor(session, root) {
    this.session = session;
    this.left = new Set(); // items that the user took out of "accept all"
    this.isShown = false;
    this.controls(root);
    this.grid = new CardGrid(root, "Items", {
      describe: (item) => this.describe(item),
      choose: (item) => this.toggle(item.index),
      pictures: () => session.state.pictures,
    });
    this.more = h("button", { onclick: () => this.load(this.items.length) }, "Show more");
    root.append(this.more);
    session.addEventListener("state", () => this.onState());
  }

  controls(root) {
    const reload = () => this.load();
    this.classes = h("select", { id: "grid-class", onchange: reload });
    const option = ([value, text]) => h("option", { value }, text);
    const kinds = [["all", "all items"], ["found", "found"], ["given", "labelled"], ["undecided", "undecided"], ["skipped", "skipped"]];
    const orders = [["unsure", "least confident first"], ["sure", "most confident first"], ["name", "by name"]];
    this.kind = h("select", { id: "grid-kind", onchange: reload }, ...kinds.map(option));
    this.order = h("select", { id: "grid-order", onchange: reload }, ...orders.map(option));
    this.query = h("input", { id: "grid-query", type: "search", maxlength: 200, oninput: () => this.later() });
    this.accept = h("button", { class: "primary", onclick: () => this.acceptAll() }, "Accept all (Enter)");
    this.total = h("span", { "aria-live": "polite" });
    const field = (text, control) => h("label", {}, text, control);
    const fields = [field("Class ", this.classes), field("Items ", this.kind), field("Order ", this.order), field("Name ", this.query)];
    root.append(h("div", { class: "controls" }, ...fields, this.accept, this.total));
  }

  /** Show a class. */
  open(name) {
    this.fillClasses();
    this.classes.value = name;
    this.kind.value = "found";
    return this.load();
  }

  show() {
    this.isShown = true;
    this.fillClasses();
    this.load();
  }

  hide() {
    this.isShown = false;
  }

  get targets() {
    return this.grid.current ? [this.grid.current] : [];
  }

  get items() {
    return this.grid.items;
  }

  onState() {
    if (!this.isShown) return;
    const { number } = this.session.state;
    this.fillClasses();
    if (number !== this.number) this.load(0, Math.max(PAGE, this.items.length));
  }

  fillClasses() {
    const names = this.session.state.classes.map((one) => one.name);
    const value = this.classes.value;
    this.classes.replaceChildren(h("option", { value: "" }, "all classes"), ...names.map((name) => h("option", { value: name }, name)));
    this.classes.value = names.includes(value) ? value : "";
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 150);
  }

  async load(offset = 0, limit = PAGE) {
    const { session } = this;
    this.number = session.state.number;
    const parameters = { kind: this.kind.value, order: this.order.value, q: this.query.value, offset, limit };
    if (this.classes.value) parameters.class = this.classes.value;
    const request = (this.request = get("items", parameters).catch((error) => session.report(error.message)));
    const page = await request;
    if (request !== this.request || !page) return; // a newer request was sent
    this.count = page.total;
    this.draw(offset ? [...this.items, ...page.items] : page.items);
  }

  label(name) {
    const item = this.grid.current;
    if (!item) return;
    this.session.label([item], name);
    this.items[this.grid.focused] = { ...item, given: true, label: name };
    this.grid.move(1);
  }

  /** Give the items that are shown the labels that the game found, except those that were taken out. */
  async acceptAll() {
    const groups = new Map();
    for (const item of this.items) {
      if (this.session.labelOf(item) || !item.label || item.skipped || this.left.has(item.index)) continue;
      groups.set(item.label, [...(groups.get(item.label) ?? []), item.index]);
    }
    for (const [label, indices] of groups) await this.session.labelUnlabelled(indices, label);
    const accepted = [...groups.values()].reduce((sum, indices) => sum + indices.length, 0);
    this.session.report(`${plural(accepted, "label")} accepted; Backspace takes ${groups.size > 1 ? "one class" : "them"} back.`, false);
    this.left.clear();
  }

  toggle(index) {
    if (!this.left.delete(index)) this.left.add(index);
    this.draw();
  }

  onKey(event) {
    if (event.key === "Enter") this.acceptAll();
    else return this.grid.onKey(event);
    return true;
  }

  draw(items = this.items) {
    this.total.textContent = plural(this.count ?? 0, "item");
    this.more.hidden = items.length >= (this.count ?? 0);
    this.grid.show(items);
  }

  describe(item) {
    const own = this.session.labelOf(item);
    const label = own || item.label || "undecided";
    const pressed = this.left.has(item.index);
    const note = own ? "labelled" : item.label ? percent(item.confidence) : "";
    const spoken = `${item.name}: ${label}, ${note}${pressed ? ", not accepted" : ""}`;
    return { text: note ? `${label} · ${note}` : label, label: spoken, code: this.session.codeOf(label), pressed };
  }
}
