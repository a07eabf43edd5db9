// The page of a labelling: connects the session, the views and the keys.

import { post } from "../api.js";
import { ClassList } from "./classes.js";
import { byId, percent, plural } from "../dom.js";
import { FocusView } from "./focus.js";
import { GridView } from "./grid.js";
import { MapView } from "./map.js";
import { download, setUpPage, showStatus, showTitle } from "../page.js";
import { Session } from "./session.js";

const HELP = [
  ["1–9, a–z", "the class with this key"],
  ["0", "none of these"],
  ["Enter", "accept the label that is shown; in Items, all that are shown"],
  ["/", "type the name of a class, new or not"],
  ["Space", "skip; in Items, take an item out of “accept all”"],
  ["Backspace", "undo"],
  ["arrows", "next and previous item; move the map"],
  ["+ -", "zoom the map; drag with Shift for the lasso"],
  ["Page Up, Page Down", "the other views"],
  ["?", "this list"],
];

const session = new Session();
const views = {
  label: new FocusView(session, byId("view-label")),
  items: new GridView(session, byId("view-items")),
  map: new MapView(session, byId("view-map")),
};
let active = "label";

const classes = new ClassList(session, {
  label: (name) => views[active].label(name),
  open: (name) => {
    show("items");
    views.items.open(name);
  },
});

function show(name) {
  active = name;
  for (const [other, view] of Object.entries(views)) {
    const isActive = other === name;
    byId(`view-${other}`).hidden = !isActive;
    byId(`tab-${other}`).setAttribute("aria-selected", String(isActive));
    byId(`tab-${other}`).tabIndex = isActive ? 0 : -1;
    if (!isActive) view.hide?.();
  }
  views[name].show?.();
}

function turn(step) {
  const names = Object.keys(views);
  show(names[(names.indexOf(active) + step + names.length) % names.length]);
}

function handle(event) {
  const { key } = event;
  if (key === "Backspace") session.undo();
  else if (key === "/") classes.focus();
  else if (key === "PageUp") turn(-1);
  else if (key === "PageDown") turn(1);
  else if (views[active].onKey(event)) return true;
  else if (key.length === 1) {
    const name = session.classOfKey(key);
    if (name) views[active].label(name);
    else if (/^\p{L}$/u.test(key) && active === "label") {
      classes.focus(); // a letter without a class begins the name of one
      return false;
    } else return false;
  } else return false;
  return true;
}

function drawHeader() {
  const { state } = session;
  const skipped = state.skipped ? `, ${state.skipped} skipped` : "";
  const undecided = state.undecided && state.labelled ? `, ${state.undecided.toLocaleString("en")} undecided` : "";
  const unreadable = state.unreadable ? `, ${plural(state.unreadable, "file")} not readable` : "";
  const counts = `${plural(state.labelled ?? 0, "label")} of ${plural(state.n, "item")}${skipped}${undecided}${unreadable}`;
  const sure = state.confidence === null || state.confidence === undefined ? "" : `; mean confidence ${percent(state.confidence)}`;
  showTitle(state.title, state.n ? counts + sure : state.message);
  byId("undo").disabled = !state.canUndo && state.version === 0;
  byId("export").disabled = state.phase !== "ready" || !state.labelled;
  if (state.message) showStatus(state.message, state.phase === "failed");
  else if (byId("status").dataset.phase !== state.phase) showStatus("", false);
  byId("status").dataset.phase = state.phase;
}

async function exportResults() {
  showStatus("Writing the results", false);
  try {
    const { folder, items } = await post("export", {});
    const links = ["labels.csv", "known.csv", "report.html"].flatMap((name) => [download(name), " "]);
    showStatus(`Labels of ${plural(items, "item")} are in ${folder}: `, false, ...links);
  } catch (error) {
    showStatus(error.message, true);
  }
}

for (const name of Object.keys(views)) byId(`tab-${name}`).addEventListener("click", () => show(name));
byId("export").addEventListener("click", exportResults);
setUpPage(session, HELP, handle);
session.addEventListener("state", drawHeader);
show("label");
session.follow();
window.entourage = { session, views }; // for tests and for the console
