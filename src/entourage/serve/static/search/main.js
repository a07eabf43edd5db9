// The page of a search: drop a picture or choose an item, accept and refuse what is found, and find again.

import { get, post } from "../api.js";
import { CardGrid } from "../cards.js";
import { Client } from "../client.js";
import { byId, h, plural } from "../dom.js";
import { setUpPage, showStatus, showTitle } from "../page.js";
import { picture } from "../pictures.js";

const SIDE = 512; // pixels that are sent of a picture
const HELP = [
  ["y, Enter", "accept the item in focus"],
  ["n", "refuse it"],
  ["a", "accept all items that are shown"],
  ["f", "find again with what was accepted and refused"],
  ["q", "search with the item in focus"],
  ["arrows", "move the focus"],
  ["Backspace", "undo"],
  ["/", "name of the search"],
  ["?", "this list"],
];

const client = new Client({ n: 0 });
const query = { items: [], uploads: [] }; // items and pictures: {upload, address}
const answers = new Map(); // label that the user gave to a shown item, by index
let shown = [];

const nameOf = () => byId("name").value.trim() || "similar";
const refused = () => `not ${nameOf()}`;

const grid = new CardGrid(byId("results"), "Found items", {
  pictures: () => client.state.pictures,
  choose: (item) => toggle(item),
  describe: (item) => {
    const label = answers.get(item.index) ?? item.label;
    const mark = label === nameOf() ? "✓ " : label === refused() ? "✗ " : "";
    const likeness = item.cosine < 1 ? ` ${item.cosine.toFixed(2)}` : "";
    const state = mark ? (label === nameOf() ? "accepted" : "refused") : "not answered";
    return { text: `${mark}${item.class}${likeness}`, label: `${item.name}: ${state}${likeness}`, code: mark ? (label === nameOf() ? 0 : 2) : -1, pressed: mark !== "" };
  },
});

function show(items) {
  answers.clear();
  shown = items;
  grid.focused = 0;
  grid.show(items);
}

/** Accept or refuse items; an answer that is given again is taken back. */
async function answer(items, label) {
  const expected = Object.fromEntries(items.map((item) => [item.index, answers.get(item.index) ?? item.label]));
  for (const item of items) answers.set(item.index, label);
  grid.draw();
  const event = await client.send("label", { items: items.map((item) => item.index), label, expected });
  if (event) return;
  for (const item of items) answers.set(item.index, expected[item.index]);
  grid.draw();
}

function toggle(item) {
  answer([item], (answers.get(item.index) ?? item.label) === nameOf() ? "" : nameOf());
}

async function find() {
  await client.queue;
  try {
    const { items } = await post("find", { items: query.items.map((item) => item.index), uploads: query.uploads.map(({ upload }) => upload), name: nameOf() });
    show(items);
    showStatus(items.length ? `${plural(items.length, "item")}, nearest first` : "Nothing is left to find.", false);
  } catch (error) {
    showStatus(error.message, true);
  }
}

function drawQuery() {
  const remove = (list, entry) => () => {
    list.splice(list.indexOf(entry), 1);
    drawQuery();
    if (query.items.length + query.uploads.length) find();
  };
  const card = (content, name, action) => h("li", {}, h("button", { class: "thumbnail", title: `${name}: remove from the query`, "aria-label": `Remove ${name} from the query`, onclick: action }, content));
  byId("query").replaceChildren(
    ...query.items.map((item) => card(picture(item, 192, client.state.pictures), item.name, remove(query.items, item))),
    ...query.uploads.map((one) => card(h("img", { src: one.address, alt: one.name }), one.name, remove(query.uploads, one))),
  );
}

function searchItem(item) {
  if (!item) return;
  query.items = [item];
  query.uploads = [];
  drawQuery();
  find();
}

/** Reduce a picture in the browser, and search with it. */
async function searchFile(file) {
  if (!file) return;
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.min(bitmap.width, bitmap.height), (4 * SIDE) / Math.max(bitmap.width, bitmap.height));
    const canvas = h("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    showStatus(`Reading ${file.name}`, false);
    const image = canvas.toDataURL("image/jpeg", 0.92).split(",")[1];
    const { upload } = await post("upload", { image });
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg"));
    query.items = [];
    query.uploads = [{ upload, name: file.name, address: URL.createObjectURL(blob) }];
    drawQuery();
    await find();
  } catch (error) {
    showStatus(error.status ? error.message : `${file.name}: cannot be read as a picture`, true);
  }
}

async function filter() {
  const { items } = await get("items", { q: byId("filter").value });
  show(items);
}

const ACTIONS = {
  y: () => grid.current && answerAndMove(nameOf()),
  Enter: () => grid.current && answerAndMove(nameOf()),
  n: () => grid.current && answerAndMove(refused()),
  a: () => answer(shown.filter((item) => ![nameOf(), refused()].includes(answers.get(item.index) ?? item.label)), nameOf()),
  f: find,
  q: () => searchItem(grid.current),
  "/": () => byId("name").focus(),
  Backspace: () => client.undo(),
};

function answerAndMove(label) {
  answer([grid.current], label);
  grid.move(1);
}

function handle(event) {
  if (event.key.startsWith("Arrow") || event.key === " ") return grid.onKey(event);
  if (!Object.hasOwn(ACTIONS, event.key)) return false;
  ACTIONS[event.key](event);
  return true;
}

function drawHeader() {
  const { state } = client;
  const count = (name) => state.classes.find((one) => one.name === name)?.given ?? 0;
  showTitle(state.title, `${plural(state.n, "item")}; ${nameOf()}: ${count(nameOf())} accepted, ${count(refused())} refused`);
  byId("undo").disabled = !state.canUndo;
  byId("drop").hidden = !state.hasNetwork;
  byId("names").replaceChildren(...state.classes.filter((one) => !one.name.startsWith("not ")).map((one) => h("option", { value: one.name })));
}

/** Follow changes of other pages, and undo. */
function follow(event) {
  for (const [index, label] of event.detail.changes) answers.set(index, label);
  grid.draw();
}

const drop = byId("drop");
drop.addEventListener("dragover", (event) => event.preventDefault());
drop.addEventListener("keydown", (event) => (event.key === "Enter" || event.key === " ") && byId("file").click());
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  searchFile(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => searchFile(event.clipboardData.files[0]));
byId("file").addEventListener("change", (event) => searchFile(event.target.files[0]));
byId("again").addEventListener("click", find);
byId("name").addEventListener("change", () => {
  drawHeader();
  grid.draw();
});
for (const form of ["search-form", "filter-form"]) byId(form).addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", filter);
setUpPage(client, HELP, handle);
client.addEventListener("state", drawHeader);
client.addEventListener("change", follow);
client.follow();
filter();
window.entourage = { client, grid, query, answers }; // for tests and for the console
