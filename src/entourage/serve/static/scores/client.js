// State of a score: what the server knows, the page that is shown, and what is selected.

import { get } from "../api.js";
import { Client } from "../client.js";

const sameBox = (first, second) => first.every((side, index) => side === second[index]);

export class ScoreClient extends Client {
  constructor(number, classes) {
    super({ pages: [], systems: [], measures: [], parts: [], version: -1 });
    this.number = number;
    this.classNames = classes;
    this.page = -1;
    this.pageVersion = -1; // version of the notes and symbols
    this.notes = [];
    this.symbols = [];
    this.measure = 0;
    this.note = null; // row of the selected note: target, box, details
    this.symbol = null; // row of the selected symbol: index, class, score, box
  }

  get path() {
    return `scores/${this.number}`;
  }

  get statePath() {
    return this.path;
  }

  /** Place of a measure: an object of the row that the server sends. */
  measureAt(index) {
    const [page, box, number, system, problem, confidence, state] = this.state.measures[index] ?? [];
    return { index, page, box, number, system, problem, confidence, state };
  }

  /** System of a measure, or undefined. */
  systemOf(index) {
    return this.state.systems.findIndex(({ first, last }) => first <= index && index <= last);
  }

  async update(state) {
    if (state.version < this.state.version) return;
    super.update(state);
    if (state.version !== this.pageVersion) await this.show(Math.max(0, this.page));
  }

  async acknowledge(event) {
    super.acknowledge(event);
    await this.update(await get(this.path));
    this.report(event.kind === "none" ? "Nothing changed." : `${event.kind === "edit" ? "" : `${event.kind}: `}${event.description}`, false);
  }

  /** Show a page; the selected note stays selected, if it is still there. */
  async show(page) {
    const { notes, symbols, version } = await get(`${this.path}/pages/${page}`);
    const turned = page !== this.page;
    if (!turned && version < this.pageVersion) return;
    this.page = page;
    this.pageVersion = version;
    this.notes = notes;
    this.symbols = symbols;
    this.note = this.note && (notes.find((row) => row[0][0] === this.note[0][0] && sameBox(row[1], this.note[1])) ?? null);
    if (this.note) this.measure = this.note[0][1]; // another one, if a measure before it was split or joined
    this.measure = Math.min(this.measure, Math.max(0, this.state.measures.length - 1));
    this.symbol = this.symbol && (symbols.find((row) => row[0] === this.symbol[0]) ?? null);
    if (turned && this.measureAt(this.measure).page !== page) this.measure = Math.max(0, this.state.measures.findIndex(([at]) => at === page));
    this.dispatchEvent(new Event("page"));
    this.dispatchEvent(new Event("select"));
  }

  async selectMeasure(index) {
    if (index < 0 || index >= this.state.measures.length) return;
    this.measure = index;
    if (this.note && this.note[0][1] !== index) this.note = null;
    const { page } = this.measureAt(index);
    if (page !== this.page) await this.show(page);
    else this.dispatchEvent(new Event("select"));
  }

  selectNote(row) {
    this.note = row;
    this.measure = row[0][1];
    this.symbol = this.symbols.find(([index]) => index === row[2].symbol) ?? null;
    this.dispatchEvent(new Event("select"));
  }

  /** Select a note by its target, such as "0-12-3-0". */
  selectTarget(text) {
    const row = this.notes.find(([target]) => target.join("-") === text);
    if (row) this.selectNote(row);
  }

  selectSymbol(row) {
    this.symbol = row;
    this.note = this.notes.find(([, , details]) => details.symbol === row?.[0]) ?? null;
    if (this.note) this.measure = this.note[0][1];
    this.dispatchEvent(new Event("select"));
  }

  /** Select the next or previous note of the staff and voice, then of the next measure. */
  async step(direction) {
    const { note } = this;
    const of = (row) => note === null || (row[0][0] === note[0][0] && row[2].staff === note[2].staff && row[2].voice === note[2].voice);
    const rows = this.notes.filter(of);
    const inMeasure = rows.findIndex(([target]) => target[1] === this.measure);
    const next = note ? rows[rows.indexOf(note) + direction] : rows[inMeasure];
    if (next) this.selectNote(next);
    else await this.selectMeasure(this.measure + direction);
  }

  /** Correct what is selected: the note or rest, the measure or the symbol. */
  edit(kind, values = {}) {
    return this.send(`${this.path}/edit`, () => {
      const [part, measure, chord, note] = this.note?.[0] ?? [0, this.measure, -1, -1];
      return { kind, part, measure, chord, note, ...values, version: this.pageVersion };
    });
  }

  /** Correct, add or remove a symbol of the page. */
  editSymbol(kind, values = {}) {
    return this.send(`${this.path}/edit`, () => ({ kind, page: this.page, symbol: this.symbol?.[0] ?? -1, ...values, version: this.pageVersion }));
  }

  undo() {
    return this.send(`${this.path}/undo`, null);
  }

  redo() {
    return this.send(`${this.path}/redo`, null);
  }

  /** Select the next measure that does not add up, or else the next unsure one. */
  nextMarked() {
    const { measures } = this.state;
    const order = measures.map((_, k) => (this.measure + 1 + k) % measures.length);
    const next = order.find((m) => measures[m][6] === "marked") ?? order.find((m) => measures[m][6] === "unsure");
    if (next === undefined) this.report("All measures add up.", false);
    else this.selectMeasure(next);
  }
}
