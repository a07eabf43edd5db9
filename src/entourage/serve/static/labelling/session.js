// State of a labelling, and the labels that this page gives.

import { Client } from "../client.js";

export class Session extends Client {
  constructor() {
    super({ n: 0, suggestions: [], phase: "features", message: "Connecting", number: -1 });
    this.pending = new Map(); // labels by index that the server has not acknowledged or not played yet
  }

  update(state) {
    if (state.playedVersion >= state.version) this.pending.clear();
    super.update(state);
  }

  /** Label of an item as the page shows it. */
  labelOf(item) {
    return this.pending.has(item.index) ? this.pending.get(item.index) : item.given ? item.label : "";
  }

  /** Label items; `expected` are the labels that the user saw, so that no label of another page is lost. */
  label(items, label) {
    const expected = Object.fromEntries(items.map((item) => [item.index, this.labelOf(item)]));
    for (const item of items) this.pending.set(item.index, label);
    return this.send("label", { items: items.map((item) => item.index), label, expected });
  }

  /** Label many items, except those that have a label. */
  labelUnlabelled(indices, label) {
    for (const index of indices) this.pending.set(index, label);
    return this.send("label", { items: indices, label, keep: true });
  }

  skip(item) {
    return this.send("label", { items: [item.index], skip: true });
  }

  onRejected(body) {
    for (const index of body?.items ?? []) this.pending.delete(index);
  }

  acknowledge(event) {
    const { state } = this;
    const known = new Map(state.classes.map((one) => [one.name, one]));
    const blank = { given: 0, found: 0, confidence: null };
    state.classes = event.classes.map((name) => known.get(name) ?? { name, ...blank });
    for (const [index, label] of event.changes) this.pending.set(index, label);
    super.acknowledge(event);
    this.dispatchEvent(new Event("state"));
  }
}
