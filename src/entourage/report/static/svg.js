// Elements of SVG.

const NAMESPACE = "http://www.w3.org/2000/svg";

/** Create an SVG element: svg("rect", {x: 1}, child). */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
