// The list of classes: keys, counts and confidences that follow every label; new, renamed and merged classes.

import { byId, classColor, h, percent } from "../dom.js";
import { NONE_OF_THESE } from "../client.js";

export class ClassList {
  /** `actions`: label(name) labels what is selected, open(name) shows the items of a class. */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.list = byId("classes");
    this.special = byId("special");
    this.input = byId("class-name");
    byId("class-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    session.addEventListener("state", () => this.draw());
  }

  submit() {
    const name = this.input.value.trim();
    this.input.value = "";
    this.input.blur();
    if (name) this.actions.label(name);
  }

  /** Show the box for the name of a class; a letter that was typed is its first. */
  focus() {
    this.input.focus();
  }

  async rename(name) {
    const to = prompt(`New name of "${name}"; the name of another class merges both.`, name)?.trim();
    if (!to || to === name) return;
    const exists = this.session.codeOf(to) >= 0;
    if (exists && !confirm(`Merge "${name}" into "${to}"? Backspace takes it back.`)) return;
    await this.session.rename(name, to);
  }

  draw() {
    if (this.list.contains(document.activeElement) && document.activeElement.matches(".busy")) return;
    const { classes, n } = this.session.state;
    const named = classes.filter((one) => one.name !== NONE_OF_THESE);
    const most = Math.max(1, ...classes.map((one) => one.given + one.found));
    const focused = document.activeElement?.dataset?.action;
    this.list.replaceChildren(...named.map((one) => this.row(one, most)));
    const none = classes.find((one) => one.name === NONE_OF_THESE) ?? { name: NONE_OF_THESE, given: 0, found: 0, confidence: null };
    this.special.replaceChildren(this.row(none, most));
    if (focused) document.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
    byId("class-names").replaceChildren(...classes.map((one) => h("option", { value: one.name })));
    this.input.disabled = n === 0;
  }

  row(one, most) {
    const key = this.session.keyOf(one.name);
    const color = classColor(this.session.codeOf(one.name));
    const total = one.given + one.found;
    const counts = `${one.given} labelled, ${one.found} found, mean confidence ${percent(one.confidence)}`;
    const bar = h("span", { class: "bar", "--share": `${(100 * total) / most}%`, "--color": color });
    const label = { class: "class", "data-action": `label ${one.name}`, title: counts, "aria-label": `Label as ${one.name}: ${counts}`, onclick: () => this.actions.label(one.name) };
    const number = h("span", { class: "numbers" }, total ? `${one.given} + ${one.found.toLocaleString("en")}` : "");
    const sure = h("span", { class: "numbers" }, one.found ? percent(one.confidence) : "");
    const main = h("button", label, h("kbd", {}, key), h("span", { class: "name" }, one.name), number, sure, bar);
    const open = h("button", { class: "small", "data-action": `open ${one.name}`, "aria-label": `Show the items of ${one.name}`, title: "Show its items", onclick: () => this.actions.open(one.name) }, "▦");
    const rename = h("button", { class: "small", "data-action": `rename ${one.name}`, "aria-label": `Rename or merge ${one.name}`, title: "Rename or merge", onclick: () => this.rename(one.name) }, "✎");
    return h("li", {}, main, open, rename);
  }
}
