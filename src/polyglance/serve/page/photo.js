// The open picture and the browser's history: every picture has its own address, and Back closes it.

import { formatAddress } from "./address.js";
import { item as loadItem } from "./service.js";

export class OpenPhoto {
  /**
   * `state` has `address` and `source`; `onAddress()` shows the address after a change of it,
   * `onMore()` loads more hits, and `onReport(work)` shows errors.
   */
  constructor(state, { viewer, grid, onAddress, onMore, onReport }) {
    Object.assign(this, { state, viewer, grid, onAddress, onMore, onReport });
    this.position = -1; // in the source; -1 if it is not there or not known yet
  }

  get id() {
    return this.state.address.photo;
  }

  #address(photo) {
    return formatAddress({ ...this.state.address, photo });
  }

  /** Open an item at its own address. */
  open(item, index) {
    if (!item) return;
    // How many entries back the page without a picture is; unknown if it was opened by a link.
    const known = !this.id || history.state?.depth;
    const depth = (history.state?.depth ?? 0) + 1;
    if (!this.id) history.replaceState({ ...history.state, scroll: scrollY }, "");
    history.pushState(known ? { depth, index } : { index }, "", this.#address(item.id));
    this.#set(item, index);
    if (index < 0) this.#locate(item);
  }

  /** Show the picture of the address. */
  async show(id) {
    await this.onReport(async () => {
      const index = history.state?.index ?? -1;
      const known = this.state.source?.item(index);
      const there = known?.id === id;
      const item = there ? known : await loadItem(id);
      if (this.id !== id) return;
      this.#set(item, there ? index : -1);
      if (!there) await this.#locate(item);
    });
  }

  /** Show the item before (-1) or after (1) the open one. */
  async step(by) {
    const { source } = this.state;
    if (this.position < 0) return;
    let index = this.position + by;
    if (index >= source.length && source.continues) await this.onMore();
    let item = null;
    for (; index >= 0 && index < source.length; index += by) {
      item = await source.get(index);
      if (item) break; // otherwise it was deleted
    }
    if (!item || this.position < 0) return;
    history.replaceState({ ...history.state, index }, "", this.#address(item.id));
    this.#set(item, index);
  }

  /** Close the picture, as Back does. */
  close() {
    const depth = history.state?.depth;
    if (depth) {
      history.go(-depth); // `popstate` hides it
      return;
    }
    history.replaceState(null, "", this.#address(null));
    this.onAddress();
  }

  /** Draw the page without a picture, and focus the one that was open. */
  hide() {
    if (!this.viewer.open) return;
    this.viewer.close();
    if (this.position >= 0 && this.position < this.grid.length) this.grid.focus(this.position);
  }

  /** Find an item among those of the view, so that there is a previous and a next one. */
  async #locate(item) {
    const { source } = this.state;
    const index = source ? await source.locate(item).catch(() => -1) : -1;
    if (this.id === item.id) this.#set(source?.item(index) ?? item, index);
  }

  #set(item, index) {
    const { source, address } = this.state;
    this.position = index;
    this.state.address = { ...address, photo: item.id };
    const next = index >= 0 && (index < source.length - 1 || source.continues === true);
    this.viewer.show(item, { previous: index > 0, next });
  }
}
