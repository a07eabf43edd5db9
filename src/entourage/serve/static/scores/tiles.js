// Tiles of a scan in an SVG figure: only those that are visible, in the resolution that the screen shows.

import { svg } from "../svg.js";

const MAX_LEVEL = 6;

export class Tiles {
  /** `address(level, column, row)` is the address of a tile; `side` its pixels. */
  constructor(group, { width, height, side, address }) {
    this.group = group;
    this.width = width;
    this.height = height;
    this.side = side;
    this.address = address;
    this.shown = new Map(); // element by "level/column/row"
    this.coarse = Math.min(MAX_LEVEL, Math.max(0, Math.ceil(Math.log2(Math.max(width, height) / side))));
    this.add(this.coarse, { x: 0, y: 0, width, height }); // stays below the others
  }

  /** Show a part of the page, `scale` page pixels to a pixel of the screen. */
  update(view, scale) {
    const level = Math.min(this.coarse, Math.max(0, Math.floor(Math.log2(Math.max(1, scale) * 1.2))));
    this.add(level, view);
    if (this.shown.size > 200) this.removeAllBut(level);
  }

  add(level, view) {
    const size = this.side * 2 ** level;
    const range = (from, length, end) => [Math.max(0, Math.floor(from / size)), Math.min(Math.ceil(end / size), Math.ceil((from + length) / size))];
    const [left, right] = range(view.x, view.width, this.width);
    const [top, bottom] = range(view.y, view.height, this.height);
    for (let row = top; row < bottom; row++) {
      for (let column = left; column < right; column++) this.addTile(level, column, row, size);
    }
  }

  addTile(level, column, row, size) {
    const key = `${level}/${column}/${row}`;
    if (this.shown.has(key)) return;
    const [x, y] = [column * size, row * size];
    const place = { x, y, width: Math.min(size, this.width - x), height: Math.min(size, this.height - y) };
    const image = svg("image", { ...place, href: this.address(level, column, row), preserveAspectRatio: "none" });
    const finer = [...this.group.children].find((other) => Number(other.dataset.level) < level);
    image.dataset.level = level;
    this.group.insertBefore(image, finer ?? null);
    this.shown.set(key, image);
  }

  removeAllBut(level) {
    for (const [key, image] of this.shown) {
      if (![level, this.coarse].includes(Number(image.dataset.level))) {
        image.remove();
        this.shown.delete(key);
      }
    }
  }
}
