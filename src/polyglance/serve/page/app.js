// The page: what is asked stands in the address, and everything that is shown follows from it.

import { drawChips, rememberUpload } from "./chips.js";
import { CloserLook } from "./explain.js";
import { Grid } from "./grid.js";
import * as service from "./service.js";
import { language, preferred, remember, say, speak } from "./i18n.js";
import { Viewer } from "./viewer.js";

const $ = (id) => document.getElementById(id);
const KEYS = ["q", "not", "like", "unlike", "folder", "kind", "since", "until"];
const MOST = { like: 4, unlike: 4, not: 8 };
const EXAMPLES = [
  ["de", "Sonnenuntergang am See"], ["zh", "夜晚的城市"], ["ar", "قطة صغيرة"],
  ["fr", "une montagne enneigée"], ["cs", "kůň na louce"], ["pt", "um prato de comida"],
  ["ja", "木にとまる鳥"], ["en", "people making music"],
];

let asked = new URLSearchParams();
let languages = [];
let holdings = null;
let running = null;

const grid = new Grid($("grid"), (index) => viewer.show(index));
const closer = new CloserLook(() => asked.get("q"));
const viewer = new Viewer(() => grid.hits, { closed: (index) => grid.focus(index), act, closer });

// --- what is asked

/** The parts of an address that are a search. */
function searchIn(address) {
  const there = new URLSearchParams(address);
  return new URLSearchParams([...there].filter(([key, value]) => KEYS.includes(key) && value));
}

/** Search for something else, and let the back button lead to what was before. */
function ask(next) {
  const address = next.size ? `/?${next}` : "/";
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  return follow();
}

/** Show what the address asks for. */
function follow() {
  asked = searchIn(location.search);
  $("words").value = asked.get("q") ?? "";
  for (const id of ["folder", "since", "until"]) $(id).value = asked.get(id) ?? "";
  for (const radio of document.getElementsByName("kind")) {
    radio.checked = radio.value === (asked.get("kind") ?? "");
  }
  $("clear").hidden = ![...asked.keys()].some((key) => key !== "q");
  drawChips($("chips"), asked, ask);
  const named = asked.get("q");
  document.title = named ? `${named} – Polyglance` : "Polyglance";
  return run();
}

/** The search of the address with what the form says now. */
function fromForm() {
  const next = new URLSearchParams([...asked].filter(([key]) => ["like", "unlike", "not"].includes(key)));
  const set = (key, value) => value && next.set(key, value);
  set("q", $("words").value.trim());
  set("folder", $("folder").value);
  set("since", $("since").value);
  set("until", $("until").value);
  set("kind", document.querySelector("[name=kind]:checked").value);
  const without = $("without").value.trim();
  if (without && !next.getAll("not").includes(without)) append(next, "not", without);
  $("without").value = "";
  return next;
}

function append(next, key, value) {
  const kept = next.getAll(key).slice(-(MOST[key] - 1));
  next.delete(key);
  for (const one of [...kept, value]) next.append(key, one);
}

/** What the buttons under a hit do. */
async function act(action, hit) {
  const next = action === "similar" ? new URLSearchParams() : new URLSearchParams(asked);
  append(next, action === "subtract" ? "unlike" : "like", String(hit.id));
  scrollTo({ top: 0 });
  await ask(next);
  grid.focus(0);
}

// --- answers

async function run() {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const nothing = !asked.has("q") && !asked.has("like");
  $("welcome").hidden = !nothing;
  $("status").textContent = nothing ? "" : say("searching");
  $("more").hidden = true;
  if (nothing) {
    $("problem").textContent = "";
    grid.clear();
    return;
  }
  const failed = await guarded(async () => {
    const answer = await service.search(asked, { signal });
    grid.clear();
    grid.add(answer.hits);
    tellCount(answer);
  }, signal);
  if (failed) grid.clear(); // what is still there answers another question
}

async function showMore() {
  const { signal } = running;
  $("more").disabled = true;
  await guarded(async () => {
    const answer = await service.search(asked, { offset: grid.hits.length, signal });
    grid.add(answer.hits);
    tellCount(answer);
  }, signal);
  $("more").disabled = false;
}

function tellCount(answer) {
  const n = grid.hits.length;
  $("status").textContent = n ? say(answer.more ? "countMore" : "count", { n }) : say("nothing");
  $("more").hidden = !answer.more;
}

/** Do something; what goes wrong is said where everybody finds it. Whether it did. */
async function guarded(work, signal) {
  document.body.classList.add("busy");
  $("problem").textContent = "";
  try {
    await work();
    return false;
  } catch (error) {
    if (error.name === "AbortError") return false;
    $("status").textContent = "";
    $("problem").textContent = say(error instanceof service.Problem ? error.message : "problemOther");
    if (!(error instanceof service.Problem)) console.error(error);
    return true;
  } finally {
    if (!signal?.aborted) document.body.classList.remove("busy");
  }
}

// --- pictures from outside

async function searchByPicture(file) {
  $("status").textContent = say("reading");
  await guarded(async () => {
    const picture = await service.upload(file);
    rememberUpload(picture, file);
    const next = fromForm();
    append(next, "like", picture);
    await ask(next);
  });
}

function listenForPictures() {
  const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) searchByPicture(file);
  });
  addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) $("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    $("drop").hidden = true;
    if (!isFile(event)) return;
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

// --- the frame around

function drawFrame() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const label = say({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[theme]);
  $("theme").textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  $("theme").title = label;
  $("theme").setAttribute("aria-label", label);
  if (holdings) {
    const { pictures, clips } = holdings;
    const parts = [pictures && say("pictures", { n: pictures }), clips && say("clips", { n: clips })];
    $("holdings").textContent = parts.filter(Boolean).join(" · ") || say("empty");
  }
}

function changeTheme() {
  const order = ["auto", "light", "dark"];
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = order[(order.indexOf(now) + 1) % order.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("theme", next === "auto" ? null : next);
  drawFrame();
}

async function changeLanguage(code) {
  await speak(code, languages.find((one) => one.code === code).direction);
  $("language").value = language;
  drawFrame();
  drawChips($("chips"), asked, ask);
  grid.translate();
  if (grid.hits.length) tellCount({ more: !$("more").hidden });
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
      ask(new URLSearchParams({ q: text }));
    });
    item.append(link);
    return item;
  }));
}

function drawFolders() {
  $("folder").append(...holdings.folders.map(({ folder, files }) => {
    const depth = folder.split("/").length - 1;
    const name = `${" ".repeat(3 * depth)}${folder.split("/").at(-1)}`;
    return new Option(files ? `${name} (${files})` : name, folder);
  }));
  $("folder").value = asked.get("folder") ?? "";
}

function listen() {
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(fromForm());
  });
  $("form").addEventListener("change", (event) => {
    // Words wait for Enter; filters work at once.
    if (event.target.matches("select, [type=radio], [type=date]")) ask(fromForm());
  });
  $("clear").addEventListener("click", () => {
    ask(new URLSearchParams($("words").value.trim() ? { q: $("words").value.trim() } : {}));
    $("words").focus();
  });
  $("more").addEventListener("click", showMore);
  new IntersectionObserver(([seen]) => {
    if (seen.isIntersecting && !$("more").disabled && !$("more").hidden) showMore();
  }, { rootMargin: "300px" }).observe($("more"));
  $("theme").addEventListener("click", changeTheme);
  $("language").addEventListener("change", () => {
    remember("language", $("language").value);
    changeLanguage($("language").value);
  });
  $("words").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || !grid.hits.length) return;
    event.preventDefault();
    grid.focus(0);
  });
  addEventListener("keydown", (event) => {
    if ($("viewer").open) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("words").select();
    } else if (event.key === "Escape" && event.target.closest?.("#grid")) {
      $("words").focus();
    }
  });
  addEventListener("popstate", () => {
    $("viewer").close();
    follow();
  });
}

async function begin() {
  listen();
  listenForPictures();
  drawExamples();
  languages = await service.languages();
  $("language").append(...languages.map(({ code, name }) => {
    const option = new Option(name, code);
    option.lang = code;
    return option;
  }));
  await changeLanguage(preferred(languages.map(({ code }) => code)));
  const found = follow();
  holdings = await service.library();
  closer.offer(holdings);
  drawFolders();
  drawFrame();
  if (!asked.size && !matchMedia("(pointer: coarse)").matches) $("words").focus();
  await found;
  document.body.dataset.ready = "yes";
}

guarded(begin);
