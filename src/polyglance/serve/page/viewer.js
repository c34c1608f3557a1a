// One hit in full, in a dialog: a picture, or a clip that plays the span that was found.

import { described } from "./grid.js";
import { file, thumbnail } from "./service.js";
import { clock, day, number, say } from "./i18n.js";

const $ = (id) => document.getElementById(id);

export class Viewer {
  /** `hits()` are those to step through; `closed(index)` is told where it ended. */
  constructor(hits, { closed, act, closer }) {
    this.hits = hits;
    this.closer = closer;
    this.index = 0;
    this.dialog = $("viewer");
    $("close").addEventListener("click", () => this.dialog.close());
    $("previous").addEventListener("click", () => this.show(this.index - 1));
    $("next").addEventListener("click", () => this.show(this.index + 1));
    $("again").addEventListener("click", () => this.#playPart());
    for (const action of ["similar", "add", "subtract"]) {
      $(action).addEventListener("click", () => {
        const hit = this.hits()[this.index];
        this.dialog.close();
        act(action, hit);
      });
    }
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close(); // beside it
    });
    this.dialog.addEventListener("keydown", (event) => this.#step(event));
    this.dialog.addEventListener("close", () => {
      $("stage").replaceChildren(); // a clip stops, and its stream with it
      closed(this.index);
    });
  }

  show(index) {
    const hits = this.hits();
    if (index < 0 || index >= hits.length) return;
    this.index = index;
    const hit = hits[index];
    $("viewer-name").textContent = hit.name;
    $("viewer-facts").replaceChildren(...facts(hit));
    $("original").href = file(hit);
    $("again").hidden = hit.kind !== "clip";
    $("previous").disabled = index === 0;
    $("next").disabled = index === hits.length - 1;
    $("stage").replaceChildren(hit.kind === "clip" ? this.#clip(hit) : picture(hit));
    this.closer.show(hit);
    if (!this.dialog.open) {
      this.dialog.showModal();
      $("viewer-name").focus({ preventScroll: true });
    }
  }

  #clip(hit) {
    const [start, stop] = hit.span ?? [0, hit.seconds ?? Infinity];
    const video = document.createElement("video");
    video.controls = true;
    video.playsInline = true;
    video.preload = "metadata";
    video.poster = thumbnail(hit.id, 640);
    video.setAttribute("aria-label", described(hit));
    // The span is played once; who goes on, or goes elsewhere, is not stopped again.
    let within = true;
    video.addEventListener("timeupdate", () => {
      if (!within || video.currentTime < stop) return;
      within = false;
      video.pause();
    });
    video.addEventListener("seeked", () => {
      within = video.currentTime >= start - 0.1 && video.currentTime < stop - 0.05;
    });
    video.addEventListener("loadedmetadata", () => this.#playPart());
    video.addEventListener("error", () => {
      const sorry = document.createElement("p");
      sorry.className = "sorry";
      sorry.textContent = say("unplayable");
      video.replaceWith(picture(hit, thumbnail(hit.id, 640)), sorry);
      $("again").hidden = true;
    });
    video.src = file(hit);
    return video;
  }

  #playPart() {
    const video = $("stage").querySelector("video");
    if (!video) return;
    const start = this.hits()[this.index].span?.[0] ?? 0;
    video.currentTime = start + 0.01;
    video.play().catch(() => {}); // a browser may want a click first; the controls are there
  }

  #step(event) {
    if (event.target.closest("video, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    event.preventDefault();
    this.show(this.index + (event.key === forward ? 1 : -1));
  }
}

function picture(hit, address = file(hit)) {
  const image = document.createElement("img");
  image.alt = described(hit);
  image.src = address;
  return image;
}

function facts(hit) {
  const told = [
    ["folder", hit.folder],
    ["taken", day(hit.taken)],
    ["size", `${number(hit.width)} × ${number(hit.height)}`],
  ];
  if (hit.span) told.push(["part", `${clock(hit.span[0])}–${clock(hit.span[1])}`]);
  told.push(["match", new Intl.NumberFormat(document.documentElement.lang,
    { maximumFractionDigits: 2, minimumFractionDigits: 2 }).format(hit.score)]);
  return told.filter(([, value]) => value).flatMap(([key, value]) => {
    const name = document.createElement("dt");
    const said = document.createElement("dd");
    name.textContent = say(key);
    said.textContent = value;
    said.dir = "auto";
    return [name, said];
  });
}
