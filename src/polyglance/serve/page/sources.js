// What the grid shows: a timeline whose pages are loaded on demand, or the hits of a search.
//
// A source has `sections`, `ratios` (width by height of all items), `item(index)` if it has arrived,
// `get(index)` that waits for it, and `load(first, last)`; it calls `onLoad` when items arrive.

import { formatPeriod, t } from "./i18n.js";
import { clippedRatio } from "./layout.js";
import * as service from "./service.js";

const PAGE = 100; // items a request
const MAX_PAGES = 100; // kept in memory
const MAX_REQUESTS = 3; // at once, so that thumbnails get connections too
const MAX_ATTEMPTS = 3;
const UNKNOWN_RATIO = 1.25;
const SHAPES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const RATIOS = new Float32Array(128); // by the code of the character
[...SHAPES].forEach((code, i) => { RATIOS[code.charCodeAt(0)] = clippedRatio(2 ** ((i - 32) / 16)); });

export class TimelineSource {
  /** Load how many items there are, their shapes and the first items; `sort` is taken or added. */
  static async open(filters, sort, signal) {
    const [timeline, first] = await Promise.all([
      service.timeline(filters, sort, signal),
      service.items(filters, sort, { offset: 0, limit: PAGE, signal }),
    ]);
    const source = new TimelineSource(filters, sort, timeline);
    if (first.snapshot === timeline.snapshot) source.#keep(0, first.items);
    return source;
  }

  constructor(filters, sort, { snapshot, total, buckets }) {
    Object.assign(this, { filters, sort, snapshot });
    this.onLoad = this.onStale = () => {};
    this.pages = new Map();
    this.requests = new Set();
    this.failures = new Map(); // by page
    this.stale = false;
    this.wanted = [];
    this.sections = buckets.map(({ date, count }) => ({
      date, count, label: date ? () => formatPeriod(date) : null,
    }));
    this.ratios = new Float32Array(total).fill(UNKNOWN_RATIO);
    for (const { offset, shapes } of buckets) {
      for (let i = 0; i < (shapes?.length ?? 0); i++) {
        this.ratios[offset + i] = RATIOS[shapes.charCodeAt(i)] || 1;
      }
    }
  }

  get length() {
    return this.ratios.length;
  }

  item(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  async get(index) {
    const page = Math.floor(index / PAGE);
    if (!this.pages.has(page)) await this.#fetch(page);
    return this.item(index);
  }

  /** Return the position of an item, or -1. */
  async locate(item) {
    return (await service.rank(item.id, this.filters, this.sort, this.snapshot)) ?? -1;
  }

  /** Return whether the library still has the same items. */
  async isFresh() {
    const { snapshot } = await service.items(this.filters, this.sort, { offset: 0, limit: 1 });
    return snapshot === this.snapshot;
  }

  /** Load what is in view; pages that were wanted before but are out of view again are dropped. */
  load(first, last) {
    this.wanted = [];
    for (let page = Math.floor(first / PAGE); page * PAGE < Math.min(last, this.length); page++) {
      if (!this.pages.has(page)) this.wanted.push(page);
    }
    this.#pump();
  }

  #pump() {
    const missing = (page) =>
      !this.pages.has(page) && !this.requests.has(page) && (this.failures.get(page) ?? 0) < MAX_ATTEMPTS;
    while (this.requests.size < MAX_REQUESTS && !this.stale) {
      const page = this.wanted.find(missing);
      if (page === undefined) return;
      this.#fetch(page).catch(() => {}).finally(() => this.#pump());
    }
  }

  #keep(page, found) {
    const items = new Array(PAGE); // deleted items leave holes
    for (const item of found) items[item.rank - page * PAGE] = item;
    this.pages.set(page, items);
    if (this.pages.size > MAX_PAGES) this.pages.delete(this.pages.keys().next().value);
  }

  async #fetch(page) {
    this.requests.add(page);
    try {
      const { snapshot } = this;
      const response = await service.items(
        this.filters, this.sort, { offset: page * PAGE, limit: PAGE, snapshot },
      );
      if (response.snapshot !== snapshot) {
        if (!this.stale) this.onStale(); // the library changed
        this.stale = true;
        return;
      }
      this.#keep(page, response.items);
      this.onLoad();
    } catch (error) {
      this.failures.set(page, (this.failures.get(page) ?? 0) + 1);
      throw error;
    } finally {
      this.requests.delete(page);
    }
  }
}

export class HitSource {
  /** The hits of a search; `more()` loads the first and every further page. */
  constructor(search) {
    this.search = search;
    this.onLoad = () => {};
    this.hits = [];
    this.ratios = new Float32Array(0);
    this.sections = [];
    this.hasMore = true;
    this.fold = null; // how many hits are certain; null if the server does not say
    this.fits = null;
    this.unfolded = false;
  }

  get length() {
    return this.ratios.length;
  }

  /** Whether hits are known but hidden because they are less certain. */
  get folded() {
    return !this.unfolded && this.fold !== null && (this.fold < this.hits.length || this.fold === 0);
  }

  /** Whether scrolling on should load more. */
  get continues() {
    return this.hasMore && !this.folded;
  }

  item(index) {
    return this.hits[index];
  }

  async get(index) {
    return this.hits[index];
  }

  async locate(item) {
    return this.hits.slice(0, this.length).findIndex((hit) => hit.id === item.id);
  }

  load() {}

  async more(signal) {
    const response = await service.search(this.search, { offset: this.hits.length, signal });
    if (signal?.aborted) return;
    this.hits.push(...response.hits);
    this.hasMore = response.more;
    if (!this.answer) {
      this.answer = response;
      this.fits = response.fits ?? null;
    }
    this.fold = response.fold ?? this.fold;
    this.arrange();
  }

  /** Show the less certain hits too. */
  unfold() {
    this.unfolded = true;
    this.arrange();
  }

  arrange() {
    const count = this.folded ? this.fold : this.hits.length;
    this.ratios = Float32Array.from(
      this.hits.slice(0, count), (hit) => clippedRatio(hit.width / hit.height),
    );
    const certain = this.fold === null ? count : Math.min(this.fold, count);
    this.sections = [
      { count: certain, label: null },
      { count: count - certain, label: () => t("lessCertain") },
    ].filter((section) => section.count > 0);
  }
}
