// What the first pictures do not need, and is loaded after them: the viewer, and adding folders.

import { Adding } from "./adding.js";
import { DetailsPanel } from "./details.js";
import { ExplainPanel } from "./explain.js";
import { OpenPhoto } from "./photo.js";
import { Viewer } from "./viewer.js";

/** Create them; `state` has `address` and `source`, and the functions are those of the page. */
export function createPanels(state, { grid, link, onAction, onAddress, onChange, onError, onMore, onReport }) {
  const explain = new ExplainPanel(() => state.address.search.get("q"));
  const details = new DetailsPanel({ onOpen: (item) => photo.open(item, -1), link });
  const viewer = new Viewer({
    onStep: (by) => photo.step(by), onClose: () => photo.close(), onAction, onReport,
    panels: [details, explain],
  });
  const photo = new OpenPhoto(state, { viewer, grid, onAddress, onMore, onReport });
  const adding = new Adding(document.getElementById("adding"), { onChange, onError });
  return { adding, explain, photo, viewer };
}
