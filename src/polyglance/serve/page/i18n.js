// The interface in the user's language: messages, numbers, dates and text direction.

const FALLBACK = "en";
let messages = {};
let requested = FALLBACK;
export let language = FALLBACK;

/** Return the initial language: the one chosen before, or the browser's first that is available. */
export function preferredLanguage(available) {
  const tags = [getSetting("language"), ...navigator.languages].filter(Boolean);
  const codes = tags.map((tag) => tag.toLowerCase().split("-")[0]);
  return codes.find((code) => available.includes(code)) ?? FALLBACK;
}

/** Show the page in a language; of several calls at once the last one wins. */
export async function setLanguage(code, direction) {
  requested = code;
  const loaded = await (await fetch(`/messages/${code}.json`)).json();
  if (requested !== code) return;
  messages = loaded;
  language = code;
  document.documentElement.lang = code;
  document.documentElement.dir = direction;
  translate(document);
}

/** Return a message with its placeholders filled, in the plural form for the number `n`. */
export function t(key, values = {}) {
  let text = messages[key] ?? key;
  if (typeof text === "object") {
    text = text[format(Intl.PluralRules, language).select(values.n)] ?? text.other;
  }
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? formatNumber(values[name]) : values[name],
  );
}

/** Fill in the messages that elements name: as text, label, placeholder or tooltip. */
export function translate(root) {
  for (const element of root.querySelectorAll("[data-text]")) {
    element.textContent = t(element.dataset.text);
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", t(element.dataset.label));
  }
  for (const element of root.querySelectorAll("[data-placeholder]")) {
    element.placeholder = t(element.dataset.placeholder);
  }
  for (const element of root.querySelectorAll("[data-tip]")) {
    element.title = t(element.dataset.tip);
  }
}

const formats = new Map();

/** Return a format of `Intl`, the same for the same arguments: to create one takes long. */
function format(Format, tag, options) {
  const key = `${Format.name} ${tag} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new Format(tag, options));
  return formats.get(key);
}

export const formatNumber = (value) => format(Intl.NumberFormat, language).format(value);

export const formatPercent = (share) =>
  format(Intl.NumberFormat, language, { style: "percent" }).format(share);

/** Format a date and time as the camera's clock showed it, whatever the browser's time zone. */
export function formatDate(taken, style = { dateStyle: "full", timeStyle: "short" }) {
  // The order of day and month is the region's; the digits are those of all other numbers.
  const region = navigator.languages.find((tag) => tag.split("-")[0] === language) ?? language;
  const options = { ...style, numberingSystem: "latn" };
  return format(Intl.DateTimeFormat, region, options).format(new Date(taken.slice(0, 19)));
}

/** Format a month such as 2024-07. */
const formatMonth = (month) =>
  formatDate(`${month}-15T12:00:00`, { month: "long", year: "numeric" });

/** Format a month, or a day such as 2024-07-31. */
export const formatPeriod = (date) =>
  date.length > 7 ? formatDate(`${date}T12:00:00`, { dateStyle: "long" }) : formatMonth(date);

export const formatYear = (date) => formatDate(`${date.slice(0, 7)}-15T12:00:00`, { year: "numeric" });

/** Format a number of bytes in the largest unit below it. */
export function formatBytes(bytes) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  const power = Math.min(3, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const style = { style: "unit", unit: units[power], maximumSignificantDigits: 3 };
  return format(Intl.NumberFormat, language, style).format(bytes / 1000 ** power);
}

/** Format seconds as m:ss or h:mm:ss. */
export function formatTime(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60];
  if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

/** Return a setting saved in the browser, or null. */
export function getSetting(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function saveSetting(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // Without storage the setting lasts until the page is closed.
  }
}
