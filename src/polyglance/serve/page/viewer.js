// The viewer: one picture over the whole window, or a clip that plays the segment that was found.
//
// Which item is open is part of the address, so this only draws; `app.js` keeps the history.

import { altText } from "./tile.js";
import { downloadUrl, fileUrl, reveal, thumbnailUrl } from "./service.js";
import { getSetting, saveSetting, t } from "./i18n.js";
import { Zoom } from "./zoom.js";

const $ = (id) => document.getElementById(id);

export class Viewer {
  /**
   * `onStep(step)` and `onClose()` are requests to change the address; `onAction(action, item)` is
   * called for the buttons that start a search.
   */
  constructor({ onStep, onClose, onAction, onReport, panels }) {
    Object.assign(this, { onStep, onClose, panels });
    this.item = null;
    this.dialog = $("viewer");
    this.zoom = new Zoom($("stage"), {
      onSwipe: onStep, onDismiss: onClose,
      onZoom: (scale) => $("zoom").setAttribute("aria-pressed", String(scale > 1)),
    });
    $("close").addEventListener("click", onClose);
    $("previous").addEventListener("click", () => onStep(-1));
    $("next").addEventListener("click", () => onStep(1));
    $("zoom").addEventListener("click", () => this.zoom.toggle());
    $("info").addEventListener("click", () => this.#showPanel(!this.panelOpen));
    $("play-segment").addEventListener("click", () => this.#playSegment());
    $("reveal").addEventListener("click", () => onReport(() => reveal(this.item.id)));
    for (const action of ["similar", "add", "subtract"]) {
      $(action).addEventListener("click", () => onAction(action, this.item));
    }
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
    this.dialog.addEventListener("cancel", (event) => { // Escape
      event.preventDefault();
      onClose();
    });
    const wide = matchMedia("(min-width: 60rem)").matches;
    this.#showPanel(wide && getSetting("panel") !== "closed", false);
  }

  get open() {
    return this.dialog.open;
  }

  /** Show an item; `previous` and `next` say whether there are such. */
  show(item, { previous, next }) {
    const { open, item: before } = this;
    this.item = item;
    $("previous").disabled = !previous;
    $("next").disabled = !next;
    if (open && before?.id === item.id) {
      if (before !== item) this.#showPanels(); // more is known about it
      return;
    }
    $("viewer-name").textContent = item.name;
    $("original").href = fileUrl(item);
    $("download").href = downloadUrl(item);
    $("play-segment").hidden = item.kind !== "clip";
    $("zoom").hidden = item.kind === "clip";
    const frame = document.createElement("div");
    frame.className = "frame";
    $("stage").replaceChildren(frame);
    if (!open) this.dialog.showModal();
    frame.append(item.kind === "clip" ? this.#video(item) : picture(item));
    this.zoom.attach(item.kind === "clip" ? null : frame);
    this.#showPanels();
    if (!open) $("viewer-name").focus({ preventScroll: true });
  }

  close() {
    if (!this.open) return;
    this.item = null;
    $("stage").replaceChildren(); // stops a clip and its download
    for (const panel of this.panels) panel.hide?.();
    this.dialog.close();
  }

  translate() {
    if (this.item) this.#showPanels();
  }

  #showPanels() {
    for (const panel of this.panels) panel.show(this.item, this.panelOpen);
  }

  #showPanel(open, save = true) {
    this.panelOpen = open;
    this.dialog.classList.toggle("with-panel", open);
    $("facts").hidden = !open;
    $("info").setAttribute("aria-expanded", String(open));
    if (save) saveSetting("panel", open ? null : "closed");
    if (open && this.item) this.#showPanels();
  }

  #video(item) {
    const [start, stop] = item.span ?? [0, item.seconds ?? Infinity];
    const video = document.createElement("video");
    video.controls = true;
    video.playsInline = true;
    video.preload = "metadata";
    video.poster = thumbnailUrl(item.id, 640);
    video.setAttribute("aria-label", altText(item));
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
      const still = document.createElement("img");
      Object.assign(still, { alt: altText(item), src: thumbnailUrl(item.id, 640) });
      video.replaceWith(still, message);
      $("play-segment").hidden = true;
    });
    video.src = fileUrl(item);
    return video;
  }

  #playSegment() {
    const video = $("stage").querySelector("video");
    if (!video) return;
    video.currentTime = (this.item.span?.[0] ?? 0) + 0.01;
    video.play().catch(() => {}); // browsers may require a click first; the controls are there
  }

  #key(event) {
    if (event.target.closest("video, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    const actions = {
      ArrowLeft: () => this.onStep(event.key === forward ? 1 : -1),
      ArrowRight: () => this.onStep(event.key === forward ? 1 : -1),
      "+": () => this.zoom.zoomBy(1.5),
      "-": () => this.zoom.zoomBy(1 / 1.5),
      0: () => this.zoom.zoomBy(1 / this.zoom.scale),
      i: () => this.#showPanel(!this.panelOpen),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

/** Return the picture: its thumbnail at once, then the whole file. */
function picture(item) {
  const image = document.createElement("img");
  image.alt = altText(item);
  image.draggable = false;
  image.src = thumbnailUrl(item.id);
  const whole = new Image();
  whole.src = fileUrl(item);
  whole.decode().then(() => { image.src = whole.src; }, () => {});
  return image;
}
