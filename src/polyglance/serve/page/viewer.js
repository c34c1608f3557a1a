// The dialog that shows one hit: a picture, or a clip that plays the segment that was found.

import { altText } from "./grid.js";
import { formatDate, formatNumber, formatTime, t } from "./i18n.js";
import { fileUrl, thumbnailUrl } from "./service.js";

const $ = (id) => document.getElementById(id);

export class Viewer {
  /** `hits()` returns the hits to step through; `onClose(index)` gets the last one shown. */
  constructor(hits, { onClose, onAction, explainPanel }) {
    this.hits = hits;
    this.explainPanel = explainPanel;
    this.index = 0;
    this.dialog = $("viewer");
    $("close").addEventListener("click", () => this.dialog.close());
    $("previous").addEventListener("click", () => this.show(this.index - 1));
    $("next").addEventListener("click", () => this.show(this.index + 1));
    $("play-segment").addEventListener("click", () => this.#playSegment());
    for (const action of ["similar", "add", "subtract"]) {
      $(action).addEventListener("click", () => {
        const hit = this.hits()[this.index];
        this.dialog.close();
        onAction(action, hit);
      });
    }
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close(); // a click on the backdrop
    });
    this.dialog.addEventListener("keydown", (event) => this.#step(event));
    this.dialog.addEventListener("close", () => {
      $("stage").replaceChildren(); // stops a clip and its download
      onClose(this.index);
    });
  }

  show(index) {
    const hits = this.hits();
    if (index < 0 || index >= hits.length) return;
    this.index = index;
    const hit = hits[index];
    $("viewer-name").textContent = hit.name;
    $("viewer-facts").replaceChildren(...facts(hit));
    $("original").href = fileUrl(hit);
    $("play-segment").hidden = hit.kind !== "clip";
    $("previous").disabled = index === 0;
    $("next").disabled = index === hits.length - 1;
    $("stage").replaceChildren(hit.kind === "clip" ? this.#video(hit) : picture(hit));
    this.explainPanel.show(hit);
    if (!this.dialog.open) {
      this.dialog.showModal();
      $("viewer-name").focus({ preventScroll: true });
    }
  }

  #video(hit) {
    const [start, stop] = hit.span ?? [0, hit.seconds ?? Infinity];
    const video = document.createElement("video");
    video.controls = true;
    video.playsInline = true;
    video.preload = "metadata";
    video.poster = thumbnailUrl(hit.id, 640);
    video.setAttribute("aria-label", altText(hit));
    // Stop once at the end of the segment; do not stop users who play on or seek elsewhere.
    let inSegment = true;
    video.addEventListener("timeupdate", () => {
      if (!inSegment || video.currentTime < stop) return;
      inSegment = false;
      video.pause();
    });
    video.addEventListener("seeked", () => {
      inSegment = video.currentTime >= start - 0.1 && video.currentTime < stop - 0.05;
    });
    video.addEventListener("loadedmetadata", () => this.#playSegment());
    video.addEventListener("error", () => {
      const message = document.createElement("p");
      message.className = "media-error";
      message.textContent = t("unplayable");
      video.replaceWith(picture(hit, thumbnailUrl(hit.id, 640)), message);
      $("play-segment").hidden = true;
    });
    video.src = fileUrl(hit);
    return video;
  }

  #playSegment() {
    const video = $("stage").querySelector("video");
    if (!video) return;
    const start = this.hits()[this.index].span?.[0] ?? 0;
    video.currentTime = start + 0.01;
    video.play().catch(() => {}); // browsers may require a click first; the controls are there
  }

  #step(event) {
    if (event.target.closest("video, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    event.preventDefault();
    this.show(this.index + (event.key === forward ? 1 : -1));
  }
}

function picture(hit, url = fileUrl(hit)) {
  const image = document.createElement("img");
  image.alt = altText(hit);
  image.src = url;
  return image;
}

function facts(hit) {
  const rows = [
    ["folder", hit.folder],
    ["taken", formatDate(hit.taken)],
    ["size", `${formatNumber(hit.width)} × ${formatNumber(hit.height)}`],
  ];
  if (hit.span) rows.push(["segment", `${formatTime(hit.span[0])}–${formatTime(hit.span[1])}`]);
  rows.push(["match", new Intl.NumberFormat(document.documentElement.lang,
    { maximumFractionDigits: 2, minimumFractionDigits: 2 }).format(hit.score)]);
  return rows.filter(([, value]) => value).flatMap(([key, value]) => {
    const term = document.createElement("dt");
    const definition = document.createElement("dd");
    term.textContent = t(key);
    definition.textContent = value;
    definition.dir = "auto";
    return [term, definition];
  });
}
