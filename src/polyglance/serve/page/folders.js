// Folders as cards with a picture of each, and the way back up.

import { formatAddress } from "./address.js";
import { t } from "./i18n.js";
import { folders, thumbnailUrl } from "./service.js";

/** Draw the folders below a folder, or the indexed ones; return how many there are. */
export async function drawFolders(list, parent, signal) {
  const response = await folders(parent, signal);
  if (signal.aborted) return 0;
  list.replaceChildren(...response.folders.map(card));
  list.hidden = response.folders.length === 0;
  return response.folders.length;
}

function card({ folder, name, files, cover }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = formatAddress({ search: new URLSearchParams({ folder }) });
  link.className = "card";
  const image = document.createElement(cover ? "img" : "span");
  image.className = "cover";
  if (cover) Object.assign(image, { alt: "", loading: "lazy", decoding: "async", src: thumbnailUrl(cover) });
  const title = document.createElement("span");
  title.className = "card-title";
  title.dir = "auto";
  title.textContent = name;
  const count = document.createElement("span");
  count.className = "card-count";
  count.textContent = files ? t("files", { n: files }) : "";
  link.append(image, title, count);
  item.append(link);
  return item;
}

/** Draw the folders that lead to a folder. */
export function drawTrail(nav, folder) {
  nav.hidden = !folder;
  if (!folder) return;
  const parts = folder.split("/");
  const links = [anchor(formatAddress({ view: "folders" }), t("viewFolders"))];
  parts.forEach((part, i) => {
    const path = parts.slice(0, i + 1).join("/");
    const link = anchor(formatAddress({ search: new URLSearchParams({ folder: path }) }), part);
    if (i === parts.length - 1) link.setAttribute("aria-current", "page");
    links.push(link);
  });
  nav.replaceChildren(...links);
}

function anchor(href, text) {
  const link = document.createElement("a");
  Object.assign(link, { href, textContent: text, dir: "auto" });
  return link;
}
