// State of a page as the server knows it, and the changes that the page makes: what all kinds of pages share.

import { get, post, RequestError } from "./api.js";

export const NONE_OF_THESE = "none of these";
const KEYS = "123456789abcdefghijklmnopqrstuvwxyz";

export class Client extends EventTarget {
  constructor(state) {
    super();
    this.state = { classes: [], version: 0, ...state };
    this.queue = Promise.resolve(); // changes are sent one after the other
    this.latency = []; // milliseconds from key to acknowledgement
  }

  /** Address of the state below api/. */
  get statePath() {
    return "state";
  }

  /** Follow the server for as long as the page is open. */
  async follow() {
    let since = "";
    for (;;) {
      try {
        const state = await get(this.statePath, { since });
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
    this.dispatchEvent(new Event("state"));
  }

  report(message, isError = true) {
    this.dispatchEvent(new CustomEvent("report", { detail: { message, isError } }));
  }

  codeOf(name) {
    return this.state.classes.findIndex((one) => one.name === name);
  }

  get namedClasses() {
    return this.state.classes.filter((one) => one.name !== NONE_OF_THESE);
  }

  /** Class of a key, or undefined. */
  classOfKey(key) {
    if (key === "0") return NONE_OF_THESE;
    return this.namedClasses[KEYS.indexOf(key.toLowerCase())]?.name;
  }

  /** Key of a class, or "". */
  keyOf(name) {
    if (name === NONE_OF_THESE) return "0";
    return KEYS[this.namedClasses.findIndex((one) => one.name === name)] || "";
  }

  undo() {
    return this.send("undo", null);
  }

  rename(name, to) {
    return this.send("classes", { name, to });
  }

  /**
   * Send a change after the earlier ones; return it, or null if it was rejected. A body of null is the version; a function
   * returns the body when the change is sent.
   */
  send(path, body) {
    const start = performance.now();
    const request = this.queue.then(async () => {
      try {
        const event = await post(path, typeof body === "function" ? body() : (body ?? { version: this.state.version }));
        this.latency.push(performance.now() - start);
        await this.acknowledge(event);
        return event;
      } catch (error) {
        this.onRejected(body);
        const isConflict = error instanceof RequestError && error.status === 409;
        this.report(isConflict ? `${error.message}. Nothing was changed.` : error.message);
        this.dispatchEvent(new Event("state"));
        return null;
      }
    });
    this.queue = request;
    return request;
  }

  /** Forget a change that was rejected. */
  onRejected() {}

  /** Show a change before the next state of the server arrives; the next change is sent afterwards. */
  acknowledge(event) {
    this.state.version = Math.max(this.state.version, event.version);
    this.dispatchEvent(new CustomEvent("change", { detail: event }));
  }
}
