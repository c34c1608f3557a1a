// What a search holds besides its words: pictures it is like or not like, and words it is not.

import { thumbnail } from "./service.js";
import { say } from "./i18n.js";

/** Where the browser still has an uploaded picture, by the text that stands for it. */
const uploads = new Map();

export function rememberUpload(picture, file) {
  uploads.set(picture, URL.createObjectURL(file));
}

/** Draw the chips of a search; `changed(search)` is called with what it becomes. */
export function drawChips(list, asked, changed) {
  const parts = ["like", "unlike", "not"].flatMap((kind) =>
    asked.getAll(kind).map((value) => ({ kind, value })),
  );
  list.replaceChildren(...parts.map((part) => chip(part, asked, changed)));
  list.hidden = parts.length === 0;
}

function chip({ kind, value }, asked, changed) {
  const item = document.createElement("li");
  item.className = `chip ${kind === "like" ? "wanted" : "unwanted"}`;
  const name = kind === "not" ? value : say("aPicture");
  if (kind === "not") {
    const words = document.createElement("span");
    words.dir = "auto";
    words.textContent = `− ${value}`;
    item.append(words);
  } else {
    const sign = button(kind === "like" ? "+" : "−", say(kind === "like" ? "wanted" : "unwanted"));
    sign.className = "sign";
    sign.addEventListener("click", () => {
      const next = without(asked, kind, value);
      next.append(kind === "like" ? "unlike" : "like", value);
      changed(next);
    });
    item.append(sign, small(value));
  }
  const remove = button("×", say("remove", { name }));
  remove.className = "remove";
  remove.addEventListener("click", () => changed(without(asked, kind, value)));
  item.append(remove);
  return item;
}

function small(value) {
  const address = /^\d+$/.test(value) ? thumbnail(value) : uploads.get(value);
  const image = document.createElement("img");
  image.alt = say("aPicture");
  image.src = address ?? "/favicon.svg"; // one that was dropped before the page was loaded anew
  return image;
}

function button(sign, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = sign;
  made.title = label;
  made.setAttribute("aria-label", label);
  return made;
}

/** A search less one of its parts. */
function without(asked, kind, value) {
  const kept = [...asked].filter(([key, other]) => key !== kind || other !== value);
  return new URLSearchParams(kept);
}
