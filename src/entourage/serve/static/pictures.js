// Pictures of items.

import { h } from "./dom.js";

/** The picture of an item, or its name if it has none. */
export function picture(item, side, hasPictures) {
  if (!hasPictures) return h("span", { class: "text-item" }, item.name);
  return h("img", { src: `api/picture/${item.index}?side=${side}`, alt: item.name, loading: "lazy", draggable: "false" });
}
