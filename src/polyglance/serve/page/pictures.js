// Which pictures of the grid are loaded, and when: those in the window first, and few in a frame.
//
// Decoding and drawing pictures takes the time of frames, most of all without a graphics card. So
// pictures appear a few at a time, fewer the faster the page is scrolled and in the frame after one
// that took long. Those that left the window before their turn are not loaded.

const BRISK = 3; // pixels per millisecond
const LONG_FRAME_MS = 28;
const REST_MS = 400; // without scrolling
// Requests at once (browsers send six at a time), and pictures that appear in a frame, or in one
// after a frame that took long.
const AT_REST = { requests: 8, perFrame: 4, ifLate: 4 };
const READING = { requests: 6, perFrame: 2, ifLate: 1 };
const SKIMMING = { requests: 2, perFrame: 1, ifLate: 0 };

export class Pictures {
  constructor() {
    this.wanted = []; // tiles, the most urgent first
    this.loading = new Set();
    this.arrived = new Set(); // loaded, but not to be seen yet
    this.limits = AT_REST;
  }

  /** Whether the page is scrolled so fast that only some pictures can be shown. */
  get skimming() {
    return this.limits === SKIMMING;
  }

  /** Load the pictures of tiles, in this order, instead of those that were wanted before. */
  want(tiles) {
    this.wanted = tiles;
    this.#pump();
  }

  /** Wait until the pictures that are wanted are shown, or some milliseconds have passed. */
  async shown(milliseconds) {
    await new Promise((done) => {
      this.onIdle = done;
      setTimeout(done, milliseconds);
      this.#nextFrame();
    });
  }

  /** Note a frame of scrolling: pixels per millisecond, and how long the frame before it took. */
  scroll(speed, milliseconds) {
    this.limits = speed > BRISK ? SKIMMING : READING;
    this.late = milliseconds > LONG_FRAME_MS;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.limits = AT_REST;
      this.late = false;
      this.#pump();
    }, REST_MS);
  }

  /** Forget a tile that is about to show another item. */
  drop(tile) {
    this.loading.delete(tile);
    this.arrived.delete(tile);
  }

  /** Handle the end of a tile's loading. */
  settle(tile, type) {
    if (!tile.item || tile.shown) return; // a larger picture takes the place of the small one
    this.loading.delete(tile);
    if (type === "load") this.arrived.add(tile);
    else tile.fail();
    this.#nextFrame();
  }

  #pump() {
    // While pictures wait to be shown, others need not be loaded.
    while (this.loading.size + this.arrived.size < this.limits.requests) {
      const tile = this.wanted.shift();
      if (!tile) return;
      if (!tile.item || tile.size) continue;
      this.loading.add(tile);
      tile.load();
    }
  }

  #nextFrame() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      let count = this.late ? this.limits.ifLate : this.limits.perFrame;
      this.late = false;
      for (const tile of this.arrived) {
        if (count <= 0) break;
        this.arrived.delete(tile);
        if (!tile.size || !tile.image.complete) continue; // it shows another item now
        tile.reveal();
        count--;
      }
      this.#pump();
      if (this.arrived.size) this.#nextFrame();
      else if (!this.loading.size) this.onIdle?.();
    });
  }
}
