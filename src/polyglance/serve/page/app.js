// The page. The search is stored in the address, and everything shown follows from it.

import { addUpload, drawChips } from "./chips.js";
import { ExplainPanel } from "./explain.js";
import { Grid } from "./grid.js";
import { language, preferredLanguage, saveSetting, setLanguage, t } from "./i18n.js";
import * as service from "./service.js";
import { Viewer } from "./viewer.js";

const $ = (id) => document.getElementById(id);
const KEYS = ["q", "not", "like", "unlike", "folder", "kind", "since", "until"];
const LIMITS = { like: 4, unlike: 4, not: 8 };
const EXAMPLES = [
  ["de", "Sonnenuntergang am See"], ["zh", "夜晚的城市"], ["ar", "قطة صغيرة"],
  ["fr", "une montagne enneigée"], ["cs", "kůň na louce"], ["pt", "um prato de comida"],
  ["ja", "木にとまる鳥"], ["en", "people making music"],
];

let search = new URLSearchParams();
let languages = [];
let libraryInfo = null;
let request = null;

const grid = new Grid($("grid"), (index) => viewer.show(index));
const explainPanel = new ExplainPanel(() => search.get("q"));
const viewer = new Viewer(() => grid.hits, {
  onClose: (index) => grid.focus(index), onAction, explainPanel,
});

// --- the search

/** Return the parameters of an address that belong to the search. */
function parseSearch(address) {
  const all = new URLSearchParams(address);
  return new URLSearchParams([...all].filter(([key, value]) => KEYS.includes(key) && value));
}

/** Start another search, and add it to the browser's history. */
function navigate(next) {
  const address = next.size ? `/?${next}` : "/";
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  return showAddress();
}

/** Run the search of the address. */
function showAddress() {
  search = parseSearch(location.search);
  $("query").value = search.get("q") ?? "";
  for (const id of ["folder", "since", "until"]) $(id).value = search.get(id) ?? "";
  for (const radio of document.getElementsByName("kind")) {
    radio.checked = radio.value === (search.get("kind") ?? "");
  }
  $("clear").hidden = ![...search.keys()].some((key) => key !== "q");
  drawChips($("chips"), search, navigate);
  const query = search.get("q");
  document.title = query ? `${query} – Polyglance` : "Polyglance";
  return runSearch();
}

/** Return the current search with the values of the form. */
function readForm() {
  const next = new URLSearchParams([...search].filter(([key]) => ["like", "unlike", "not"].includes(key)));
  const set = (key, value) => value && next.set(key, value);
  set("q", $("query").value.trim());
  set("folder", $("folder").value);
  set("since", $("since").value);
  set("until", $("until").value);
  set("kind", document.querySelector("[name=kind]:checked").value);
  const without = $("without").value.trim();
  if (without && !next.getAll("not").includes(without)) appendLimited(next, "not", without);
  $("without").value = "";
  return next;
}

/** Append a value; the oldest ones give way at the limit. */
function appendLimited(next, key, value) {
  const rest = next.getAll(key).slice(-(LIMITS[key] - 1));
  next.delete(key);
  for (const one of [...rest, value]) next.append(key, one);
}

/** Handle the buttons of the viewer: similar, add and subtract. */
async function onAction(action, hit) {
  const next = action === "similar" ? new URLSearchParams() : new URLSearchParams(search);
  appendLimited(next, action === "subtract" ? "unlike" : "like", String(hit.id));
  scrollTo({ top: 0 });
  await navigate(next);
  grid.focus(0);
}

// --- results

async function runSearch() {
  request?.abort();
  request = new AbortController();
  const { signal } = request;
  const empty = !search.has("q") && !search.has("like");
  $("welcome").hidden = !empty;
  $("status").textContent = empty ? "" : t("searching");
  $("more").hidden = true;
  if (empty) {
    $("problem").textContent = "";
    grid.clear();
    return;
  }
  const failed = await reportErrors(async () => {
    const response = await service.search(search, { signal });
    grid.clear();
    grid.add(response.hits);
    showCount(response);
  }, signal);
  if (failed) grid.clear(); // the hits of the previous search
}

async function showMore() {
  const { signal } = request;
  $("more").disabled = true;
  await reportErrors(async () => {
    const response = await service.search(search, { offset: grid.hits.length, signal });
    grid.add(response.hits);
    showCount(response);
  }, signal);
  $("more").disabled = false;
}

function showCount({ more }) {
  const n = grid.hits.length;
  $("status").textContent = n ? t(more ? "countMore" : "count", { n }) : t("nothing");
  $("more").hidden = !more;
}

/** Run `work`, show its error if there is one, and return whether it failed. */
async function reportErrors(work, signal) {
  document.body.classList.add("busy");
  $("problem").textContent = "";
  try {
    await work();
    return false;
  } catch (error) {
    if (error.name === "AbortError") return false;
    $("status").textContent = "";
    $("problem").textContent = t(error instanceof service.Problem ? error.message : "problemOther");
    if (!(error instanceof service.Problem)) console.error(error);
    return true;
  } finally {
    if (!signal?.aborted) document.body.classList.remove("busy");
  }
}

// --- search by picture

async function searchByPicture(file) {
  $("status").textContent = t("analysing");
  await reportErrors(async () => {
    const token = await service.upload(file);
    addUpload(token, file);
    const next = readForm();
    appendLimited(next, "like", token);
    await navigate(next);
  });
}

function listenForFiles() {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) searchByPicture(file);
  });
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) $("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    $("drop").hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) searchByPicture(file);
  });
  addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
    if (!file) return;
    event.preventDefault();
    searchByPicture(file);
  });
}

// --- header, welcome and filters

function drawHeader() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const label = t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[theme]);
  $("theme").textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  $("theme").title = label;
  $("theme").setAttribute("aria-label", label);
  if (libraryInfo) {
    const { pictures, clips } = libraryInfo;
    const parts = [pictures && t("pictures", { n: pictures }), clips && t("clips", { n: clips })];
    $("library-size").textContent = parts.filter(Boolean).join(" · ") || t("empty");
  }
}

function changeTheme() {
  const order = ["auto", "light", "dark"];
  const current = document.documentElement.dataset.theme ?? "auto";
  const next = order[(order.indexOf(current) + 1) % order.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  saveSetting("theme", next === "auto" ? null : next);
  drawHeader();
}

async function changeLanguage(code) {
  await setLanguage(code, languages.find((one) => one.code === code).direction);
  $("language").value = language;
  drawHeader();
  drawChips($("chips"), search, navigate);
  grid.translate();
  if (grid.hits.length) showCount({ more: !$("more").hidden });
}

function drawExamples() {
  $("examples").replaceChildren(...EXAMPLES.map(([lang, text]) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/?${new URLSearchParams({ q: text })}`;
    Object.assign(link, { lang, dir: "auto", textContent: text });
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      navigate(new URLSearchParams({ q: text }));
    });
    item.append(link);
    return item;
  }));
}

function drawFolders() {
  $("folder").append(...libraryInfo.folders.map(({ folder, files }) => {
    const depth = folder.split("/").length - 1;
    const name = `${" ".repeat(3 * depth)}${folder.split("/").at(-1)}`;
    return new Option(files ? `${name} (${files})` : name, folder);
  }));
  $("folder").value = search.get("folder") ?? "";
}

function listen() {
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(readForm());
  });
  $("form").addEventListener("change", (event) => {
    // Filters apply at once; words need Enter.
    if (event.target.matches("select, [type=radio], [type=date]")) navigate(readForm());
  });
  $("clear").addEventListener("click", () => {
    navigate(new URLSearchParams($("query").value.trim() ? { q: $("query").value.trim() } : {}));
    $("query").focus();
  });
  $("more").addEventListener("click", showMore);
  new IntersectionObserver(([entry]) => {
    if (entry.isIntersecting && !$("more").disabled && !$("more").hidden) showMore();
  }, { rootMargin: "300px" }).observe($("more"));
  $("theme").addEventListener("click", changeTheme);
  $("language").addEventListener("change", () => {
    saveSetting("language", $("language").value);
    changeLanguage($("language").value);
  });
  $("query").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || !grid.hits.length) return;
    event.preventDefault();
    grid.focus(0);
  });
  addEventListener("keydown", (event) => {
    if ($("viewer").open) return;
    const inField = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("query").select();
    } else if (event.key === "Escape" && event.target.closest?.("#grid")) {
      $("query").focus();
    }
  });
  addEventListener("popstate", () => {
    $("viewer").close();
    showAddress();
  });
}

async function start() {
  listen();
  listenForFiles();
  drawExamples();
  languages = await service.languages();
  $("language").append(...languages.map(({ code, name }) => {
    const option = new Option(name, code);
    option.lang = code;
    return option;
  }));
  await changeLanguage(preferredLanguage(languages.map(({ code }) => code)));
  const firstSearch = showAddress();
  libraryInfo = await service.library();
  explainPanel.setModels(libraryInfo);
  drawFolders();
  drawHeader();
  if (!search.size && !matchMedia("(pointer: coarse)").matches) $("query").focus();
  await firstSearch;
  document.body.dataset.ready = "yes";
}

reportErrors(start);
