// The page of a clustering: name, merge and split groups, and move items between them.

import { get } from "../api.js";
import { CardGrid } from "../cards.js";
import { Client } from "../client.js";
import { byId, classColor, h, percent, plural } from "../dom.js";
import { setUpPage, showStatus, showTitle } from "../page.js";

const PAGE = 120;
const HELP = [
  ["1–9, a–z", "move the selected items, or the one in focus, to the group with this key"],
  ["Space", "select an item"],
  ["/", "type the name of a group for the selected items, new or not"],
  ["+", "split the open group"],
  ["Enter", "name the open group; the name of another group merges both"],
  ["arrows", "move the focus"],
  ["Page Up, Page Down", "previous and next group"],
  ["Backspace", "undo"],
  ["?", "this list"],
];

const client = new Client({ n: 0 });
const selected = new Set();
let open = null; // name of the open group
let total = 0;

const grid = new CardGrid(byId("results"), "Items of the group", {
  pictures: () => client.state.pictures,
  choose: (item) => {
    if (!selected.delete(item.index)) selected.add(item.index);
    grid.draw();
  },
  describe: (item) => ({
    text: `${item.label === open ? "" : `${item.label} `}${percent(item.confidence)}`,
    label: `${item.name}: ${item.label}, probability ${percent(item.confidence)}`,
    code: client.codeOf(item.label),
    pressed: selected.has(item.index),
  }),
});
const heading = h("h2", { "aria-live": "polite" });
const more = h("button", { type: "button", onclick: () => load(grid.items.length) }, "More");
byId("results").prepend(heading);
byId("results").append(more);

async function load(offset = 0) {
  if (open === null) return;
  const group = open;
  const page = await get("items", { class: group, offset, limit: PAGE });
  if (group !== open) return; // another group was opened meanwhile
  total = page.total;
  grid.show(offset ? [...grid.items, ...page.items] : page.items);
  more.hidden = grid.items.length >= total;
  heading.textContent = `${open}: ${plural(total, "item")}, the least probable first`;
}

function openGroup(name) {
  open = name;
  selected.clear();
  grid.focused = 0;
  drawGroups();
  return load();
}

/** Move the selected items, or the one in focus, to a group. */
async function move(name) {
  const items = grid.items.filter((item) => selected.has(item.index));
  const moved = items.length ? items : grid.current ? [grid.current] : [];
  if (!moved.length) return;
  const expected = Object.fromEntries(moved.map((item) => [item.index, item.label]));
  selected.clear();
  await client.send("label", { items: moved.map((item) => item.index), label: name, expected });
  await load();
}

async function rename(name) {
  const to = prompt(`New name of "${name}"; the name of another group merges both.`, name)?.trim();
  if (!to || to === name) return;
  if (client.codeOf(to) >= 0 && !confirm(`Merge "${name}" into "${to}"? Backspace takes it back.`)) return;
  if ((await client.rename(name, to)) && open === name) await openGroup(to);
}

async function split(name) {
  const parts = Number(prompt(`Number of parts of "${name}"`, "2"));
  if (!Number.isInteger(parts) || parts < 2) return;
  showStatus("Comparing the items", false);
  const event = await client.send("split", { name, parts });
  if (!event) return;
  showStatus(`${name} was split; Backspace takes it back.`, false);
  await openGroup(client.state.classes.map((one) => one.name).find((one) => one.startsWith(name) && one !== name) ?? name);
}

function drawGroups() {
  const { classes } = client.state;
  const most = Math.max(1, ...classes.map((one) => one.given));
  const focused = document.activeElement?.dataset?.action;
  byId("classes").replaceChildren(...classes.filter((one) => one.given || one.name === open).map((one) => row(one, most)));
  byId("class-names").replaceChildren(...classes.map((one) => h("option", { value: one.name })));
  if (focused) document.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
}

function row(one, most) {
  const counts = `${plural(one.given, "item")}, mean probability ${percent(one.confidence)}`;
  const bar = h("span", { class: "bar", "--share": `${(100 * one.given) / most}%`, "--color": classColor(client.codeOf(one.name)) });
  const properties = { class: "class", "data-action": `open ${one.name}`, title: counts, "aria-label": `Open ${one.name}: ${counts}`, "aria-current": one.name === open ? "true" : undefined, onclick: () => openGroup(one.name) };
  const main = h("button", properties, h("kbd", {}, client.keyOf(one.name)), h("span", { class: "name" }, one.name), h("span", { class: "numbers" }, one.given.toLocaleString("en")), h("span", { class: "numbers" }, percent(one.confidence)), bar);
  const small = (action, text, title, run) => h("button", { class: "small", "data-action": `${action} ${one.name}`, title, "aria-label": `${title} ${one.name}`, onclick: () => run(one.name) }, text);
  return h("li", {}, main, small("rename", "✎", "Name or merge", rename), client.state.canSplit ? small("split", "✂", "Split", split) : null);
}

function turn(step) {
  const names = client.state.classes.filter((one) => one.given).map((one) => one.name);
  const next = names[names.indexOf(open) + step];
  if (next !== undefined) openGroup(next);
}

function handle(event) {
  const { key } = event;
  const actions = { Backspace: () => client.undo(), "/": () => byId("class-name").focus(), "+": () => open && client.state.canSplit && split(open), Enter: () => open && rename(open), PageUp: () => turn(-1), PageDown: () => turn(1) };
  if (Object.hasOwn(actions, key)) actions[key]();
  else if (key.startsWith("Arrow") || key === " ") return grid.onKey(event);
  else if (key.length === 1 && key !== "0" && client.classOfKey(key)) move(client.classOfKey(key));
  else return false;
  return true;
}

function drawHeader() {
  const { state } = client;
  showTitle(state.title, `${plural(state.n, "item")} in ${plural(state.classes.filter((one) => one.given).length, "group")}`);
  byId("undo").disabled = !state.canUndo;
  drawGroups();
}

/** Follow the changes of this page and of others. */
async function follow() {
  const isNew = follow.version !== client.state.version;
  follow.version = client.state.version;
  drawHeader();
  const first = client.state.classes.find((one) => one.given)?.name;
  if (open === null || !client.state.classes.some((one) => one.name === open && one.given)) {
    if (first !== undefined) await openGroup(first);
  } else if (isNew) await load();
}

byId("class-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = byId("class-name").value.trim();
  byId("class-name").value = "";
  byId("class-name").blur();
  if (name) move(name);
});
setUpPage(client, HELP, handle);
client.addEventListener("state", follow);
client.follow();
window.entourage = { client, grid, selected, isOpen: (name) => open === name, total: () => total }; // for tests and for the console
