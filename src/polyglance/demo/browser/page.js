// The page: load the model, search while typing, add own pictures.

import { BrowserModel, Gallery } from "./search.js";

const COUNT = 12;
const form = document.querySelector("form");
const field = document.querySelector("#query");
const hits = document.querySelector("#hits");
const status = document.querySelector("#status");
const files = document.querySelector("#files");

function show(photo) {
  const item = document.createElement("li");
  const picture = document.createElement("img");
  picture.src = photo.source;
  picture.alt = photo.title;
  const caption = document.createElement("p");
  caption.textContent = `${photo.score.toFixed(2)} · ${photo.title}`;
  const credit = document.createElement("small");
  credit.textContent = photo.credit;
  item.append(picture, caption, credit);
  return item;
}

async function start() {
  const model = await BrowserModel.load();
  const gallery = await Gallery.load(model.settings.width);
  let latest = 0;

  async function search() {
    const number = ++latest;
    const text = field.value.trim();
    if (!text) return hits.replaceChildren();
    const began = performance.now();
    const found = gallery.search(await model.encodeText(text), COUNT);
    if (number !== latest) return; // another search has begun
    hits.replaceChildren(...found.map(show));
    const time = Math.round(performance.now() - began);
    status.textContent = `${gallery.photos.length} pictures searched in ${time} ms`;
  }

  for (const text of model.settings.queries) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.dir = "auto";
    button.addEventListener("click", () => {
      field.value = text;
      search();
    });
    document.querySelector("#examples").append(button);
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  files.addEventListener("change", async () => {
    for (const file of files.files) {
      status.textContent = `Encoding ${file.name} …`;
      try {
        const vector = await model.encodePicture(file);
        gallery.add({ source: URL.createObjectURL(file), title: file.name, credit: "" }, vector);
      } catch (error) {
        status.textContent = `${file.name} cannot be read: ${error.message}`;
        return;
      }
    }
    status.textContent = `${gallery.photos.length} pictures`;
    search();
  });
  field.disabled = files.disabled = false;
  status.textContent = `${gallery.photos.length} pictures`;
  document.body.dataset.ready = "";
}

start().catch((error) => {
  status.textContent = `The model cannot be loaded: ${error.message}`;
});
