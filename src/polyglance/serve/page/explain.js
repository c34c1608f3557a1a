// A closer look at a hit, where the service has models for it: why it was found, and questions.

import { answers, Problem, thumbnail, why } from "./service.js";
import { language, say } from "./i18n.js";

const $ = (id) => document.getElementById(id);
const LONGEST_SIDE = 640;
const DARK = 0.8;

export class CloserLook {
  /** `query()` are the words of the search, if it has any. */
  constructor(query) {
    this.query = query;
    this.hit = null;
    this.known = { explains: false, answers: [] };
    $("why-open").addEventListener("click", () => this.#explain());
    $("question").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask($("question-words").value.trim());
    });
  }

  /** What the service can be asked. */
  offer({ explains, answers }) {
    this.known = { explains, answers };
  }

  /** Another hit; what was said of the one before goes. */
  show(hit) {
    this.running?.abort();
    this.hit = hit;
    $("why").hidden = !this.known.explains || !this.query();
    $("why-open").setAttribute("aria-expanded", "false");
    $("why-words").replaceChildren();
    $("question").hidden = !this.known.answers.length;
    $("question-words").value = "";
    $("answers").replaceChildren();
    $("why-said").textContent = $("question-said").textContent = "";
    const names = new Intl.DisplayNames(language, { type: "language" });
    const spoken = new Intl.ListFormat(language).format(this.known.answers.map((one) => names.of(one)));
    $("question-languages").textContent = say("askLanguages", { languages: spoken });
  }

  async #explain() {
    if ($("why-words").children.length) {
      this.#light(null);
      $("why-words").replaceChildren();
      $("why-open").setAttribute("aria-expanded", "false");
      return;
    }
    const found = await this.#wait($("why-said"), (signal) => why(this.hit, this.query(), signal));
    if (!found) return;
    const buttons = found.words.map((look) => this.#word(look));
    $("why-words").replaceChildren(...buttons);
    $("why-open").setAttribute("aria-expanded", "true");
    // Something is lit at once: of words that look somewhere, the longest says most.
    const lengths = found.words.map((look) => (brightest(look) ? look.word.length : 0));
    buttons[lengths.indexOf(Math.max(...lengths))]?.click();
  }

  #word(look) {
    const button = document.createElement("button");
    button.type = "button";
    button.dir = "auto";
    button.textContent = look.word;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      for (const other of $("why-words").children) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(pressed));
      this.#light(pressed ? look : null);
    });
    return button;
  }

  /** Show where a word looks: bright on a picture that is dark elsewhere. If nowhere, it is said. */
  #light(look) {
    $("stage").querySelector(".lit")?.remove();
    $("why-said").textContent = look ? described(look) : "";
    if (!look || !brightest(look)) return;
    const lit = document.createElement("div");
    lit.className = "lit";
    if (this.hit.kind === "clip") {
      $("stage").querySelector("video")?.pause();
      const frame = document.createElement("img");
      frame.src = thumbnail(this.hit.id, LONGEST_SIDE);
      frame.alt = "";
      lit.append(frame);
    }
    lit.append(shade(look.cells, this.hit));
    $("stage").append(lit);
  }

  async #ask(question) {
    if (!question) return;
    $("answers").replaceChildren();
    const found = await this.#wait($("question-said"), (signal) => answers(this.hit, question, signal));
    if (!found) return;
    $("question-said").textContent = "";
    const share = new Intl.NumberFormat(language, { style: "percent" });
    $("answers").replaceChildren(...found.answers.map(({ text, language: spoken, probability }) => {
      const item = document.createElement("li");
      const said = document.createElement("bdi");
      Object.assign(said, { lang: spoken, textContent: text });
      const likely = document.createElement("span");
      likely.textContent = share.format(probability);
      item.append(said, likely);
      return item;
    }));
  }

  /** Wait for an answer that is still wanted; what goes wrong is said where it was asked. */
  async #wait(status, work) {
    this.running?.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    if (this.status !== status && this.status) this.status.textContent = "";  // waits no more
    this.status = status;
    status.textContent = say("reading");
    try {
      const found = await work(signal);
      return signal.aborted ? null : found;
    } catch (error) {
      if (signal.aborted) return null;
      status.textContent = say(error instanceof Problem ? error.message : "problemOther");
      return null;
    }
  }
}

/** Darkness over a picture, less where cells are bright; in the picture's shape. */
function shade(cells, { width, height }) {
  const small = document.createElement("canvas");
  small.width = cells[0].length;
  small.height = cells.length;
  const pixels = new ImageData(small.width, small.height);
  cells.flat().forEach((light, i) => {
    pixels.data[4 * i + 3] = 255 * DARK * (1 - light);
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  const scale = LONGEST_SIDE / Math.max(width, height);
  const large = document.createElement("canvas");
  large.width = Math.max(1, Math.round(width * scale));
  large.height = Math.max(1, Math.round(height * scale));
  const pen = large.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(small, 0, 0, large.width, large.height);
  return large;
}

/** What the cell that a word looks at most is to it; 0 where it looks nowhere. */
function brightest({ cells }) {
  return Math.max(...cells.flat());
}

/** Where a word looks, for those who do not see it. */
function described({ word, cells }) {
  const most = brightest({ cells });
  if (!most) return say("whyNowhere", { word });
  const y = cells.findIndex((row) => row.includes(most));
  const middle = (place, count) => Math.round((100 * (place + 0.5)) / count);
  return say("whyMost", {
    word, x: middle(cells[y].indexOf(most), cells[y].length), y: middle(y, cells.length),
  });
}
