// What is selected and how to correct it: the measure, the note or rest, and the symbol.

import { get } from "../api.js";
import { h, percent } from "../dom.js";

export const VALUES = [
  ["8", "breve"], ["7", "whole"], ["6", "half"], ["5", "quarter"], ["4", "eighth"], ["3", "16th"], ["2", "32nd"], ["1", "64th"],
];
export const ACCIDENTALS = [["#", "sharp"], ["b", "flat"], ["n", "natural"], ["x", "double-sharp"], ["d", "flat-flat"]];
const CLEFS = { treble: ["G", 2, 0], "treble 8 below": ["G", 2, -1], bass: ["F", 4, 0], alto: ["C", 3, 0], tenor: ["C", 4, 0] };
const METERS = ["2/4", "3/4", "4/4", "common", "cut", "2/2", "3/2", "3/8", "6/8", "9/8", "12/8", "5/4", "6/4", "7/8"];
const SPECIAL_METERS = { common: [4, 4, "common"], cut: [2, 2, "cut"] };

const keyName = (key) => (key === 0 ? "no sharps or flats" : `${Math.abs(key)} ${key > 0 ? "sharp" : "flat"}${Math.abs(key) > 1 ? "s" : ""}`);
const button = (text, title, action, isPressed) => h("button", { type: "button", title, "aria-pressed": isPressed === undefined ? undefined : String(isPressed), onclick: action }, text);
const choice = (label, options, value, action) => {
  const select = h("select", { "aria-label": label, onchange: () => action(select.value) }, ...options.map(([name, text]) => h("option", { value: name, selected: name === value }, text)));
  return h("label", {}, `${label} `, select);
};

export class Inspector {
  /** `place`: element; `addSymbol(name)` lets the user draw one. */
  constructor(client, place, { addSymbol }) {
    this.client = client;
    this.addSymbol = addSymbol;
    this.measure = h("section", { "aria-label": "Measure" });
    this.note = h("section", { "aria-label": "Note or rest" });
    this.symbol = h("section", { "aria-label": "Symbol" });
    this.legend = h("details", {}, h("summary", {}, "Symbols on the scan"));
    place.append(this.measure, this.note, this.symbol, this.legend);
    client.addEventListener("select", () => this.draw());
    client.addEventListener("page", () => this.draw());
  }

  draw() {
    if (!this.measure.childElementCount && this.client.state.measures.length === 0) this.legend.open = true;
    this.drawMeasure();
    this.drawNote();
    this.drawSymbol();
  }

  async drawMeasure() {
    const { client } = this;
    const { index, number, problem, confidence, state } = client.measureAt(client.measure);
    if (number === undefined) return;
    const reason = problem ? `does not add up: ${problem}` : state === "unsure" ? "is unsure" : "adds up";
    const signs = await get(`${client.path}/measures/${index}`);
    if (index !== client.measure) return; // another one was selected meanwhile
    const part = client.note?.[0][0] ?? 0;
    const { key, meter } = signs[part];
    const keys = [["", "as before"], ...Array.from({ length: 15 }, (_, k) => [String(k - 7), keyName(k - 7)])];
    const shown = meter && meter[2] !== "hidden" ? (["common", "cut"].includes(meter[2]) ? meter[2] : `${meter[0]}/${meter[1]}`) : "";
    const names = shown && !METERS.includes(shown) ? [shown, ...METERS] : METERS;
    this.measure.replaceChildren(
      h("h2", {}, `Measure ${number}`),
      h("p", { class: `reason ${state}`, "aria-live": "polite" }, `${reason}; confidence ${percent(confidence)}`),
      h("div", { class: "controls" }, button("Other reading", "Another reading of the rhythm (r)", () => client.edit("reading")), button("Right as it is", "Mark the measure as right (Enter)", () => client.edit("accept")), button("Join with next", "Remove the bar line at the end of the measure (j)", () => client.edit("join"))),
      choice("Key", keys, key === null ? "" : String(key), (value) => client.edit("key", { key: value === "" ? null : Number(value) })),
      choice("Metre", [["", "as before"], ...names.map((name) => [name, name])], shown, (value) => client.edit("meter", { meter: toMeter(value) })),
      ...this.clefs(signs, part),
    );
  }

  /** A choice of the clef of each staff at the beginning of the measure, or from the selected note on. */
  clefs(signs, part) {
    const { client } = this;
    const staves = client.state.parts[part]?.staves ?? 1;
    const names = [["", "as before"], ...Object.keys(CLEFS).map((name) => [name, name])];
    return Array.from({ length: staves }, (_, k) => {
      const found = signs[part].clefs.find(([staff, time]) => staff === k + 1 && time === 0);
      const name = Object.keys(CLEFS).find((one) => found && CLEFS[one].join() === found.slice(2).join()) ?? "";
      return choice(`Clef${staves > 1 ? `, staff ${k + 1}` : ""}`, names, name, (value) => {
        const [sign, line, octave] = CLEFS[value] ?? [];
        client.edit("clef", { part, chord: -1, staff: k + 1, clef: value ? { sign, line, octave } : null });
      });
    });
  }

  drawNote() {
    const { client } = this;
    if (!client.note) {
      this.note.replaceChildren(h("p", {}, "Click a note, or press → to select one."));
      return;
    }
    const [, , details] = client.note;
    const { pitch, value, dots, voice, tuplet, tied, accidental } = details;
    const isNote = pitch !== "";
    const duration = (name) => this.setDuration({ value: name });
    const rows = [
      h("h2", {}, isNote ? `Note ${pitch}` : "Rest", ` – ${value}${".".repeat(dots)}${tuplet ? `, ${tuplet[0]}:${tuplet[1]}` : ""}, voice ${voice}`),
      h("div", { class: "controls" }, ...VALUES.map(([key, name]) => button(name, `${name} (${key})`, () => duration(name), name === value))),
      h(
        "div",
        { class: "controls" },
        button("Dots", "Next number of dots (.)", () => this.nextDots(), dots > 0),
        button("Triplet", "Triplet (u)", () => this.toggleTriplet(), tuplet !== null),
        button("Voice", "Next voice (v)", () => this.nextVoice()),
        button("New measure", "The note begins another measure (|)", () => client.edit("split")),
        button("Remove", "Remove the note or rest (Delete)", () => client.edit("delete")),
      ),
    ];
    if (isNote) {
      const accidentals = ACCIDENTALS.map(([key, name]) => button(name, `${name} (${key})`, () => this.toggleAccidental(name), accidental === name));
      const pitches = [button("▲", "A step higher (↑)", () => client.edit("pitch", { steps: 1 })), button("▼", "A step lower (↓)", () => client.edit("pitch", { steps: -1 }))];
      rows.push(h("div", { class: "controls" }, ...pitches, button("Tie", "Tie to the next note (t)", () => client.edit("tie"), tied)), h("div", { class: "controls" }, ...accidentals));
    }
    this.note.replaceChildren(...rows);
  }

  setDuration(changes) {
    const { value, dots, tuplet } = this.client.note?.[2] ?? {};
    if (value) this.client.edit("duration", { value, dots, tuplet, ...changes });
  }

  nextDots() {
    this.setDuration({ dots: ((this.client.note?.[2].dots ?? 0) + 1) % 3 });
  }

  toggleTriplet() {
    this.setDuration({ tuplet: this.client.note?.[2].tuplet ? null : [3, 2] });
  }

  nextVoice() {
    if (this.client.note) this.client.edit("voice", { voice: (this.client.note[2].voice % 4) + 1 });
  }

  toggleAccidental(name) {
    if (this.client.note) this.client.edit("accidental", { accidental: this.client.note[2].accidental === name ? "" : name });
  }

  drawSymbol() {
    const { client } = this;
    const input = h("input", { list: "symbol-classes", "aria-label": "Class of the symbol", value: client.symbol?.[1] ?? "noteheadBlackOnLine" });
    const classes = h("datalist", { id: "symbol-classes" }, ...client.classNames.map((name) => h("option", { value: name })));
    const add = button("Draw a new one", "Drag on the scan to draw the box of a missing symbol of this class", () => this.addSymbol(input.value));
    const own = client.symbol
      ? [button("Set class", "Give the symbol this class", () => client.editSymbol("class", { name: input.value })), button("Remove symbol", "Remove the symbol, and its note", () => client.editSymbol("remove"))]
      : [];
    const title = client.symbol ? `Symbol, score ${client.symbol[2].toFixed(2)}` : "Symbol";
    this.symbol.replaceChildren(h("h2", {}, title), input, classes, h("div", { class: "controls" }, ...own, add));
  }
}

function toMeter(value) {
  if (!value) return null;
  return SPECIAL_METERS[value] ?? [...value.split("/").map(Number), ""];
}
