// Elements, colours and text. Names of items and classes are only ever set as text, never as HTML.

/** Create an element: h("button", {class: "x", onclick: f}, "text", child). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);

/** A number with its noun: plural(2, "item") is "2 items". */
export const plural = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** Colour of a class as [red, green, blue] in 0 to 1; the golden angle keeps neighbouring classes apart. */
export function classRgb(code) {
  const hue = (210 + code * 137.508) % 360;
  const lightness = 0.5 + 0.08 * ((code % 3) - 1);
  const chroma = (1 - Math.abs(2 * lightness - 1)) * 0.68;
  const channel = (shift) => {
    const k = (shift + hue / 30) % 12;
    return lightness - (chroma / 2) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  };
  return [channel(0), channel(8), channel(4)];
}

export function classColor(code) {
  return code < 0 ? "var(--muted)" : `rgb(${classRgb(code).map((value) => Math.round(255 * value)).join(" ")})`;
}
