// The form: words, pictures to search by, and filters.

import { appendLimited } from "./address.js";

const $ = (id) => document.getElementById(id);
const FIELDS = ["folder", "since", "until", "camera", "place"];

/** Fill the form with a search. */
export function fillForm(search, searches) {
  $("query").value = search.get("q") ?? "";
  for (const id of FIELDS) setField(id, search.get(id) ?? "");
  for (const radio of document.getElementsByName("kind")) {
    radio.checked = radio.value === (search.get("kind") ?? "");
  }
  for (const box of document.getElementsByName("signal")) {
    box.checked = !search.getAll("off").includes(box.value);
  }
  $("without").hidden = $("signal-menu").hidden = !searches;
  $("clear").hidden = ![...search.keys()].some((key) => key !== "q");
}

/** Return a search with the values of the form; `search` gives what the form does not hold. */
export function readForm(search) {
  const next = new URLSearchParams([...search].filter(([key]) => ["like", "unlike", "not", "correct"].includes(key)));
  const set = (key, value) => value && next.set(key, value);
  set("q", $("query").value.trim());
  for (const id of FIELDS) set(id, $(id).value);
  set("kind", document.querySelector("[name=kind]:checked").value);
  for (const box of document.getElementsByName("signal")) if (!box.checked) next.append("off", box.value);
  const without = $("without").value.trim();
  if (without && !next.getAll("not").includes(without)) appendLimited(next, "not", without);
  $("without").value = "";
  return next;
}

/** Offer the folders of the library. */
export function offerFolders(folders) {
  setOptions("folder", folders.map(({ folder, files }) => {
    const depth = folder.split("/").length - 1;
    const name = `${" ".repeat(3 * depth)}${folder.split("/").at(-1)}`;
    return new Option(files ? `${name} (${files})` : name, folder);
  }));
}

/** Offer the cameras and places of the library, if there are any. */
export function offerFacets({ cameras, places }) {
  for (const [id, values] of [["camera", cameras], ["place", places]]) {
    setOptions(id, values.map(({ name, files }) => new Option(`${name} (${files})`, name)));
    $(id).closest(".pill").hidden = !values.length;
  }
}

function setOptions(id, options) {
  const { value } = $(id);
  $(id).replaceChildren($(id).options[0], ...options);
  setField(id, value);
}

/** Set a field; a choice that is not offered yet is added, so that it is not lost. */
function setField(id, value) {
  const field = $(id);
  if (value && field.options && ![...field.options].some((option) => option.value === value)) {
    field.append(new Option(value.split("/").at(-1), value));
    field.closest(".pill").hidden = false;
  }
  field.value = value;
}

/** Call `onFile` with a picture that is chosen, dropped or pasted. */
export function listenForFiles(onFile) {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) onFile(file);
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
    if (file) onFile(file);
  });
  addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
    if (!file) return;
    event.preventDefault();
    onFile(file);
  });
}
