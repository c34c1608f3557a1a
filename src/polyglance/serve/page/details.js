// The panel of the viewer: what is known about an item, its stack and similar pictures.

import { formatBytes, formatDate, formatNumber, formatPercent, formatTime, t } from "./i18n.js";
import { details, Problem, similar, stack, thumbnailUrl } from "./service.js";
import { altText } from "./tile.js";

const $ = (id) => document.getElementById(id);

export class DetailsPanel {
  /** `onOpen(item)` opens another item; `link(parameters)` returns a link to a search. */
  constructor({ onOpen, link }) {
    Object.assign(this, { onOpen, link });
  }

  /** Show an item; similar pictures only if the panel is `open`, since they take a search. */
  show(item, open) {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    $("viewer-facts").replaceChildren(...this.#facts(item));
    this.#signals(item);
    for (const id of ["stack", "alike"]) $(id).hidden = true;
    if (!open) return;
    ignoreProblems(async () => {
      const known = await details(item.id, signal);
      if (!signal.aborted) $("viewer-facts").replaceChildren(...this.#facts({ ...known, ...item, ...known }));
    });
    if (item.stack > 1) {
      ignoreProblems(async () => this.#pictures("stack", (await stack(item.id, signal)).items, signal));
    }
    ignoreProblems(async () => this.#pictures("alike", (await similar(item.id, signal)).hits, signal));
  }

  hide() {
    this.request?.abort();
  }

  #facts(item) {
    const rows = [
      ["taken", item.taken && formatDate(item.taken)],
      ["camera", item.camera && this.link({ camera: item.camera }, item.camera)],
      ["place", item.place && this.link({ place: item.place }, item.place)],
      ["coordinates", typeof item.latitude === "number" && coordinates(item)],
      ["folder", item.folder && this.link({ folder: item.folder }, item.folder)],
      ["size", size(item)],
      ["segment", item.span && `${formatTime(item.span[0])}–${formatTime(item.span[1])}`],
      ["textInside", item.text],
      ["added", item.added && formatDate(item.added, { dateStyle: "long" })],
      ["match", match(item)],
    ];
    return rows.filter(([, value]) => value).flatMap(([key, value]) => {
      const term = document.createElement("dt");
      const definition = document.createElement("dd");
      term.textContent = t(key);
      definition.append(value);
      definition.dir = "auto";
      return [term, definition];
    });
  }

  /** List what made this a hit, with each signal's share. */
  #signals(item) {
    const total = (item.why ?? []).reduce((sum, { score }) => sum + Math.max(0, score), 0);
    const names = { picture: t("signalPicture"), name: t("signalName"), date: t("signalDate"),
      place: t("signalPlace"), text: t("signalText") };
    $("signals").replaceChildren(...(item.why ?? []).map(({ signal, text, score }) => {
      const line = document.createElement("li");
      const name = document.createElement("span");
      const value = document.createElement("bdi");
      const share = document.createElement("span");
      name.textContent = names[signal] ?? signal;
      value.textContent = text ?? "";
      share.textContent = total ? formatPercent(Math.max(0, score) / total) : "";
      line.append(name, value, share);
      return line;
    }));
  }

  #pictures(id, items, signal) {
    if (signal.aborted) return;
    $(id).hidden = items.length < (id === "stack" ? 2 : 1);
    $(id).querySelector("ul").replaceChildren(...items.map((item) => {
      const line = document.createElement("li");
      const link = this.link({ photo: item.id }, "");
      const image = document.createElement("img");
      Object.assign(image, { alt: altText(item), loading: "lazy", decoding: "async", src: thumbnailUrl(item.id) });
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        event.stopPropagation();
        this.onOpen(item);
      });
      link.append(image);
      line.append(link);
      return line;
    }));
  }
}

async function ignoreProblems(work) {
  try {
    await work();
  } catch (error) {
    // The item can be looked at without these.
    if (error.name !== "AbortError" && !(error instanceof Problem)) throw error;
  }
}

function coordinates({ latitude, longitude }) {
  const digits = (value) => formatNumber(Math.round(value * 1e5) / 1e5);
  return `${digits(latitude)}°, ${digits(longitude)}°`;
}

function size({ width, height, bytes, seconds }) {
  return [
    width && `${formatNumber(width)} × ${formatNumber(height)}`,
    bytes && formatBytes(bytes),
    seconds && formatTime(seconds),
  ].filter(Boolean).join(" · ");
}

function match({ probability, score }) {
  if (typeof probability === "number") return formatPercent(probability);
  return typeof score === "number" ? formatNumber(Math.round(score * 100) / 100) : "";
}
