// The view "Items": a grid that is filtered by class, kind and name, the least confident items first.

import { get } from "./api.js";
import { classColor, h, percent, picture, plural } from "./dom.js";

const PAGE = 60;

export class GridView {
  constructor(session, root) {
    this.session = session;
    this.items = [];
    this.left = new Set(); // items that the user took out of "accept all"
    this.focused = 0;
    this.isShown = false;
    this.controls(root);
    this.grid = h("ol", { class: "grid", "aria-label": "Items" });
    this.more = h("button", { onclick: () => this.load(this.items.length) }, "Show more");
    root.append(this.grid, this.more);
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
    return this.items[this.focused] ? [this.items[this.focused]] : [];
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
    this.items = offset ? [...this.items, ...page.items] : page.items;
    this.count = page.total;
    this.draw();
  }

  label(name) {
    const item = this.items[this.focused];
    if (!item) return;
    this.session.label([item], name);
    this.items[this.focused] = { ...item, given: true, label: name };
    this.move(1);
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

  move(step) {
    this.focused = Math.max(0, Math.min(this.items.length - 1, this.focused + step));
    this.draw();
    this.grid.children[this.focused]?.firstChild.focus();
  }

  onKey(event) {
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Enter") this.acceptAll();
    else if (event.key === " " && this.targets.length) this.toggle(this.targets[0].index);
    else return false;
    return true;
  }

  draw() {
    const hadFocus = this.grid.contains(document.activeElement);
    this.focused = Math.max(0, Math.min(this.focused, this.items.length - 1));
    this.total.textContent = plural(this.count ?? 0, "item");
    this.more.hidden = this.items.length >= (this.count ?? 0);
    this.grid.replaceChildren(...this.items.map((item, position) => this.cell(item, position)));
    if (hadFocus) this.grid.children[this.focused]?.firstChild.focus();
  }

  cell(item, position) {
    const { session } = this;
    const own = session.labelOf(item);
    const label = own || item.label || "undecided";
    const isLeft = this.left.has(item.index);
    const note = own ? "labelled" : item.label ? percent(item.confidence) : "";
    const properties = {
      class: "thumbnail",
      tabindex: position === this.focused ? "0" : "-1",
      title: item.name,
      "aria-pressed": String(isLeft),
      "aria-label": `${item.name}: ${label}, ${note}${isLeft ? ", not accepted" : ""}`,
      "--color": classColor(session.codeOf(label)),
      onclick: () => {
        this.focused = position;
        this.toggle(item.index);
      },
    };
    return h("li", {}, h("button", properties, picture(item, 192, session.state.pictures), h("span", {}, note ? `${label} · ${note}` : label)));
  }
}
