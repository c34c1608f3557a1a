// Adding folders, scanning them, and the files that could not be read. The server offers this on
// its own machine only.

import { formatNumber, t } from "./i18n.js";
import { manage } from "./service.js";

const $ = (id) => document.getElementById(id);
const POLL_MS = 700;
const PAGE = 50; // unreadable files a request

export class Adding {
  /** `onChange` is called when the library changed, `onError(error)` when a request failed. */
  constructor(root, { onChange, onError }) {
    Object.assign(this, { root, onChange, onError });
    this.visible = false;
    this.scan = null;
    this.unreadable = [];
    $("choose").addEventListener("click", () => this.#browse());
    $("watching").addEventListener("change", () => this.#do(async () => {
      $("watching").checked = (await manage("watching", "PUT", { watching: $("watching").checked })).watching;
    }));
    $("scan-start").addEventListener("click", () => this.#do(async () => this.#follow(await manage("scan", "POST"))));
    $("scan-stop").addEventListener("click", () => this.#do(async () => this.#follow(await manage("scan", "DELETE"))));
    $("unreadable-more").addEventListener("click", () => this.#do(() => this.#loadUnreadable()));
    $("chooser-close").addEventListener("click", () => $("chooser").close());
    $("chooser-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter?.id === "chooser-add") this.#add($("chooser-path").value.trim());
      else this.#choosing(() => this.#list($("chooser-path").value.trim()));
    });
  }

  /** Show or leave the view. */
  show(visible) {
    this.visible = visible;
    clearTimeout(this.timer);
    if (!visible) return;
    this.#do(async () => {
      this.#drawFolders(await manage("folders"));
      this.#follow(await manage("scan"));
      this.unreadable = [];
      await this.#loadUnreadable();
    });
  }

  translate() {
    if (!this.visible) return;
    if (this.folders) this.#drawFolders(this.folders);
    if (this.scan) this.#drawScan();
    this.#drawUnreadable();
  }

  async #do(work) {
    try {
      await work();
    } catch (error) {
      this.onError(error);
    }
  }

  // --- folders

  #drawFolders(response) {
    this.folders = response;
    $("watching").checked = response.watching;
    $("sources").replaceChildren(...response.folders.map(({ path, files, exists }) => {
      const remove = button(t("removeFolder"), () => this.#remove(path));
      remove.setAttribute("aria-label", t("remove", { name: path }));
      return row(path, exists ? t("files", { n: files }) : t("folderMissing"), remove);
    }));
    $("sources-none").hidden = response.folders.length > 0;
  }

  async #remove(path) {
    if (!confirm(t("removeConfirm", { name: path }))) return;
    await this.#do(async () => {
      this.#drawFolders(await manage(`folders?${new URLSearchParams({ path })}`, "DELETE"));
      await this.onChange();
    });
  }

  async #add(path) {
    await this.#choosing(async () => {
      this.#drawFolders(await manage("folders", "POST", { path }));
      $("chooser").close();
      this.#follow(await manage("scan"));
    });
  }

  // --- choosing a folder

  async #browse() {
    $("chooser").showModal();
    await this.#choosing(() => this.#list(""));
  }

  async #choosing(work) {
    $("chooser-problem").textContent = "";
    try {
      await work();
    } catch (error) {
      $("chooser-problem").textContent = t(error.message in { problemFolder: 1, problemForbidden: 1 } ? error.message : "problemOther");
    }
  }

  async #list(path) {
    const query = path ? `?${new URLSearchParams({ path })}` : "";
    const { path: here, parent, directories, suggestions } = await manage(`directories${query}`);
    $("chooser-path").value = here;
    const open = ({ name, path: target }) => {
      const item = document.createElement("li");
      const choice = button(name, () => this.#choosing(() => this.#list(target)));
      choice.dir = "auto";
      item.append(choice);
      return item;
    };
    const up = parent ? [open({ name: `↑ ${t("parentFolder")}`, path: parent })] : [];
    $("chooser-suggestions").replaceChildren(...(suggestions ?? []).map(open));
    $("chooser-list").replaceChildren(...up, ...directories.map(open));
    $("chooser-list").scrollTop = 0;
  }

  // --- scanning

  /** Show a scan, and ask for its progress until it has ended. */
  #follow(scan) {
    // A scan may begin and end between two requests.
    const other = this.scan && this.scan.id !== scan.id;
    const ended = scan.state !== "scanning" && (this.scan?.state === "scanning" || other);
    this.scan = scan;
    this.#drawScan();
    clearTimeout(this.timer);
    if (scan.state === "scanning") {
      this.timer = setTimeout(() => this.visible && this.#do(async () => this.#follow(await manage("scan"))), POLL_MS);
    } else if (ended) {
      this.#do(async () => {
        await this.onChange();
        this.#drawFolders(await manage("folders"));
        this.unreadable = [];
        await this.#loadUnreadable();
      });
    }
  }

  #drawScan() {
    const { state, done, total, error } = this.scan;
    const scanning = state === "scanning";
    $("scan-start").hidden = scanning;
    $("scan-stop").hidden = $("scan-progress").hidden = !scanning;
    if (total) $("scan-progress").max = total;
    if (total) $("scan-progress").value = done;
    else $("scan-progress").removeAttribute("value");
    const words = { idle: "scanIdle", done: "scanDone", stopped: "scanStopped", failed: "scanFailed" };
    $("scan-status").textContent = scanning
      ? total ? t("scanProgress", { n: done, total: formatNumber(total) }) : t("scanLooking", { n: done })
      : [t(words[state]), state === "failed" && error].filter(Boolean).join(" ");
    const counts = [["scanAdded", "added"], ["scanChanged", "changed"], ["scanMoved", "moved"],
      ["scanRemoved", "removed"], ["scanUnchanged", "unchanged"], ["scanUnreadable", "unreadable"]];
    $("scan-counts").replaceChildren(...(state === "idle" ? [] : counts)
      .filter(([, key]) => this.scan[key])
      .map(([message, key]) => {
        const item = document.createElement("li");
        item.textContent = t(message, { n: this.scan[key] });
        return item;
      }));
  }

  // --- unreadable files

  async #loadUnreadable() {
    const query = new URLSearchParams({ offset: this.unreadable.length, limit: PAGE });
    const { total, files } = await manage(`unreadable?${query}`);
    this.unreadable.push(...files);
    this.unreadableTotal = total;
    this.#drawUnreadable();
  }

  #drawUnreadable() {
    const total = this.unreadableTotal ?? 0;
    $("unreadable").hidden = !total;
    $("unreadable-title").textContent = t("unreadable", { n: total });
    $("unreadable-list").replaceChildren(...this.unreadable.map(({ path, name, reason }) => row(path ?? name, reason)));
    $("unreadable-more").hidden = this.unreadable.length >= total;
  }
}

/** Return a line with a path, a remark and perhaps a button. */
function row(path, remark, ...buttons) {
  const item = document.createElement("li");
  const text = document.createElement("div");
  const name = document.createElement("bdi");
  const note = document.createElement("span");
  name.dir = "ltr";
  name.textContent = path;
  note.dir = "auto";
  note.textContent = remark;
  text.append(name, note);
  item.append(text, ...buttons);
  return item;
}

function button(text, onClick) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", onClick);
  return element;
}
