// Explanations of a hit and questions about it, if the server has models for them.

import { language, t } from "./i18n.js";
import { answers, explain, Problem, thumbnailUrl } from "./service.js";

const $ = (id) => document.getElementById(id);
const MAX_SIDE = 640;
const SHADE = 0.8;

export class ExplainPanel {
  /** `query()` returns the words of the search, if any. */
  constructor(query) {
    this.query = query;
    this.hit = null;
    this.models = { explains: false, answers: [] };
    $("why-open").addEventListener("click", () => this.#toggleExplanation());
    $("question").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask($("question-words").value.trim());
    });
  }

  /** Set which models the server has. */
  setModels({ explains, answers }) {
    this.models = { explains, answers };
  }

  /** Show the panels for another hit. */
  show(hit) {
    this.request?.abort();
    this.hit = hit;
    $("why").hidden = !this.query() || !(this.models.explains || hit.why?.length);
    $("why-open").hidden = !this.models.explains;
    $("why-open").setAttribute("aria-expanded", "false");
    $("why-words").replaceChildren();
    $("question").hidden = !this.models.answers.length;
    $("question-words").value = "";
    $("answers").replaceChildren();
    $("why-status").textContent = $("question-status").textContent = "";
    const names = new Intl.DisplayNames(language, { type: "language" });
    const languages = this.models.answers.map((code) => names.of(code));
    $("question-languages").textContent = t("askLanguages", {
      languages: new Intl.ListFormat(language).format(languages),
    });
  }

  async #toggleExplanation() {
    if ($("why-words").children.length) {
      this.#highlight(null);
      $("why-words").replaceChildren();
      $("why-open").setAttribute("aria-expanded", "false");
      return;
    }
    const explanation = await this.#load($("why-status"), (signal) =>
      explain(this.hit, this.query(), signal));
    if (!explanation) return;
    const buttons = explanation.words.map((attribution) => this.#wordButton(attribution));
    $("why-words").replaceChildren(...buttons);
    $("why-open").setAttribute("aria-expanded", "true");
    // Begin with the longest word that has an attribution: it usually carries the most meaning.
    const lengths = explanation.words.map((one) => (maximum(one.cells) ? one.word.length : 0));
    buttons[lengths.indexOf(Math.max(...lengths))]?.click();
  }

  #wordButton(attribution) {
    const button = document.createElement("button");
    button.type = "button";
    button.dir = "auto";
    button.textContent = attribution.word;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      for (const other of $("why-words").children) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(pressed));
      this.#highlight(pressed ? attribution : null);
    });
    return button;
  }

  /** Darken the picture except where it matches the word; describe that in the status as well. */
  #highlight(attribution) {
    $("stage").querySelector(".highlight")?.remove();
    $("why-status").textContent = attribution ? description(attribution) : "";
    if (!attribution || !maximum(attribution.cells)) return;
    const highlight = document.createElement("div");
    highlight.className = "highlight";
    if (this.hit.kind === "clip") {
      $("stage").querySelector("video")?.pause();
      const frame = document.createElement("img");
      frame.src = thumbnailUrl(this.hit.id, MAX_SIDE);
      frame.alt = "";
      highlight.append(frame);
    }
    highlight.append(mask(attribution.cells, this.hit));
    $("stage").querySelector(".frame").append(highlight);
  }

  async #ask(question) {
    if (!question) return;
    $("answers").replaceChildren();
    const response = await this.#load($("question-status"), (signal) =>
      answers(this.hit, question, signal));
    if (!response) return;
    $("question-status").textContent = "";
    const percent = new Intl.NumberFormat(language, { style: "percent" });
    $("answers").replaceChildren(...response.answers.map((answer) => {
      const item = document.createElement("li");
      const text = document.createElement("bdi");
      Object.assign(text, { lang: answer.language, textContent: answer.text });
      const probability = document.createElement("span");
      probability.textContent = percent.format(answer.probability);
      item.append(text, probability);
      return item;
    }));
  }

  /** Await a response; return null if another request replaced it or it failed. */
  async #load(status, send) {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    // The other panel's request was aborted, so its progress message goes.
    if (this.status !== status && this.status) this.status.textContent = "";
    this.status = status;
    status.textContent = t("analysing");
    try {
      const response = await send(signal);
      return signal.aborted ? null : response;
    } catch (error) {
      if (signal.aborted) return null;
      status.textContent = t(error instanceof Problem ? error.message : "problemOther");
      return null;
    }
  }
}

/** Return a canvas of the picture's shape that is dark where the attribution is low. */
function mask(cells, { width, height }) {
  const small = document.createElement("canvas");
  small.width = cells[0].length;
  small.height = cells.length;
  const pixels = new ImageData(small.width, small.height);
  cells.flat().forEach((value, i) => {
    pixels.data[4 * i + 3] = 255 * SHADE * (1 - value);
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  const scale = MAX_SIDE / Math.max(width, height);
  const large = document.createElement("canvas");
  large.width = Math.max(1, Math.round(width * scale));
  large.height = Math.max(1, Math.round(height * scale));
  const context = large.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, large.width, large.height);
  return large;
}

/** Return the highest attribution; 0 if the word has none. */
function maximum(cells) {
  return Math.max(...cells.flat());
}

/** Say in words where the attribution is highest, for users who do not see it. */
function description({ word, cells }) {
  const best = maximum(cells);
  if (!best) return t("whyNone", { word });
  const row = cells.findIndex((values) => values.includes(best));
  const centre = (index, count) => Math.round((100 * (index + 0.5)) / count);
  return t("whyBest", {
    word, x: centre(cells[row].indexOf(best), cells[row].length), y: centre(row, cells.length),
  });
}
