// The header's settings, and examples of searches.

import { saveSetting, t } from "./i18n.js";

const $ = (id) => document.getElementById(id);
const EXAMPLES = [
  ["de", "Sonnenuntergang am See"], ["zh", "夜晚的城市"], ["ar", "قطة صغيرة"],
  ["fr", "une montagne enneigée"], ["cs", "kůň na louce"], ["pt", "um prato de comida"],
  ["ja", "木にとまる鳥"], ["en", "people making music"],
];
const ICONS = {
  auto: "M12 3.500a8.500 8.500 0 1 0 0 17Zm0 0a8.500 8.500 0 0 1 0 17",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8Zm0-5v1.500m0 15V21m9-9h-1.500m-15 0H3m15.400-6.400-1 1m-10.800 10.800-1 1m12.800 0-1-1M6.600 6.600l-1-1",
  dark: "M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10Z",
};

/** Show which theme is on. */
export function drawTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const label = t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[theme]);
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  icon.setAttribute("viewBox", "0 0 24 24");
  icon.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[theme]);
  icon.append(path);
  $("theme").replaceChildren(icon);
  $("theme").title = label;
  $("theme").setAttribute("aria-label", label);
}

function changeTheme() {
  const order = ["auto", "light", "dark"];
  const current = document.documentElement.dataset.theme ?? "auto";
  const next = order[(order.indexOf(current) + 1) % order.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  saveSetting("theme", next === "auto" ? null : next);
  drawTheme();
}

/** Listen to the choices of theme and language. */
export function listenForSettings(onLanguage) {
  $("theme").addEventListener("click", changeTheme);
  $("language").addEventListener("change", () => {
    saveSetting("language", $("language").value);
    onLanguage($("language").value);
  });
}

export function drawExamples(list) {
  list.replaceChildren(...EXAMPLES.map(([lang, text]) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/?${new URLSearchParams({ q: text })}`;
    Object.assign(link, { lang, dir: "auto", textContent: text });
    item.append(link);
    return item;
  }));
}
