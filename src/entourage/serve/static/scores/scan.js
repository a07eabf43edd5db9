// The scan of a page with its measures, notes, symbols and the cursor of the playback.

import { classColor, h } from "../dom.js";
import { Legend } from "../legend.js";
import { svg } from "../svg.js";
import { Zoom } from "../zoom.js";
import { BoxEditor } from "./boxes.js";
import { Tiles } from "./tiles.js";

const rectangle = ([x0, y0, x1, y1], attributes) => svg("rect", { x: x0, y: y0, width: x1 - x0, height: y1 - y0, ...attributes });

export class ScanView {
  /** `legendPlace`: element for the switches of the symbols. */
  constructor(client, root, legendPlace) {
    this.client = client;
    this.root = root;
    this.legendPlace = legendPlace;
    this.shownPage = -1;
    client.addEventListener("page", () => this.draw());
    client.addEventListener("select", () => this.mark());
  }

  draw() {
    if (this.shownPage !== this.client.page) this.open();
    this.drawMeasures();
    this.drawNotes();
    this.drawSymbols();
  }

  /** Show another page. */
  open() {
    const { client } = this;
    const { width, height, hasScan } = client.state.pages[client.page];
    this.shownPage = client.page;
    this.groups = Object.fromEntries(["tiles", "measures", "symbols", "notes", "handles"].map((name) => [name, svg("g", { class: name })]));
    this.cursor = svg("line", { class: "cursor", visibility: "hidden" });
    const label = `Page ${client.page + 1} of the scan`;
    this.figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "scan-page", role: "group", "aria-label": label }, ...Object.values(this.groups), this.cursor);
    this.root.replaceChildren(this.figure);
    const address = (level, column, row) => `api/${client.path}/tiles/${client.page}/${level}/${column}/${row}`;
    this.tiles = hasScan ? new Tiles(this.groups.tiles, { width, height, side: client.state.tile, address }) : null;
    if (!hasScan) this.root.append(h("p", { class: "hint" }, "The scan cannot be shown: confirm its folder with --source."));
    this.zoom = new Zoom(this.figure, { always: true, keys: false, onShow: () => this.onZoom() });
    this.boxes = new BoxEditor(client, this.figure, this.groups.handles, this.zoom);
    this.figure.addEventListener("click", (event) => this.onClick(event));
    this.fitWidth();
  }

  /** Show the whole width of the page, and as much of its height as there is space for. */
  fitWidth() {
    const { width, height } = this.zoom.whole;
    const pane = this.root.getBoundingClientRect();
    this.zoom.show({ x: 0, y: 0, width, height: Math.min(height, (width * pane.height) / Math.max(1, pane.width)) });
  }

  /** Move the visible part of the page so that a box is in it. */
  reveal([x0, y0, x1, y1]) {
    const { view } = this.zoom;
    const isInside = (start, length, from, to) => (from >= start && to <= start + length) || (from <= start && to >= start + length);
    if (isInside(view.x, view.width, x0, x1) && isInside(view.y, view.height, y0, y1)) return;
    this.zoom.show({ ...view, x: (x0 + x1 - view.width) / 2, y: (y0 + y1 - view.height) / 2 });
  }

  /** Pixels of the page to a pixel of the screen. */
  pixelsPerPixel() {
    return this.zoom.scale() / (window.devicePixelRatio || 1);
  }

  onZoom() {
    this.tiles?.update(this.zoom.view, this.pixelsPerPixel());
    this.boxes.show(this.client.symbol);
  }

  onClick(event) {
    if (this.zoom.moved > 3 || this.boxes.isBusy) return;
    const { symbol, note, m } = event.target.dataset ?? {};
    const { client } = this;
    if (symbol !== undefined) client.selectSymbol(client.symbols.find(([index]) => index === Number(symbol)));
    else if (note !== undefined) client.selectTarget(note);
    else if (m !== undefined) client.selectMeasure(Number(m));
  }

  drawMeasures() {
    const { client } = this;
    const rows = client.state.measures.map((_, index) => client.measureAt(index)).filter(({ page, box }) => page === client.page && box);
    const rects = rows.map(({ index, box, number, problem, state, confidence }) => {
      const text = `Measure ${number}, confidence ${Math.round(100 * confidence)} %${problem ? `: ${problem}` : ""}`;
      return rectangle(box, { class: `measure ${state}`, "data-m": index, role: "img", "aria-label": text });
    });
    this.groups.measures.replaceChildren(...rects);
  }

  drawNotes() {
    const rects = this.client.notes.map(([target, box]) => rectangle(box, { class: "note", "data-note": target.join("-") }));
    this.groups.notes.replaceChildren(...rects);
  }

  drawSymbols() {
    const shown = JSON.stringify(this.client.symbols);
    if (shown === this.shownSymbols && this.groups.symbols.childElementCount) return;
    this.shownSymbols = shown;
    const names = [...new Set(this.client.symbols.map(([, name]) => name))].sort();
    const area = ([, , , [x0, y0, x1, y1]]) => (x1 - x0) * (y1 - y0);
    const ordered = [...this.client.symbols].sort((first, second) => area(second) - area(first)); // small ones on top
    const rects = ordered.map(([index, name, score, box]) => {
      const color = classColor(names.indexOf(name));
      const rect = rectangle(box, { "data-symbol": index, "data-class": name, "data-score": score, "data-color": color });
      rect.style.setProperty("--color", color);
      return rect;
    });
    this.groups.symbols.replaceChildren(...rects);
    if (!this.legend) {
      this.legend = new Legend(this.figure, this.legendPlace);
      this.legend.switchAll(this.client.state.measures.length === 0);
    } else this.refreshLegend();
  }

  /** Keep the switches of the classes; those of a new class are off. */
  refreshLegend() {
    const { legend } = this;
    const shown = new Set(legend.names.filter((name) => !legend.hiddenClasses.has(name)));
    legend.root = this.figure;
    legend.hiddenClasses = new Set(this.client.symbols.map(([, name]) => name).filter((name) => !shown.has(name)));
    legend.refresh();
  }

  /** Mark what is selected. */
  mark() {
    if (!this.figure) return;
    const { client } = this;
    for (const other of this.figure.querySelectorAll(".lit, .selected")) other.classList.remove("lit", "selected");
    this.figure.querySelector(`[data-m="${client.measure}"]`)?.classList.add("lit");
    if (client.note) this.figure.querySelector(`[data-note="${client.note[0].join("-")}"]`)?.classList.add("selected");
    if (client.symbol) this.figure.querySelector(`[data-symbol="${client.symbol[0]}"]`)?.classList.add("selected");
    this.boxes?.show(client.symbol);
    const { page, box } = client.measureAt(client.measure);
    if (box && page === this.shownPage && !this.isFollowing) this.reveal(client.note?.[1] ?? box);
  }

  /** Move the cursor to a place {page, x, y0, y1}, or hide it. */
  moveCursor(place) {
    const isShown = place && place.page === this.shownPage;
    this.isFollowing = Boolean(place);
    this.cursor?.setAttribute("visibility", isShown ? "visible" : "hidden");
    if (!isShown) return;
    this.cursor.dataset.quarter = place.quarter;
    for (const [name, value] of Object.entries({ x1: place.x, x2: place.x, y1: place.y0, y2: place.y1 })) this.cursor.setAttribute(name, value);
    this.reveal([place.x, place.y0, place.x, place.y1]);
  }
}
