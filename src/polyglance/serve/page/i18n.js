// The interface in the reader's language: messages, numbers, dates, and which way it runs.

const FALLBACK = "en";
let messages = {};
let wanted = FALLBACK;
export let language = FALLBACK;

/** The language to begin with: chosen before, or the first that the browser asks for. */
export function preferred(known) {
  const asked = [remembered("language"), ...navigator.languages].filter(Boolean);
  const codes = asked.map((tag) => tag.toLowerCase().split("-")[0]);
  return codes.find((code) => known.includes(code)) ?? FALLBACK;
}

/** Show the page in a language; of several wishes at once the last one counts. */
export async function speak(code, direction) {
  wanted = code;
  const read = await (await fetch(`/messages/${code}.json`)).json();
  if (wanted !== code) return;
  messages = read;
  language = code;
  document.documentElement.lang = code;
  document.documentElement.dir = direction;
  translate(document);
}

/** A message with its places filled; of several forms, that which fits the number `n`. */
export function say(key, places = {}) {
  let text = messages[key] ?? key;
  if (typeof text === "object") {
    text = text[new Intl.PluralRules(language).select(places.n)] ?? text.other;
  }
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof places[name] === "number" ? number(places[name]) : places[name],
  );
}

/** Write messages where elements say which: as text, label, placeholder or tip. */
export function translate(root) {
  for (const element of root.querySelectorAll("[data-text]")) {
    element.textContent = say(element.dataset.text);
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", say(element.dataset.label));
  }
  for (const element of root.querySelectorAll("[data-placeholder]")) {
    element.placeholder = say(element.dataset.placeholder);
  }
  for (const element of root.querySelectorAll("[data-tip]")) {
    element.title = say(element.dataset.tip);
  }
}

export const number = (value) => new Intl.NumberFormat(language).format(value);

export const day = (taken) =>
  new Intl.DateTimeFormat(language, { dateStyle: "long" }).format(new Date(taken));

/** Seconds as a clock shows them. */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

/** What was chosen before, where the browser keeps such things. */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // It lasts until the page is closed, then.
  }
}
