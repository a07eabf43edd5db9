// Tables that are sorted by a click on a title and filtered by a text.

import { h } from "./dom.js";

const ROWS_FILTERED = 8; // rows from which on there is a filter
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

const numberOf = (text) => Number.parseFloat(text.replace(/[,\s]/g, "").replace(/^[−–]/, "-"));

/** Order of two cells: numbers before texts, empty cells last. */
export function compareCells(first, second) {
  const [a, b] = [numberOf(first), numberOf(second)];
  if (Number.isFinite(a) && Number.isFinite(b) && a !== b) return a - b;
  if (!first !== !second) return first ? -1 : 1;
  if (Number.isFinite(a) !== Number.isFinite(b)) return Number.isFinite(a) ? -1 : 1;
  return collator.compare(first, second);
}

export function enhanceTable(table) {
  const [head, ...rows] = table.rows;
  if (!head || rows.length < 2 || table.dataset.plain !== undefined) return;
  [...head.cells].forEach((title, column) => {
    const button = h("button", { type: "button", class: "sort", title: "Sort by this column" }, ...title.childNodes);
    button.addEventListener("click", () => sortRows(head, rows, column));
    title.replaceChildren(button);
  });
  if (rows.length >= ROWS_FILTERED) addFilter(table, rows);
}

function sortRows(head, rows, column) {
  const title = head.cells[column];
  const direction = title.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const cell of head.cells) cell.removeAttribute("aria-sort");
  title.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  const text = (row) => row.cells[column]?.textContent.trim() ?? "";
  rows.sort((a, b) => direction * compareCells(text(a), text(b)));
  head.parentNode.append(...rows);
}

function addFilter(table, rows) {
  const count = h("span", { "aria-live": "polite" }, `${rows.length} rows`);
  const input = h("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    const shown = rows.filter((row) => !row.hidden).length;
    count.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
  });
  table.before(h("div", { class: "table-tools" }, input, count));
}
