// The hits as justified rows of pictures in their own aspect ratio, and the keys that move
// among them.

import { formatTime, t } from "./i18n.js";
import { thumbnailUrl } from "./service.js";

const GAP = 8;
const RETRY_MS = 2500;

export class Grid {
  /** `onOpen(index)` is called when a tile is clicked. */
  constructor(list, onOpen) {
    this.list = list;
    this.hits = [];
    list.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) onOpen(this.tiles.indexOf(tile));
    });
    list.addEventListener("keydown", (event) => this.#move(event));
    list.addEventListener("focusin", (event) => this.#enter(event.target.closest(".tile")));
    new ResizeObserver(() => this.layout()).observe(list);
  }

  get tiles() {
    return [...this.list.querySelectorAll(".tile")];
  }

  clear() {
    this.hits = [];
    this.list.replaceChildren();
  }

  add(hits) {
    const first = this.hits.length === 0;
    this.hits.push(...hits);
    this.list.append(...hits.map((hit) => this.#item(hit)));
    if (first) this.tiles[0]?.setAttribute("tabindex", "0");
    this.layout();
  }

  focus(index) {
    this.tiles[index]?.focus();
  }

  /** Update the alternative texts after a change of language. */
  translate() {
    this.tiles.forEach((tile, i) => {
      tile.querySelector("img").alt = altText(this.hits[i]);
    });
  }

  layout() {
    const width = Math.floor(this.list.clientWidth);
    if (!width || !this.hits.length) return;
    const targetHeight = width < 600 ? 130 : width < 1100 ? 180 : 215;
    const tiles = this.tiles;
    let row = [];
    let ratios = 0;
    const close = (height, justified) => {
      let left = width - GAP * (row.length - 1);
      row.forEach((i, column) => {
        const exact = aspectRatio(this.hits[i]) * height;
        // The last tile takes the rounding error, so that all rows end at the same edge.
        const last = justified && column === row.length - 1;
        const tileWidth = Math.max(40, last ? left : Math.floor(exact));
        left -= tileWidth;
        tiles[i].style.width = `${tileWidth}px`;
        tiles[i].style.height = `${Math.floor(height)}px`;
        tiles[i].querySelector("img").sizes = `${tileWidth}px`;
      });
      row = [];
      ratios = 0;
    };
    this.hits.forEach((hit, i) => {
      row.push(i);
      ratios += aspectRatio(hit);
      const height = (width - GAP * (row.length - 1)) / ratios;
      if (height <= targetHeight) close(height, true);
    });
    if (row.length) close(targetHeight, false);
  }

  #item(hit) {
    const item = document.createElement("li");
    const tile = document.createElement("button");
    tile.type = "button";
    tile.className = "tile";
    tile.tabIndex = -1;
    tile.dataset.id = hit.id;
    tile.append(picture(hit));
    if (hit.kind === "clip") {
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.setAttribute("aria-hidden", "true");
      badge.textContent = hit.span ? `▶ ${formatTime(hit.span[0])}–${formatTime(hit.span[1])}` : "▶";
      tile.append(badge);
    }
    const name = document.createElement("span");
    name.className = "name";
    name.dir = "auto";
    name.setAttribute("aria-hidden", "true");
    name.textContent = hit.name;
    tile.append(name);
    item.append(tile);
    return item;
  }

  #enter(tile) {
    if (!tile) return;
    for (const other of this.list.querySelectorAll('.tile[tabindex="0"]')) other.tabIndex = -1;
    tile.tabIndex = 0;
  }

  #move(event) {
    const tiles = this.tiles;
    const current = tiles.indexOf(event.target.closest(".tile"));
    if (current < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    let target = null;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      target = current + (event.key === forward ? 1 : -1);
    } else if (event.key === "ArrowDown") target = nearest(tiles, current, 1);
    else if (event.key === "ArrowUp") target = nearest(tiles, current, -1);
    else if (event.key === "Home") target = 0;
    else if (event.key === "End") target = tiles.length - 1;
    if (target === null) return;
    event.preventDefault();
    tiles[Math.max(0, Math.min(tiles.length - 1, target))].focus();
  }
}

/** Width by height, clipped so that no tile fills a row or vanishes. */
const aspectRatio = (hit) => Math.min(3, Math.max(0.5, hit.width / hit.height || 1));

/** Return the index of the closest tile in the next row down (step 1) or up (step -1). */
function nearest(tiles, current, step) {
  const from = tiles[current].getBoundingClientRect();
  const middle = from.left + from.width / 2;
  let row = null;
  let best = current;
  let smallest = Infinity;
  for (let i = current + step; i >= 0 && i < tiles.length; i += step) {
    const box = tiles[i].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 2) continue;
    row ??= box.top;
    if (Math.abs(box.top - row) >= 2) break;
    const distance = Math.abs(box.left + box.width / 2 - middle);
    if (distance < smallest) [best, smallest] = [i, distance];
  }
  return best;
}

/** Return the alternative text of a hit. */
export function altText(hit) {
  const values = { name: hit.name, folder: hit.folder };
  if (!hit.span) return t(hit.kind === "clip" ? "altClip" : "altPicture", values);
  return t("altSegment", { ...values, from: formatTime(hit.span[0]), to: formatTime(hit.span[1]) });
}

function picture(hit) {
  const image = document.createElement("img");
  const widthAt = (longest) => Math.round(longest * Math.min(1, hit.width / hit.height || 1));
  image.alt = altText(hit);
  image.loading = "lazy";
  image.decoding = "async";
  image.sizes = "200px";
  image.addEventListener("load", () => image.classList.add("loaded"));
  image.addEventListener("error", () => {
    if (image.dataset.retried) image.closest(".tile")?.classList.add("broken");
    else setTimeout(() => { image.srcset = ""; image.src = thumbnailUrl(hit.id); }, RETRY_MS);
    image.dataset.retried = "yes";
  });
  image.srcset = [256, 640].map((size) => `${thumbnailUrl(hit.id, size)} ${widthAt(size)}w`).join(", ");
  image.src = thumbnailUrl(hit.id);
  return image;
}
