// What all kinds of pages have around their views: status, theme, list of keys, keyboard.

import { byId, h } from "./dom.js";

/** Set up the header. `help`: keys and meanings; `handle(event)` returns whether a key has a meaning. */
export function setUpPage(client, help, handle) {
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("undo")?.addEventListener("click", () => client.undo());
  const terms = help.flatMap(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)]);
  const close = h("form", { method: "dialog" }, h("button", {}, "Close"));
  byId("keys").append(h("h2", { id: "keys-title" }, "Keys"), h("dl", {}, ...terms), close);
  document.addEventListener("keydown", (event) => onKey(event, handle));
  client.addEventListener("report", (event) => showStatus(event.detail.message, event.detail.isError));
}

function onKey(event, handle) {
  if (event.ctrlKey || event.altKey || event.metaKey || byId("keys").open) return;
  if (event.target.matches("input:not([type=checkbox], [type=range]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const isButton = event.target.matches("button, input, summary, a") && !event.target.closest(".grid, .strip");
  if (isButton && (event.key === "Enter" || event.key === " ")) return;
  if (event.key === "?") byId("keys").showModal();
  else if (!handle(event)) return;
  event.preventDefault();
}

export function showStatus(message, isError, ...more) {
  byId("status").replaceChildren(message, ...more);
  byId("status").classList.toggle("error", isError);
}

export function showTitle(title, counts) {
  document.title = title ? `${title} – Entourage` : "Entourage";
  byId("title").textContent = title ?? "Entourage";
  byId("counts").textContent = counts;
}

/** A link that downloads a file of the folder. */
export const download = (name) => h("a", { href: `api/download/${name}`, download: name }, name);

function switchTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).getPropertyValue("--is-dark").trim() === "1";
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}
