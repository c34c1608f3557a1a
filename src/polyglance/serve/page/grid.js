// Hits as rows of one height that fill the width, each picture in its own shape; and the keys
// that move among them.

import { thumbnail } from "./service.js";
import { clock, say } from "./i18n.js";

const GAP = 8;
const RETRY = 2500;

export class Grid {
  constructor(list, opened) {
    this.list = list;
    this.opened = opened;
    this.hits = [];
    list.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) opened(this.tiles.indexOf(tile));
    });
    list.addEventListener("keydown", (event) => this.#move(event));
    list.addEventListener("focusin", (event) => this.#enter(event.target.closest(".tile")));
    new ResizeObserver(() => this.layOut()).observe(list);
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
    this.layOut();
  }

  focus(index) {
    this.tiles[index]?.focus();
  }

  /** The names of tiles again, in another language. */
  translate() {
    this.tiles.forEach((tile, i) => {
      tile.querySelector("img").alt = described(this.hits[i]);
    });
  }

  layOut() {
    const width = Math.floor(this.list.clientWidth);
    if (!width || !this.hits.length) return;
    const wanted = width < 600 ? 130 : width < 1100 ? 180 : 215;
    const tiles = this.tiles;
    let row = [];
    let shapes = 0;
    const close = (height, full) => {
      let left = width - GAP * (row.length - 1);
      row.forEach((i, place) => {
        const exact = shape(this.hits[i]) * height;
        // What rounding leaves over goes to the last, so that rows end where others do.
        const fills = full && place === row.length - 1;
        const wide = Math.max(40, fills ? left : Math.floor(exact));
        left -= wide;
        tiles[i].style.width = `${wide}px`;
        tiles[i].style.height = `${Math.floor(height)}px`;
        tiles[i].querySelector("img").sizes = `${wide}px`;
      });
      row = [];
      shapes = 0;
    };
    this.hits.forEach((hit, i) => {
      row.push(i);
      shapes += shape(hit);
      const height = (width - GAP * (row.length - 1)) / shapes;
      if (height <= wanted) close(height, true);
    });
    if (row.length) close(wanted, false);
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
      badge.textContent = hit.span ? `▶ ${clock(hit.span[0])}–${clock(hit.span[1])}` : "▶";
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
    const here = tiles.indexOf(event.target.closest(".tile"));
    if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    let there = null;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      there = here + (event.key === forward ? 1 : -1);
    } else if (event.key === "ArrowDown") there = nearest(tiles, here, 1);
    else if (event.key === "ArrowUp") there = nearest(tiles, here, -1);
    else if (event.key === "Home") there = 0;
    else if (event.key === "End") there = tiles.length - 1;
    if (there === null) return;
    event.preventDefault();
    tiles[Math.max(0, Math.min(tiles.length - 1, there))].focus();
  }
}

/** Width by height, within what a row can bear. */
const shape = (hit) => Math.min(3, Math.max(0.5, hit.width / hit.height || 1));

/** The tile of the next row down or up that lies straight on. */
function nearest(tiles, here, step) {
  const from = tiles[here].getBoundingClientRect();
  const middle = from.left + from.width / 2;
  let row = null;
  let best = here;
  let least = Infinity;
  for (let i = here + step; i >= 0 && i < tiles.length; i += step) {
    const box = tiles[i].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 2) continue;
    row ??= box.top;
    if (Math.abs(box.top - row) >= 2) break;
    const away = Math.abs(box.left + box.width / 2 - middle);
    if (away < least) [best, least] = [i, away];
  }
  return best;
}

export function described(hit) {
  const places = { name: hit.name, folder: hit.folder };
  if (!hit.span) return say(hit.kind === "clip" ? "altClip" : "altPicture", places);
  return say("altPart", { ...places, from: clock(hit.span[0]), to: clock(hit.span[1]) });
}

function picture(hit) {
  const image = document.createElement("img");
  const across = (longest) => Math.round(longest * Math.min(1, hit.width / hit.height || 1));
  image.alt = described(hit);
  image.loading = "lazy";
  image.decoding = "async";
  image.sizes = "200px";
  image.addEventListener("load", () => image.classList.add("there"));
  image.addEventListener("error", () => {
    if (image.dataset.tried) image.closest(".tile")?.classList.add("broken");
    else setTimeout(() => { image.srcset = ""; image.src = thumbnail(hit.id); }, RETRY);
    image.dataset.tried = "yes";
  });
  image.srcset = [256, 640].map((size) => `${thumbnail(hit.id, size)} ${across(size)}w`).join(", ");
  image.src = thumbnail(hit.id);
  return image;
}
