// The chips of a search: pictures to include or exclude, and words to exclude.

import { formatDate, t } from "./i18n.js";
import { thumbnailUrl } from "./service.js";

/** Object URLs of uploaded pictures by token, as long as the page is open. */
const uploads = new Map();

export function addUpload(token, file) {
  uploads.set(token, URL.createObjectURL(file));
}

/** Draw the chips of a search; `onChange(search)` is called with the changed search. */
export function drawChips(list, search, onChange) {
  const parts = ["like", "unlike", "not"].flatMap((key) =>
    search.getAll(key).map((value) => ({ key, value })),
  );
  list.replaceChildren(...parts.map((part) => chip(part, search, onChange)));
  list.hidden = parts.length === 0;
}

/** Say what the server understood of a query besides what it shows, and offer to undo it. */
export function drawUnderstood(box, { corrected, understood }, search, onChange) {
  const { since, until, place, without } = understood ?? {};
  const excluded = [without ?? []].flat();
  const day = (date) => (date?.length === 10 ? formatDate(`${date}T12:00:00`, { dateStyle: "medium" }) : date ?? "…");
  const notes = [
    corrected && note(t("corrected", { words: corrected }), "correct", "false"),
    (since || until) && note(t("understoodDates", { from: day(since), to: day(until) }), "off", "dates"),
    place && note(t("understoodPlace", { place }), "off", "places"),
    excluded.length && note(t("understoodWithout", { words: excluded.join(", ") })),
  ].filter(Boolean);
  box.hidden = notes.length === 0;
  box.replaceChildren(...notes);

  function note(text, key, value) {
    const item = document.createElement("li");
    const words = document.createElement("bdi");
    words.textContent = text;
    item.append(words);
    if (!key) return item;
    const undo = button("×", t("remove", { name: text }));
    undo.addEventListener("click", () => {
      const next = new URLSearchParams(search);
      next.append(key, value);
      onChange(next);
    });
    item.append(undo);
    return item;
  }
}

function chip({ key, value }, search, onChange) {
  const included = key === "like";
  const item = document.createElement("li");
  item.className = `chip ${included ? "included" : "excluded"}`;
  const name = key === "not" ? value : t("aPicture");
  if (key === "not") {
    const words = document.createElement("span");
    words.dir = "auto";
    words.textContent = `− ${value}`;
    item.append(words);
  } else {
    const sign = button(included ? "+" : "−", t(included ? "included" : "excluded"));
    sign.className = "sign";
    sign.addEventListener("click", () => {
      const next = without(search, key, value);
      next.append(included ? "unlike" : "like", value);
      onChange(next);
    });
    item.append(sign, thumbnail(value));
  }
  const remove = button("×", t("remove", { name }));
  remove.className = "remove";
  remove.addEventListener("click", () => onChange(without(search, key, value)));
  item.append(remove);
  return item;
}

function thumbnail(value) {
  const url = /^\d+$/.test(value) ? thumbnailUrl(value) : uploads.get(value);
  const image = document.createElement("img");
  image.alt = t("aPicture");
  image.src = url ?? "/favicon.svg"; // uploaded before the page was reloaded
  return image;
}

function button(text, label) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.title = label;
  element.setAttribute("aria-label", label);
  return element;
}

/** Return a search without one of its parts. */
function without(search, key, value) {
  const rest = [...search].filter(([otherKey, other]) => otherKey !== key || other !== value);
  return new URLSearchParams(rest);
}
