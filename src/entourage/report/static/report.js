// What a report can do without a server: legends, zoom, tables that are sorted and filtered, larger pictures.

import { h } from "./dom.js";
import { Legend } from "./legend.js";
import { enhanceTable } from "./tables.js";
import { Zoom } from "./zoom.js";

/** Make the elements of a report interactive; without scripts, they are complete pictures and tables. */
export function enhanceReport(root = document) {
  for (const area of root.querySelectorAll("[data-legend]")) new Legend(area, area);
  for (const figure of root.querySelectorAll("svg.zoom")) new Zoom(figure);
  for (const table of root.querySelectorAll("table")) enhanceTable(table);
  for (const image of root.querySelectorAll("figure > img")) enlargeOnClick(image);
}

function enlargeOnClick(image) {
  const figure = image.parentNode;
  const button = h("button", { type: "button", class: "enlarge", "aria-pressed": "false", "aria-label": `Enlarge ${figure.title}` });
  image.replaceWith(button);
  button.append(image);
  button.addEventListener("click", () => {
    const isLarge = figure.classList.toggle("large");
    button.setAttribute("aria-pressed", String(isLarge));
  });
}

if (document.querySelector("body.report")) enhanceReport();
