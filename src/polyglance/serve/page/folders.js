// Folders as cards with a picture of each, and the way back up.

import { formatAddress } from "./address.js";
import { t } from "./i18n.js";
import { folders, thumbnailUrl } from "./service.js";

/** Draw the folders below a folder, or the indexed ones. */
export async function drawFolders(list, parent, signal) {
  let { folders: found } = await folders(parent, signal);
  // A single indexed folder alone would be an empty page.
  if (!parent && found.length === 1) found = [...found, ...(await folders(found[0].folder, signal)).folders];
  if (signal.aborted) return;
  list.replaceChildren(...found.map(card));
  list.hidden = found.length === 0;
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
