// The scale beside the timeline: years along the height of the window, a handle that says which
// month is in view, and jumps to any other.

import { formatPeriod, formatYear } from "./i18n.js";

const MIN_DISTANCE = 26; // pixels between years
const HIDE_MS = 1500;

export class Scrubber {
  /** `onJump(share)` scrolls to a share of the height, `onSection(index)` to a section. */
  constructor(root, { onJump, onSection }) {
    this.root = root;
    Object.assign(this, { onJump, onSection });
    this.sections = [];
    this.starts = []; // of the sections, as shares of the height
    this.section = 0;
    this.scale = root.querySelector(".scale");
    this.handle = root.querySelector(".handle");
    root.addEventListener("pointerdown", (event) => {
      root.setPointerCapture(event.pointerId);
      this.dragging = true;
      root.classList.add("dragging");
      this.#jump(event);
      event.preventDefault();
      this.handle.focus({ preventScroll: true });
    });
    root.addEventListener("pointermove", (event) => this.dragging && this.#jump(event));
    for (const type of ["pointerup", "pointercancel"]) {
      root.addEventListener(type, () => {
        this.dragging = false;
        root.classList.remove("dragging");
      });
    }
    this.handle.addEventListener("keydown", (event) => this.#step(event));
    this.height = 0; // measured here only, since that would force a layout while scrolling
    new ResizeObserver(() => {
      this.height = root.clientHeight;
      this.#drawYears();
      this.#moveHandle();
    }).observe(root);
  }

  /** Show sections that begin at shares of the height; an empty list hides the scale. */
  setSections(sections, starts) {
    this.sections = sections.filter((section) => section.date);
    this.starts = starts;
    this.root.hidden = this.sections.length < 2;
    this.translate();
  }

  /** Show which section is in view, and how far the page is scrolled from 0 to 1. */
  show(section, share) {
    if (this.root.hidden || !this.sections[section]) return;
    if (section !== this.section) {
      this.section = section;
      const text = formatPeriod(this.sections[section].date);
      this.handle.firstElementChild.textContent = text;
      this.handle.setAttribute("aria-valuetext", text);
      this.handle.setAttribute("aria-valuenow", section);
      this.handle.setAttribute("aria-valuemax", this.sections.length - 1);
    }
    if (share !== this.share) {
      this.share = share;
      this.#moveHandle();
    }
    if (this.waking) clearTimeout(this.waking);
    else this.root.classList.add("awake");
    this.waking = setTimeout(() => {
      this.root.classList.remove("awake");
      this.waking = 0;
    }, HIDE_MS);
  }

  #moveHandle() {
    this.handle.style.transform = `translateY(${Math.min(1, this.share ?? 0) * this.height}px)`;
  }

  translate() {
    const section = Math.max(0, this.section);
    this.section = -1;
    this.#drawYears();
    this.show(section, this.share ?? 0);
  }

  #jump(event) {
    const box = this.root.getBoundingClientRect();
    this.onJump(Math.min(1, Math.max(0, (event.clientY - box.top) / box.height)));
  }

  #step(event) {
    const last = this.sections.length - 1;
    const target = {
      ArrowDown: this.section + 1, ArrowRight: this.section + 1, ArrowUp: this.section - 1,
      ArrowLeft: this.section - 1, PageDown: this.section + 12, PageUp: this.section - 12,
      Home: 0, End: last,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    let section = Math.min(last, Math.max(0, target));
    // Small sections lie beside each other: go on to one in another row.
    while (target > this.section && section < last && this.starts[section] === this.starts[this.section]) {
      section++;
    }
    this.onSection(section);
  }

  #drawYears() {
    const { height } = this;
    const years = [];
    let year = null;
    let lowest = -Infinity;
    this.sections.forEach(({ date }, i) => {
      if (date.slice(0, 4) === year) return;
      year = date.slice(0, 4);
      const y = Math.min(1, this.starts[i]) * height;
      if (y - lowest < MIN_DISTANCE || y > height - MIN_DISTANCE / 2) return;
      lowest = y;
      const mark = document.createElement("span");
      mark.textContent = formatYear(date);
      mark.style.transform = `translateY(${y}px)`;
      years.push(mark);
    });
    this.scale.replaceChildren(...years);
  }
}
