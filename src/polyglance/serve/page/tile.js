// One picture of the grid: a link to its own address in a cell.

import { formatPercent, formatTime, t } from "./i18n.js";
import { formatAddress } from "./address.js";
import { thumbnailUrl } from "./service.js";

const RETRY_MS = 2500;
const SMALL = 256;
const LARGE = 640;

export class Tile {
  constructor() {
    this.cell = document.createElement("div");
    this.cell.setAttribute("role", "gridcell");
    this.link = document.createElement("a");
    this.link.className = "tile";
    this.image = document.createElement("img");
    this.image.decoding = "async";
    this.image.draggable = false;
    this.image.owner = this;
    this.name = label("name", "");
    this.name.dir = "auto";
    this.link.append(this.image, this.name);
    this.cell.append(this.link);
    this.item = null;
    this.index = -1;
    this.size = 0; // of the picture that is loaded or being loaded; 0 for none
    this.shown = false; // whether there is a picture to see
  }

  /** Set where the tile lies in its row, and which item it shows. */
  place(index, column, left, width, height) {
    if (index !== this.index) {
      this.clear();
      this.index = index;
      this.link.dataset.index = index;
    }
    this.cell.setAttribute("aria-colindex", column);
    this.cell.style.cssText = `inset-inline-start:${left}px;width:${width}px;height:${height}px`;
    this.longest = Math.max(width, height);
  }

  /** Show what is known of an item, if it has arrived, without its picture. */
  show(item) {
    if (!item || item === this.item) return;
    this.item = item;
    this.link.href = formatAddress({ photo: item.id });
    this.link.dataset.id = item.id;
    this.link.setAttribute("aria-label", altText(item)); // also without its picture
    this.#draw(item);
  }

  /** Begin to load the picture. */
  load(size = SMALL) {
    this.size = size;
    this.image.alt = altText(this.item);
    this.image.src = thumbnailUrl(this.item.id, size);
  }

  /** Let the picture that has been loaded be seen. */
  reveal() {
    this.shown = true;
    this.image.classList.add("loaded");
  }

  /** Load a larger picture if the small one, which is at hand, is too coarse for this screen. */
  sharpen() {
    const { item } = this;
    if (!this.shown || this.size !== SMALL || this.longest * devicePixelRatio <= 1.6 * SMALL) return;
    this.size = LARGE;
    const large = new Image();
    large.src = thumbnailUrl(item.id, LARGE);
    large.decode().then(() => {
      if (this.item === item) this.image.src = large.src;
    }, () => {});
  }

  clear() {
    this.index = -1;
    if (!this.item) return;
    clearTimeout(this.retrying);
    this.item = null;
    this.retried = false;
    if (this.size) this.image.removeAttribute("src"); // ends a request that is under way
    if (this.shown) this.image.classList.remove("loaded");
    this.size = 0;
    this.shown = false;
    this.link.classList.remove("broken");
    this.link.removeAttribute("href");
    this.link.removeAttribute("aria-label");
    while (this.link.lastChild !== this.name) this.link.lastChild.remove();
  }

  /** Handle a failure to load: try once more, since the server may have been busy. */
  fail() {
    if (this.retried) {
      this.link.classList.add("broken");
      return;
    }
    this.retried = true;
    this.retrying = setTimeout(() => this.load(), RETRY_MS);
  }

  #draw(item) {
    while (this.link.lastChild !== this.name) this.link.lastChild.remove();
    this.name.textContent = item.name;
    if (item.kind === "clip") {
      const time = item.span
        ? `${formatTime(item.span[0])}–${formatTime(item.span[1])}`
        : item.seconds ? formatTime(item.seconds) : "";
      this.link.append(label("badge", `▶ ${time}`.trim()));
    }
    if (item.stack > 1) this.link.append(label("stack", `❐ ${item.stack}`));
    if (typeof item.probability === "number") {
      this.link.append(label("percent", formatPercent(item.probability)));
    }
  }
}

function label(className, text) {
  const element = document.createElement("span");
  element.className = className;
  element.setAttribute("aria-hidden", "true");
  element.textContent = text;
  return element;
}

/** Return the alternative text of an item. */
export function altText(item) {
  const values = { name: item.name, folder: item.folder };
  const parts = [item.span
    ? t("altSegment", { ...values, from: formatTime(item.span[0]), to: formatTime(item.span[1]) })
    : t(item.kind === "clip" ? "altClip" : "altPicture", values)];
  if (item.stack > 1) parts.push(t("stackOf", { n: item.stack }));
  if (typeof item.probability === "number") {
    parts.push(t("matchPercent", { percent: formatPercent(item.probability) }));
  }
  return parts.join(", ");
}
