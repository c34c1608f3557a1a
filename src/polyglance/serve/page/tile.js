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
    this.link.append(this.image);
    this.cell.append(this.link);
    this.item = null;
    this.size = 0;
  }

  /** Set where the tile lies in its row, and which item it shows. */
  place(index, column, left, width, height) {
    this.index = index;
    this.link.dataset.index = index;
    this.cell.setAttribute("aria-colindex", column);
    const { style } = this.cell;
    style.insetInlineStart = `${left}px`;
    style.width = `${width}px`;
    style.height = `${height}px`;
    this.longest = Math.max(width, height);
  }

  /** Show an item, if it has arrived; its picture only if `pictures`. */
  show(item, pictures) {
    if (!item) return;
    if (item !== this.item) {
      this.item = item;
      this.link.href = formatAddress({ photo: item.id });
      this.link.dataset.id = item.id;
      this.image.alt = altText(item);
      this.#draw(item);
    }
    if (pictures && !this.size) this.#load(SMALL);
  }

  /** Load a larger picture if the small one, which is at hand, is too coarse for this screen. */
  sharpen() {
    const { item } = this;
    if (this.size !== SMALL || this.longest * devicePixelRatio <= 1.6 * SMALL) return;
    this.size = LARGE;
    const large = new Image();
    large.src = thumbnailUrl(item.id, LARGE);
    large.decode().then(() => {
      if (this.item === item) this.image.src = large.src;
    }, () => {});
  }

  clear() {
    clearTimeout(this.retrying);
    this.item = null;
    this.size = 0;
    this.retried = false;
    this.image.removeAttribute("src");
    this.image.alt = "";
    this.image.classList.remove("loaded");
    this.link.classList.remove("broken");
    this.link.removeAttribute("href");
    while (this.link.lastChild !== this.image) this.link.lastChild.remove();
  }

  /** Handle the end of loading. */
  settle(type) {
    if (!this.item) return;
    if (type === "load") this.image.classList.add("loaded");
    else if (this.retried) this.link.classList.add("broken");
    else {
      this.retried = true; // the server may have been busy
      this.retrying = setTimeout(() => this.#load(SMALL), RETRY_MS);
    }
  }

  #load(size) {
    this.size = size;
    this.image.src = thumbnailUrl(this.item.id, size);
  }

  #draw(item) {
    while (this.link.lastChild !== this.image) this.link.lastChild.remove();
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
    const name = label("name", item.name);
    name.dir = "auto";
    this.link.append(name);
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
