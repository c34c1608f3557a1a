// Zooming and swiping on the stage of the viewer, by wheel, pinch, double click and drag.

const MAX_SCALE = 8;
const DOUBLE_CLICK_SCALE = 2.5;
const SWIPE = 60; // pixels

export class Zoom {
  /** `onSwipe(step)` is called for a swipe to the next (1) or previous (-1), `onDismiss` for one down. */
  constructor(stage, { onSwipe, onDismiss, onZoom }) {
    this.stage = stage;
    Object.assign(this, { onSwipe, onDismiss, onZoom });
    this.frame = null;
    this.pointers = new Map();
    this.scale = 1;
    stage.addEventListener("wheel", (event) => {
      if (!this.frame) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.clientX, event.clientY);
    }, { passive: false });
    stage.addEventListener("dblclick", (event) => this.frame && this.toggle(event.clientX, event.clientY));
    stage.addEventListener("pointerdown", (event) => this.#down(event));
    stage.addEventListener("pointermove", (event) => this.#drag(event));
    for (const type of ["pointerup", "pointercancel"]) {
      stage.addEventListener(type, (event) => this.#up(event, type === "pointerup"));
    }
  }

  /** Zoom another element from now on; null for one that cannot be zoomed. */
  attach(frame) {
    this.frame = frame;
    this.pointers.clear();
    this.#set(1, 0, 0);
  }

  /** Multiply the scale, keeping a point of the window where it is. */
  zoomBy(factor, clientX, clientY) {
    if (!this.frame) return;
    const box = this.stage.getBoundingClientRect();
    const x = (clientX ?? box.left + box.width / 2) - box.left - box.width / 2;
    const y = (clientY ?? box.top + box.height / 2) - box.top - box.height / 2;
    const scale = Math.min(MAX_SCALE, Math.max(1, this.scale * factor));
    const ratio = scale / this.scale;
    this.#set(scale, x - (x - this.x) * ratio, y - (y - this.y) * ratio);
  }

  toggle(clientX, clientY) {
    this.zoomBy(this.scale > 1 ? 1 / this.scale : DOUBLE_CLICK_SCALE, clientX, clientY);
  }

  #set(scale, x, y) {
    const box = this.stage.getBoundingClientRect();
    const limit = (size) => ((scale - 1) * size) / 2;
    const clip = (value, most) => Math.min(most, Math.max(-most, value));
    this.scale = scale;
    this.x = clip(x, limit(box.width));
    this.y = clip(y, limit(box.height));
    this.stage.classList.toggle("zoomed", scale > 1);
    if (this.frame) {
      this.frame.style.transform = scale > 1
        ? `translate(${this.x}px, ${this.y}px) scale(${scale})` : "";
    }
    this.onZoom?.(scale);
  }

  #down(event) {
    if (event.button || event.target.closest("button, a, video")) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.stage.setPointerCapture(event.pointerId);
    this.start = { x: event.clientX, y: event.clientY, many: this.pointers.size > 1 };
  }

  #drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    if (this.pointers.size === 2 && this.frame) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const distance = (at) => Math.hypot(at.x - other.x, at.y - other.y) || 1;
      this.zoomBy(distance(now) / distance(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else if (this.scale > 1) {
      this.#set(this.scale, this.x + now.x - before.x, this.y + now.y - before.y);
    } else if (this.frame && !this.start.many) {
      const dx = now.x - this.start.x;
      const dy = Math.max(0, now.y - this.start.y);
      const sideways = Math.abs(dx) > dy;
      this.frame.style.transform = sideways ? `translateX(${dx}px)` : `translateY(${dy}px)`;
    }
    this.pointers.set(event.pointerId, now);
  }

  #up(event, finished) {
    if (!this.pointers.delete(event.pointerId) || this.scale > 1) return;
    const dx = event.clientX - this.start.x;
    const dy = event.clientY - this.start.y;
    if (this.frame) this.frame.style.transform = "";
    if (!finished || this.start.many) return;
    const rtl = document.documentElement.dir === "rtl";
    if (Math.abs(dx) > SWIPE && Math.abs(dx) > 1.5 * Math.abs(dy)) this.onSwipe(dx < 0 !== rtl ? 1 : -1);
    else if (dy > 1.5 * SWIPE && dy > 1.5 * Math.abs(dx)) this.onDismiss();
  }
}
