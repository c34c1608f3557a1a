// Where the arrow keys, Home, End and the page keys lead in a grid.

import { closestItem, rowAt, rowOf } from "./layout.js";

/** Return the item that a key leads to from another, or null; `height` is that of a page. */
export function itemByKey(rows, index, key, ctrl, height) {
  const row = rowOf(rows, index);
  const forward = document.documentElement.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
  switch (key) {
    case "ArrowLeft":
    case "ArrowRight":
      return index + (key === forward ? 1 : -1);
    case "ArrowDown":
      return vertically(rows, index, row, 1);
    case "ArrowUp":
      return vertically(rows, index, row, -1);
    case "PageDown":
    case "PageUp": {
      const step = (key === "PageDown" ? 0.9 : -0.9) * height;
      const to = rowAt(rows, Math.max(0, rows.top[row] + step));
      return vertically(rows, index, to - Math.sign(step), Math.sign(step));
    }
    case "Home":
      return ctrl ? 0 : rows.first[row];
    case "End":
      return ctrl ? rows.left.length - 1 : rows.first[row] + rows.count[row] - 1;
    default:
      return null;
  }
}

/** Return the closest item in the next row of items from a row on. */
function vertically(rows, index, row, step) {
  const x = rows.left[index] + rows.widths[index] / 2;
  for (let to = row + step; to >= 0 && to < rows.top.length; to += step) {
    if (rows.count[to]) return closestItem(rows, to, x);
  }
  return index;
}
