// A virtual grid: only the rows in and near the window exist, and their nodes are used again.
//
// To assistive technology it is an ARIA grid of known size, whose headings are row headers. One
// tile takes part in the tab order; the arrow keys move among all, and scroll.

import { itemByKey } from "./keys.js";
import { layoutRows, rowAt, rowOf } from "./layout.js";
import { Pictures } from "./pictures.js";
import { Tile } from "./tile.js";

const OVERSCAN = 500; // pixels above and below the window
const OVERSCAN_FAST = 120;
const FAST = 10; // pixels per millisecond: tiles stay empty until scrolling slows down
const SLOW = 5;
const SETTLED_MS = 70;
const TILES_PER_FRAME = 20; // that are created or used again while the page is scrolled
const STILL_MS = 500; // without scrolling, before pictures are loaded in a higher resolution

export class Grid {
  /**
   * `onOpen(index)` is called for a tile, `onLayout(sections, starts)` when rows were laid out, and
   * `onScroll(section, share)` with the section in view and how far the grid is scrolled.
   */
  constructor(root, { onOpen, onLayout, onScroll }) {
    this.root = root;
    Object.assign(this, { onLayout, onScroll });
    this.source = null;
    this.rows = null;
    this.shown = new Map(); // row -> its elements
    this.unused = { lines: [], headings: [], tiles: [] };
    this.pictures = new Pictures();
    this.current = 0; // the item in the tab order
    this.offset = 0; // of the grid from the top of the document
    this.covered = 0; // by the header, from the top of the window
    this.last = { y: scrollY, time: performance.now() };
    root.addEventListener("click", (event) => {
      const link = event.target.closest(".tile");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab
      event.preventDefault();
      onOpen(Number(link.dataset.index));
    });
    root.addEventListener("keydown", (event) => this.#move(event));
    root.addEventListener("focusin", (event) => {
      const link = event.target.closest(".tile");
      if (link) this.#setCurrent(Number(link.dataset.index));
    });
    // These do not bubble, but they can be captured: no listeners on every picture.
    for (const type of ["load", "error"]) {
      root.addEventListener(type, (event) => {
        if (event.target.owner) this.pictures.settle(event.target.owner, type);
      }, true);
    }
    addEventListener("scroll", () => this.#schedule(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(root);
    // What lies above the grid may grow or shrink.
    new ResizeObserver(() => this.#measure()).observe(document.body);
    new ResizeObserver(() => this.#measure()).observe(document.querySelector(".top"));
  }

  get length() {
    return this.source?.ratios.length ?? 0;
  }

  /** Show another source. */
  setSource(source) {
    this.source = source;
    this.current = 0;
    source.onLoad = () => this.#refill();
    this.#clear();
    this.rows = null;
    this.layout();
  }

  /** Show what was appended to the source. */
  extend() {
    // Only the last row may have become another one.
    const last = this.rows?.top.length - 1;
    const elements = this.shown.get(last);
    if (elements) this.#free(last, elements); // `render` uses it again or removes it
    this.#layoutRows(this.rows.width);
    this.#render();
  }

  layout() {
    const width = Math.floor(this.root.clientWidth);
    if (!width || !this.source) return;
    this.#measure();
    if (this.rows?.width !== width) {
      const anchor = this.rows && this.#firstVisible();
      this.#clear();
      this.#layoutRows(width);
      if (anchor) this.scrollTo(anchor);
    }
    this.#render();
  }

  #layoutRows(width) {
    this.rows = layoutRows(this.source.sections, this.source.ratios, width);
    this.root.style.height = `${this.rows.total}px`;
    this.root.setAttribute("aria-rowcount", this.rows.top.length);
    const scrolled = Math.max(1, this.rows.total - innerHeight);
    const starts = this.rows.headings.row.map((row) => this.rows.top[row] / scrolled);
    this.onLayout(this.source.sections, starts);
  }

  /** Scroll so that an item's row is at the top of the window. */
  scrollTo(index) {
    if (!this.rows?.top.length) return;
    this.#measure();
    scrollTo({ top: this.offset + this.rows.top[rowOf(this.rows, index)] - this.covered });
  }

  /** Scroll to a share of the grid's height, from 0 to 1. */
  scrollToShare(share) {
    scrollTo({ top: this.offset + share * (this.rows.total - innerHeight) });
  }

  /** Scroll to the first item of a section, its heading included. */
  scrollToSection(section) {
    const row = this.rows?.headings.row[section];
    if (row === undefined) return;
    this.#measure();
    scrollTo({ top: row ? this.offset + this.rows.top[row] - this.covered : 0 });
  }

  /** Focus an item, and bring it into view. */
  focus(index) {
    if (!this.length) return;
    this.#setCurrent(Math.max(0, Math.min(this.length - 1, index)));
    const row = rowOf(this.rows, this.current);
    const top = this.root.getBoundingClientRect().top + this.rows.top[row];
    const bottom = top + this.rows.height[row];
    if (top < this.covered) scrollBy(0, top - this.covered - 8);
    else if (bottom > innerHeight) scrollBy(0, bottom - innerHeight + 8);
    this.#render();
    this.#tile(this.current)?.link.focus({ preventScroll: true });
  }

  /** Update texts after a change of language. */
  translate() {
    if (!this.source) return;
    this.#clear();
    this.#render();
  }

  /** Measure where the grid is; not while scrolling, since that would force a layout. */
  #measure() {
    const header = document.querySelector(".top");
    this.offset = this.root.getBoundingClientRect().top + scrollY;
    // On a phone a part of the header scrolls away.
    this.covered = header.offsetHeight + Math.min(0, parseFloat(getComputedStyle(header).top) || 0);
  }

  #firstVisible() {
    const y = this.covered - this.root.getBoundingClientRect().top;
    return y <= 0 ? 0 : this.rows.first[rowAt(this.rows, y)];
  }

  #schedule() {
    this.frame ??= requestAnimationFrame((time) => {
      this.frame = undefined;
      const y = scrollY;
      const milliseconds = Math.max(1, time - this.last.time);
      const speed = Math.abs(y - this.last.y) / milliseconds;
      this.forward = y >= this.last.y;
      this.last = { y, time };
      this.fast = speed > (this.fast ? SLOW : FAST);
      this.pictures.scroll(speed, milliseconds);
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.#settle(), SETTLED_MS);
      this.#render(TILES_PER_FRAME);
    });
  }

  #settle() {
    this.fast = this.forward = false;
    this.#render(TILES_PER_FRAME);
    this.#refill();
  }

  /** Create the rows in view, about `most` tiles in this frame, and take away all others. */
  #render(most = Infinity) {
    if (!this.rows?.top.length) return;
    // Measured before anything changes, which would force a layout.
    this.last.y = scrollY;
    this.height = innerHeight;
    const top = scrollY - this.offset;
    const over = this.fast ? OVERSCAN_FAST : OVERSCAN;
    const first = rowAt(this.rows, top - over);
    const last = rowAt(this.rows, top + this.height + over);
    for (const [row, elements] of this.shown) {
      if ((row < first || row > last) && !elements.node.contains(document.activeElement)) {
        this.#free(row, elements);
      }
    }
    this.#fillRows(first, last, most);
    const begin = this.rows.first[first];
    const end = this.rows.first[last] + this.rows.count[last];
    if (!this.fast) this.source.load(begin, end);
    this.#wantPictures();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.#rest(), STILL_MS);
    this.#keepInTabOrder(rowAt(this.rows, top + this.covered + 1), begin, end);
    const section = this.rows.section[rowAt(this.rows, top + this.covered + 60)];
    this.onScroll(section, Math.max(0, top) / Math.max(1, this.rows.total - this.height));
  }

  #fillRows(first, last, most) {
    const missing = [];
    for (let row = first; row <= last; row++) if (!this.shown.has(row)) missing.push(row);
    missing.sort((a, b) => this.#isInWindow(b) - this.#isInWindow(a));
    for (const row of missing) {
      if (most <= 0) {
        this.filling ??= requestAnimationFrame(() => {
          this.filling = undefined;
          this.#render(TILES_PER_FRAME);
        });
        return;
      }
      this.#fill(row);
      most -= this.rows.count[row];
    }
    this.#removeUnused();
  }

  /** Load pictures: those in the window first, or where it goes to if it goes fast. */
  #wantPictures() {
    const rows = this.fast ? [] : [...this.shown.keys()].sort((a, b) => a - b);
    if (this.forward) rows.reverse();
    if (!this.pictures.skimming) rows.sort((a, b) => this.#isInWindow(b) - this.#isInWindow(a));
    const tiles = rows.flatMap((row) => this.shown.get(row).tiles);
    this.pictures.want(tiles.filter((tile) => tile.item && !tile.size));
  }

  #isInWindow(row) {
    const top = this.offset + this.rows.top[row] - this.last.y;
    return top < this.height && top + this.rows.height[row] > this.covered;
  }

  #fill(row) {
    const { rows } = this;
    const isHeading = rows.count[row] === 0;
    const elements = (isHeading ? this.unused.headings : this.unused.lines).pop()
      ?? { node: createRow(isHeading ? "heading" : "line"), tiles: [], isHeading };
    const { node, tiles } = elements;
    node.style.cssText = `transform:translateY(${rows.top[row]}px);height:${rows.height[row]}px`;
    node.setAttribute("aria-rowindex", row + 1);
    if (isHeading) this.#fillHeadings(node, rows.section[row], rows.lastSection[row]);
    else this.#fillTiles(node, tiles, row);
    if (!node.isConnected) this.root.append(node);
    this.shown.set(row, elements);
  }

  #fillTiles(node, tiles, row) {
    const { rows } = this;
    while (tiles.length > rows.count[row]) {
      const tile = tiles.pop();
      tile.clear();
      tile.cell.remove();
      this.unused.tiles.push(tile);
    }
    while (tiles.length < rows.count[row]) {
      const tile = this.unused.tiles.pop() ?? new Tile();
      node.append(tile.cell);
      tiles.push(tile);
    }
    tiles.forEach((tile, i) => {
      const index = rows.first[row] + i;
      tile.place(index, i + 1, rows.left[index], rows.widths[index], rows.height[row]);
      const tabIndex = index === this.current ? 0 : -1;
      if (tile.link.tabIndex !== tabIndex) tile.link.tabIndex = tabIndex;
      if (!this.fast) tile.show(this.source.item(index));
    });
  }

  /** Show the headings of sections, each above its first item. */
  #fillHeadings(node, first, last) {
    while (node.children.length > last - first + 1) node.lastChild.remove();
    while (node.children.length < last - first + 1) node.append(createHeading());
    [...node.children].forEach((cell, i) => {
      cell.firstChild.textContent = this.source.sections[first + i].label();
      cell.style.insetInlineStart = `${this.rows.headings.left[first + i]}px`;
      cell.style.width = `${this.rows.headings.width[first + i]}px`;
    });
  }

  /** Let a row's elements be used for another; they stay in the document until that is known. */
  #free(row, elements) {
    for (const tile of elements.tiles) this.pictures.drop(tile);
    (elements.isHeading ? this.unused.headings : this.unused.lines).push(elements);
    this.shown.delete(row);
  }

  #removeUnused() {
    for (const { node, tiles } of [...this.unused.lines, ...this.unused.headings]) {
      if (!node.isConnected) continue;
      node.remove();
      for (const tile of tiles) tile.clear();
    }
  }

  #clear() {
    for (const [row, elements] of this.shown) this.#free(row, elements);
    this.#removeUnused();
  }

  /** Show what has arrived since the rows were created. */
  #refill() {
    if (this.fast) return;
    for (const { tiles } of this.shown.values()) {
      for (const tile of tiles) tile.show(this.source.item(tile.index));
    }
    this.#wantPictures();
  }

  /** Do what can wait until the page lies still. */
  #rest() {
    if (!this.rows) return;
    const rows = [...this.shown].sort(([a], [b]) => a - b);
    for (const [row, { tiles }] of rows) {
      if (this.#isInWindow(row)) for (const tile of tiles) tile.sharpen();
    }
    // Rows that were used again are not in order, which screen readers need where they browse.
    const nodes = rows.map(([, { node }]) => node);
    const inOrder = nodes.every((node, i) => node === this.root.children[i]);
    if (!inOrder && !this.root.contains(document.activeElement)) this.root.append(...nodes);
  }

  #tile(index) {
    const row = rowOf(this.rows, index);
    return this.shown.get(row)?.tiles[index - this.rows.first[row]];
  }

  #setCurrent(index) {
    const before = this.rows && this.#tile(this.current);
    if (before) before.link.tabIndex = -1;
    this.current = index;
    const after = this.rows && this.#tile(index);
    if (after) after.link.tabIndex = 0;
  }

  /** Let Tab reach the grid where it is looked at, not where it was used last. */
  #keepInTabOrder(row, begin, end) {
    if (this.root.contains(document.activeElement)) return;
    if (this.current < begin || this.current >= end) {
      this.#setCurrent(Math.min(this.rows.first[row], this.length - 1));
    }
  }

  #move(event) {
    const link = event.target.closest(".tile");
    if (!link || event.altKey || event.metaKey) return;
    const index = Number(link.dataset.index);
    const height = innerHeight - this.covered;
    const target = itemByKey(this.rows, index, event.key, event.ctrlKey, height);
    if (target === null) return;
    event.preventDefault();
    this.focus(target);
  }
}

function createRow(className) {
  const node = document.createElement("div");
  node.setAttribute("role", "row");
  node.className = className;
  return node;
}

function createHeading() {
  const cell = document.createElement("div");
  cell.setAttribute("role", "rowheader");
  cell.append(document.createElement("h2"));
  return cell;
}
