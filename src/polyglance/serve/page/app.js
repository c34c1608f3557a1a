// The page. The address says what is shown: a search, a view, and the open picture.

import { appendLimited, filtersOf, formatAddress, parseAddress } from "./address.js";
import { addUpload, drawChips, drawUnderstood } from "./chips.js";
import { drawFolders, drawTrail } from "./folders.js";
import { fillForm, listenForFiles, offerFacets, offerFolders, readForm } from "./form.js";
import { Grid } from "./grid.js";
import { drawTheme, drawExamples, listenForSettings } from "./header.js";
import { language, preferredLanguage, setLanguage, t } from "./i18n.js";
import { Scrubber } from "./scrubber.js";
import * as service from "./service.js";
import { HitSource, TimelineSource } from "./sources.js";

const $ = (id) => document.getElementById(id);
const TITLES = { recent: "viewRecent", folders: "viewFolders", add: "viewAdd" };
const RELOAD_MS = 3000;
const FIRST_PICTURES_MS = 800;

const state = { address: parseAddress(""), source: null };
let shown = null; // the address without its picture, as it is drawn
let libraryInfo = null;
let request = new AbortController();
let early = null; // the first timeline, loaded while the page gets its texts
let panels = null; // the viewer and adding, loaded after the first pictures
let panelsLoading = null;

const scrubber = new Scrubber($("scrubber"), {
  onJump: (share) => grid.scrollToShare(share), onSection: (index) => grid.scrollToSection(index),
});
const grid = new Grid($("grid"), {
  onOpen: async (index) => (await loadPanels()).photo.open(state.source.item(index), index),
  onLayout: (sections, starts) => scrubber.setSections(sections, starts),
  onScroll: (section, share) => scrubber.show(section, share),
});

function loadPanels() {
  panelsLoading ??= import("./panels.js").then(({ createPanels }) => {
    panels = createPanels(state, {
      grid, link: searchLink, onAction, onAddress: showAddress, onChange: loadLibrary,
      onError: showError, onMore: showMore, onReport: reportErrors,
    });
    if (libraryInfo) panels.explain.setModels(libraryInfo);
    return panels;
  });
  return panelsLoading;
}

// --- the address

/** Go to another search or view, and add it to the browser's history. */
function navigate(next) {
  const target = formatAddress(next);
  if (target !== location.pathname + location.search) {
    history.replaceState({ ...history.state, scroll: scrollY }, "");
    history.pushState(null, "", target);
    scrollTo({ top: 0 });
  }
  return showAddress();
}

const navigateTo = (search) => navigate({ search });

/** Show what the address says. */
async function showAddress() {
  const address = parseAddress(location.search);
  const base = formatAddress({ ...address, photo: null });
  state.address = address;
  if (base !== shown) {
    if (!address.photo) panels?.viewer.close();
    shown = base;
    drawAddress();
    await showView();
    if (shown === base && history.state?.scroll) scrollTo({ top: history.state.scroll });
  }
  return address.photo ? (await loadPanels()).photo.show(address.photo) : panels?.photo.hide();
}

function drawAddress() {
  const { search, searches, view } = state.address;
  fillForm(search, searches);
  drawChips($("chips"), search, navigateTo);
  for (const link of $("views").querySelectorAll("a")) {
    if (link.dataset.view === view && !searches) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const folder = search.get("folder");
  const title = searches ? t("results") : t(TITLES[view] ?? (folder ? "folder" : "viewPhotos"));
  $("title").textContent = folder && !searches ? folder.split("/").at(-1) : title;
  drawTrail($("trail"), !searches && !view ? folder : null);
  const query = search.get("q");
  document.title = query || view || folder ? `${query ?? $("title").textContent} – Polyglance` : "Polyglance";
}

/** Return a link to a search, for the panel of the viewer. */
function searchLink({ photo, ...parameters }, text) {
  const link = document.createElement("a");
  link.href = formatAddress({ search: new URLSearchParams(parameters), photo });
  link.textContent = text;
  return link;
}

// --- the views

async function showView() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const { searches, view, search } = state.address;
  const browses = !searches && view !== "add" && view !== "folders";
  const hidden = {
    filters: view === "add" || view === "folders", grid: view === "add" || view === "folders",
    cards: true, fold: true, more: true, "nothing-fits": true, welcome: true, note: true,
    try: !browses || view !== "" || search.size > 0, adding: view !== "add", scrubber: true,
  };
  for (const [id, value] of Object.entries(hidden)) $(id).hidden = value;
  $("status").textContent = searches ? t("searching") : "";
  if (view !== "add") panels?.adding.show(false);
  const failed = await reportErrors(async () => {
    if (view === "add") {
      setSource(null);
      (await loadPanels()).adding.show(!signal.aborted);
    } else if (view === "folders") {
      setSource(null);
      await drawFolders($("cards"), null, signal);
    } else if (searches) {
      const hits = new HitSource(search);
      await hits.more(signal);
      if (signal.aborted) return;
      setSource(hits);
      showHits();
    } else await showTimeline(signal);
  }, signal);
  if (failed) setSource(null); // what the previous address showed
}

async function showTimeline(signal) {
  const { search, view } = state.address;
  const folder = search.get("folder");
  const opened = early ?? openTimeline(state.address, signal);
  early = null;
  const [timeline] = await Promise.all([
    opened,
    folder && view === "" ? drawFolders($("cards"), folder, signal) : null,
  ]);
  if (signal.aborted) return;
  timeline.onStale = () => setTimeout(() => state.source === timeline && reloadTimeline(), RELOAD_MS);
  setSource(timeline);
  $("status").textContent = timeline.length ? t("items", { n: timeline.length }) : "";
  if (!timeline.length && !search.size) showWelcome();
  else if (!timeline.length) $("status").textContent = t("nothingHere");
}

const openTimeline = ({ search, view }, signal) =>
  TimelineSource.open(filtersOf(search), view === "recent" ? "added" : "taken", signal);

/** Show the timeline of a library that changed, where the user is. */
async function reloadTimeline() {
  const top = scrollY;
  await reportErrors(() => showTimeline(request.signal), request.signal);
  scrollTo({ top });
}

/** Show what was added while the page was in the background. */
async function refreshTimeline(timeline) {
  const fresh = await timeline.isFresh().catch(() => true);
  if (!fresh && state.source === timeline && !panels?.viewer.open) reloadTimeline();
}

function setSource(next) {
  state.source = next;
  if (panels) panels.photo.position = -1;
  grid.setSource(next ?? new HitSource());
}

function showWelcome() {
  $("welcome").hidden = false;
  $("try").hidden = true;
  $("welcome-text").textContent = t(libraryInfo?.manages ? "emptyLocal" : "empty");
  $("welcome-add").hidden = !libraryInfo?.manages;
}

// --- the hits of a search

function showHits() {
  const n = state.source.length;
  const unfit = state.source.fits === false && state.source.folded;
  $("nothing-fits").hidden = !unfit;
  drawUnderstood($("note"), state.source.answer, state.address.search, navigateTo);
  if (unfit) $("status").textContent = t("nothingFits");
  else $("status").textContent = n ? t(state.source.continues ? "countMore" : "count", { n }) : t("nothing");
  $("fold").hidden = !state.source.folded || !state.source.hits.length;
  $("more").hidden = !state.source.continues;
  if (state.source.continues) watchMore();
}

async function showMore() {
  const { signal } = request;
  const hits = state.source;
  $("more").disabled = true;
  await reportErrors(async () => {
    await hits.more(signal);
    if (state.source !== hits) return;
    grid.extend();
    showHits();
  }, signal);
  $("more").disabled = false;
}

function unfold() {
  const first = state.source.length;
  state.source.unfold();
  grid.extend();
  showHits();
  grid.focus(first);
}

const moreObserver = new IntersectionObserver(([entry]) => {
  if (entry.isIntersecting && !$("more").disabled && !$("more").hidden) showMore();
}, { rootMargin: "600px" });

/** Load more when the button comes near the window, also if it is there already. */
function watchMore() {
  moreObserver.unobserve($("more"));
  moreObserver.observe($("more"));
}

/** Handle the buttons of the viewer: similar, add and subtract. */
async function onAction(action, item) {
  const search = action === "similar" ? new URLSearchParams() : new URLSearchParams(state.address.search);
  appendLimited(search, action === "subtract" ? "unlike" : "like", String(item.id));
  await navigateTo(search);
  panels.viewer.close();
  grid.focus(0);
}

// --- errors and the library

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
    showError(error);
    return true;
  } finally {
    if (!signal?.aborted) document.body.classList.remove("busy");
  }
}

function showError(error) {
  $("problem").textContent = t(error instanceof service.Problem ? error.message : "problemOther");
  if (!(error instanceof service.Problem)) console.error(error);
}

async function searchByPicture(file) {
  $("status").textContent = t("analysing");
  await reportErrors(async () => {
    const token = await service.upload(file);
    addUpload(token, file);
    const search = readForm(state.address.search);
    appendLimited(search, "like", token);
    await navigateTo(search);
  });
}

/** Show what the page says about the library. */
async function loadLibrary(info = service.library()) {
  libraryInfo = await info;
  panels?.explain.setModels(libraryInfo);
  offerFolders(libraryInfo.folders);
  $("views").querySelector('[data-view="add"]').hidden = !libraryInfo.manages;
  $("reveal").hidden = !libraryInfo.manages;
  drawLibrary();
  offerFacets(await service.facets(""));
}

function drawLibrary() {
  if (!libraryInfo) return;
  const { pictures, clips } = libraryInfo;
  const parts = [pictures && t("pictures", { n: pictures }), clips && t("clips", { n: clips })];
  $("library-size").textContent = parts.filter(Boolean).join(" · ");
  if (!$("welcome").hidden) showWelcome();
}

async function changeLanguage(code) {
  await setLanguage(code, [...$("language").options].find(({ value }) => value === code).dir);
  $("language").value = language;
  drawTheme();
  drawLibrary();
  if (shown === null) return;
  drawAddress();
  grid.translate();
  scrubber.translate();
  panels?.viewer.translate();
  panels?.adding.translate();
  if (state.source instanceof HitSource) showHits();
  else if (state.source?.length) $("status").textContent = t("items", { n: state.source.length });
}

function listen() {
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    navigateTo(readForm(state.address.search));
  });
  for (const field of [$("form"), $("filters")]) {
    field.addEventListener("change", (event) => {
      // Filters apply at once; words need Enter.
      if (!event.target.matches("select, [type=radio], [type=checkbox], [type=date]")) return;
      const view = state.address.view === "recent" && !$("query").value.trim() ? "recent" : "";
      navigate({ search: readForm(state.address.search), view });
    });
  }
  $("clear").addEventListener("click", () => {
    const q = $("query").value.trim();
    navigate({ search: new URLSearchParams(q ? { q } : {}), view: state.address.view });
    $("query").focus();
  });
  $("more").addEventListener("click", showMore);
  $("unfold").addEventListener("click", unfold);
  $("query").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || !grid.length) return;
    event.preventDefault();
    grid.focus(0);
  });
  addEventListener("keydown", (event) => {
    if (panels?.viewer.open) return;
    const inField = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("query").select();
    } else if (event.key === "Escape" && event.target.closest?.("#grid")) {
      $("query").focus({ preventScroll: true });
    }
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && state.source instanceof TimelineSource) refreshTimeline(state.source);
  });
  document.addEventListener("click", followLinks);
  addEventListener("popstate", showAddress);
}

/** Follow links to this page without loading it again. */
function followLinks(event) {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.target || link.hasAttribute("download") || link.pathname !== "/") return;
  event.preventDefault();
  navigate(parseAddress(link.search));
}

async function start() {
  history.scrollRestoration = "manual";
  listen();
  listenForFiles(searchByPicture);
  listenForSettings(changeLanguage);
  drawExamples($("examples"));
  const first = parseAddress(location.search);
  if (!first.searches && (first.view === "" || first.view === "recent")) {
    early = openTimeline(first);
    early.catch(() => {}); // reported when it is shown
  }
  const info = service.library();
  await changeLanguage(preferredLanguage([...$("language").options].map(({ value }) => value)));
  await info; // its id is part of the addresses of pictures
  await showAddress();
  await grid.pictures.shown(FIRST_PICTURES_MS); // all else comes after them
  await Promise.all([loadPanels(), loadLibrary(info)]);
  document.body.dataset.ready = "yes";
}

reportErrors(start);
