// State of the labelling as the server knows it, and the changes that this page makes.

import { get, post, RequestError } from "./api.js";

export const NONE_OF_THESE = "none of these";
const KEYS = "123456789abcdefghijklmnopqrstuvwxyz";

export class Session extends EventTarget {
  constructor() {
    super();
    this.state = { n: 0, classes: [], suggestions: [], version: 0, phase: "features", message: "Connecting", number: -1 };
    this.pending = new Map(); // labels by index that the server has not acknowledged or not played yet
    this.queue = Promise.resolve(); // changes are sent one after the other
    this.latency = []; // milliseconds from key to acknowledgement
  }

  /** Follow the server for as long as the page is open. */
  async follow() {
    let since = "";
    for (;;) {
      try {
        const state = await get("state", { since });
        since = state.stage;
        this.update(state);
      } catch (error) {
        this.report(error.status === 403 ? "Open the address with the token that the command printed." : "The server does not answer.");
        if (error.status === 403) return;
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }

  update(state) {
    this.state = state;
    if (state.playedVersion >= state.version) this.pending.clear();
    this.dispatchEvent(new Event("state"));
  }

  report(message, isError = true) {
    this.dispatchEvent(new CustomEvent("report", { detail: { message, isError } }));
  }

  /** Label of an item as the page shows it. */
  labelOf(item) {
    return this.pending.has(item.index) ? this.pending.get(item.index) : item.given ? item.label : "";
  }

  codeOf(name) {
    return this.state.classes.findIndex((one) => one.name === name);
  }

  /** Class of a key, or undefined. */
  classOfKey(key) {
    if (key === "0") return NONE_OF_THESE;
    const named = this.state.classes.filter((one) => one.name !== NONE_OF_THESE);
    return named[KEYS.indexOf(key.toLowerCase())]?.name;
  }

  /** Key of a class, or "". */
  keyOf(name) {
    if (name === NONE_OF_THESE) return "0";
    const named = this.state.classes.filter((one) => one.name !== NONE_OF_THESE);
    return KEYS[named.findIndex((one) => one.name === name)] || "";
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

  undo() {
    return this.send("undo", null);
  }

  rename(name, to) {
    return this.send("classes", { name, to });
  }

  /** Send a change after the earlier ones; return it, or null if it was rejected. */
  send(path, body) {
    const start = performance.now();
    const request = this.queue.then(async () => {
      try {
        const event = await post(path, body ?? { version: this.state.version });
        this.latency.push(performance.now() - start);
        this.acknowledge(event);
        return event;
      } catch (error) {
        for (const index of body?.items ?? []) this.pending.delete(index);
        const isConflict = error instanceof RequestError && error.status === 409;
        this.report(isConflict ? `${error.message}. Nothing was changed.` : error.message);
        this.dispatchEvent(new Event("state"));
        return null;
      }
    });
    this.queue = request;
    return request;
  }

  /** Show a change before the next state of the server arrives. */
  acknowledge(event) {
    const { state } = this;
    const known = new Map(state.classes.map((one) => [one.name, one]));
    const blank = { given: 0, found: 0, confidence: null };
    state.classes = event.classes.map((name) => known.get(name) ?? { name, ...blank });
    state.version = Math.max(state.version, event.version);
    for (const [index, label] of event.changes) this.pending.set(index, label);
    this.dispatchEvent(new CustomEvent("change", { detail: event }));
    this.dispatchEvent(new Event("state"));
  }
}
