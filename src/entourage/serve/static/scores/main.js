// The page of a reading: connects the score, its views, the playback and the keys.

import { get, post } from "../api.js";
import { byId, h, plural } from "../dom.js";
import { download, setUpPage, showStatus, showTitle } from "../page.js";
import { ScoreClient } from "./client.js";
import { EngravingView } from "./engraving.js";
import { ACCIDENTALS, Inspector, VALUES } from "./inspector.js";
import { Player } from "./player.js";
import { ScanView } from "./scan.js";

const HELP = [
  ["Space", "play from the selected measure, or stop"],
  ["← →", "previous and next note"],
  ["↑ ↓", "a step higher or lower; an octave with Shift"],
  ["1–8", "64th to breve: 4 is an eighth, 5 a quarter, 6 a half"],
  [".", "dots"],
  ["u", "triplet"],
  ["# b n x d", "accidental; again: none"],
  ["t", "tie to the next note"],
  ["v", "next voice"],
  ["Delete", "remove the note or rest"],
  ["r", "another reading of the measure"],
  ["Enter", "the measure is right as it is"],
  ["|, j", "the selected note begins a measure; join the measure with the next"],
  ["m", "next measure that does not add up"],
  ["l", "loop the selected measure; Shift+click extends it"],
  ["Backspace, Shift+Backspace", "undo, redo (also Ctrl+Z, Ctrl+Y)"],
  ["Page Up, Page Down", "previous and next page"],
  ["Escape", "select nothing"],
  ["?", "this list"],
];

const { names, classes, isDetected } = await get("scores");
const number = Math.min(names.length - 1, Math.max(0, Number(location.hash.slice(1)) || 0));
const client = new ScoreClient(number, classes);
const player = new Player(client);
const inspector = new Inspector(client, byId("inspector"), {
  addSymbol: (name) => {
    scan.boxes.add(name);
    showStatus("Drag on the scan to draw the box; Escape cancels.", false);
  },
});
const scan = new ScanView(client, byId("scan"), inspector.legend);
const engraving = new EngravingView(client, byId("engraving"));

function togglePlay() {
  if (player.isPlaying) player.stop();
  else player.play(player.loop?.[0] ?? client.measure);
}

function setLoop(isOn) {
  player.loop = isOn ? [client.measure, client.measure] : null;
  byId("loop").checked = isOn;
}

/** Open another score of the folder, or another page of detections. */
function openScore(index) {
  if (!(index in names)) return;
  location.hash = index;
  location.reload();
}

function turn(step) {
  const page = client.page + step;
  if (isDetected) openScore(number + step);
  else if (page >= 0 && page < client.state.pages.length) client.show(page);
}

function deselect() {
  scan.boxes?.cancel();
  client.note = client.symbol = null;
  client.dispatchEvent(new Event("select"));
}

const ACTIONS = {
  " ": togglePlay,
  ArrowLeft: () => client.step(-1),
  ArrowRight: () => client.step(1),
  ArrowUp: (event) => client.note && client.edit("pitch", { steps: event.shiftKey ? 7 : 1 }),
  ArrowDown: (event) => client.note && client.edit("pitch", { steps: event.shiftKey ? -7 : -1 }),
  ".": () => inspector.nextDots(),
  u: () => inspector.toggleTriplet(),
  t: () => client.note && client.edit("tie"),
  v: () => inspector.nextVoice(),
  Delete: () => client.note && client.edit("delete"),
  r: () => client.edit("reading"),
  Enter: () => client.edit("accept"),
  "|": () => client.note && client.edit("split"),
  j: () => client.edit("join"),
  m: () => client.nextMarked(),
  l: () => setLoop(!player.loop),
  Backspace: (event) => (event.shiftKey ? client.redo() : client.undo()),
  PageUp: () => turn(-1),
  PageDown: () => turn(1),
  Escape: deselect,
  ...Object.fromEntries(VALUES.map(([key, value]) => [key, () => inspector.setDuration({ value })])),
  ...Object.fromEntries(ACCIDENTALS.map(([key, name]) => [key, () => inspector.toggleAccidental(name)])),
};

function handle(event) {
  const action = Object.hasOwn(ACTIONS, event.key) ? ACTIONS[event.key] : undefined;
  action?.(event);
  return action !== undefined;
}

function drawHeader() {
  const { state } = client;
  const marked = state.measures.filter((row) => row[6] === "marked").length;
  const hasMusic = state.measures.length > 0;
  const music = `${plural(state.measures.length, "measure")}, ${marked ? `${marked} do not add up` : "all add up"}`;
  showTitle(state.title || state.name, `${plural(state.pages.length, "page")}, ${hasMusic ? music : plural(client.symbols.length, "symbol")}`);
  document.body.classList.toggle("without-music", !hasMusic);
  byId("undo").disabled = !state.canUndo;
  byId("redo").disabled = !state.canRedo;
  byId("marked").disabled = !state.measures.some((row) => row[6] !== "sure");
  if (byId("mutes").childElementCount === 0) byId("mutes").append(...muteSwitches(state.parts));
}

/** A switch for each staff. */
function muteSwitches(parts) {
  return parts.flatMap(({ name, staves }, part) =>
    Array.from({ length: staves }, (_, k) => {
      const label = `${parts.length > 1 ? `${name} ` : ""}${staves > 1 ? `staff ${k + 1}` : ""}`.trim() || "all";
      const box = h("input", { type: "checkbox", onchange: () => player.mute(`${part}/${k + 1}`, box.checked) });
      return h("label", {}, box, ` Mute ${label}`);
    }),
  );
}

function drawPage() {
  const [page, count] = isDetected ? [number, names.length] : [client.page, client.state.pages.length];
  byId("page-number").textContent = `Page ${page + 1} of ${count}`;
  byId("previous").disabled = page === 0;
  byId("next").disabled = page + 1 >= count;
}

async function followCursor({ detail: place }) {
  scan.moveCursor(place);
  engraving.follow(place?.index ?? -1);
  if (place && place.page >= 0 && place.page !== client.page && !followCursor.isTurning) {
    followCursor.isTurning = true;
    await client.show(place.page);
    followCursor.isTurning = false;
  }
}

async function save() {
  showStatus("Writing the results", false);
  try {
    const { folder, files } = await post(`${client.path}/save`, {});
    showStatus(`Saved in ${folder}: `, false, ...files.flatMap((name) => [download(name), " "]));
  } catch (error) {
    showStatus(error.message, true);
  }
}

byId("play").addEventListener("click", togglePlay);
byId("loop").addEventListener("change", (event) => setLoop(event.target.checked));
byId("tempo").addEventListener("input", (event) => {
  byId("tempo-value").textContent = event.target.value;
  player.setTempo(Number(event.target.value));
});
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
byId("marked").addEventListener("click", () => client.nextMarked());
byId("redo").addEventListener("click", () => client.redo());
byId("save").addEventListener("click", save);
byId("score-choice").firstChild.textContent = isDetected ? "Page " : "Score ";
byId("score-choice").hidden = names.length < 2;
byId("score").append(...names.map((name, index) => h("option", { value: index, selected: index === number }, name)));
byId("score").addEventListener("change", (event) => openScore(Number(event.target.value)));
document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || !["z", "y"].includes(event.key.toLowerCase())) return;
  event.preventDefault();
  if (event.key.toLowerCase() === "y" || event.shiftKey) client.redo();
  else client.undo();
});
document.addEventListener(
  "click",
  (event) => {
    const measure = event.shiftKey && player.loop && event.target.closest?.("[data-m]");
    if (!measure) return;
    event.stopPropagation();
    const index = Number(measure.dataset.m);
    player.loop = [Math.min(player.loop[0], index), Math.max(player.loop[0], index)];
    showStatus(`Loop of measures ${client.measureAt(player.loop[0]).number} to ${client.measureAt(player.loop[1]).number}`, false);
  },
  { capture: true },
);
setUpPage(client, HELP, handle);
client.addEventListener("state", drawHeader);
client.addEventListener("page", drawPage);
client.addEventListener("page", () => client.state.measures.length || drawHeader());
client.addEventListener("state", () => player.isPlaying && player.load());
player.addEventListener("cursor", followCursor);
player.addEventListener("change", () => {
  byId("play").textContent = player.isPlaying ? "Stop" : "Play";
  byId("play").setAttribute("aria-pressed", String(player.isPlaying));
});
client.follow();
window.entourage = { client, player, scan, engraving, inspector }; // for tests and for the console
