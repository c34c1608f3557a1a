// Where every tile of the grid lies: justified rows below the headings of their sections.
//
// Pure arithmetic on typed arrays, so that 100,000 items are laid out in a few milliseconds and
// rows are found by binary search while scrolling.

export const GAP = 4;
const HEADING = 52;
const FIRST_HEADING = 40;
const NARROWEST = 24;
const MAX_HEIGHT = 16_000_000; // browsers clip elements that are higher

/** Return the height that rows aim at in a grid of some width. */
export const targetHeight = (width) => (width < 600 ? 118 : width < 1100 ? 168 : 196);

/** Clip width by height, so that no tile fills a row or vanishes. */
export const clippedRatio = (ratio) => Math.min(3, Math.max(0.5, ratio || 1));

/**
 * Lay out sections of items in rows of equal width.
 *
 * `sections` have a `count` and, if they show a heading, a `label`; `ratios` holds width by height
 * of all items, section after section. Rows are numbered from 0, headings included.
 */
export function layoutRows(sections, ratios, width, target = targetHeight(width)) {
  const left = new Float32Array(ratios.length);
  const widths = new Float32Array(ratios.length);
  const rows = { top: [], height: [], first: [], count: [], section: [] };
  let top = 0;
  const push = (height, first, count, section) => {
    rows.top.push(top);
    rows.height.push(height);
    rows.first.push(first);
    rows.count.push(count);
    rows.section.push(section);
    top += height + (count ? GAP : 0);
  };
  let start = 0;
  sections.forEach(({ count, label }, section) => {
    if (label) push(section ? HEADING : FIRST_HEADING, start, 0, section);
    const stop = start + count;
    for (let first = start; first < stop; ) {
      const last = endOfRow(ratios, first, stop, width, target);
      push(placeRow(ratios, first, last, width, target, left, widths), first, last - first, section);
      first = last;
    }
    start = stop;
  });
  // The height grows with the square of the rows' height: a million pictures get lower rows.
  const smaller = target * Math.sqrt(MAX_HEIGHT / top) * 0.98;
  if (top > MAX_HEIGHT && smaller > NARROWEST) return layoutRows(sections, ratios, width, smaller);
  return { ...rows, left, widths, width, total: top };
}

/** Return where the row that begins with an item ends: at the height closest to the target. */
function endOfRow(ratios, first, stop, width, target) {
  let sum = 0;
  let before = Infinity;
  for (let i = first; i < stop; i++) {
    sum += ratios[i];
    const height = (width - GAP * (i - first)) / sum;
    if (height <= target) return i > first && before - target < target - height ? i : i + 1;
    before = height;
  }
  return stop;
}

/** Set left edges and widths of a row's items; return its height. */
function placeRow(ratios, first, last, width, target, left, widths) {
  let sum = 0;
  for (let i = first; i < last; i++) sum += ratios[i];
  const exact = (width - GAP * (last - first - 1)) / sum;
  const justified = exact <= target * 1.35; // the last row of a section may stay short
  const height = Math.max(NARROWEST, Math.floor(justified ? exact : target));
  let x = 0;
  for (let i = first; i < last; i++) {
    left[i] = x;
    // The last tile takes the rounding error, so that all rows end at the same edge.
    const end = justified && i === last - 1;
    widths[i] = end ? width - x : Math.max(NARROWEST, Math.floor(ratios[i] * height));
    x += widths[i] + GAP;
  }
  return height;
}

/** Return the row that contains a height, or the closest one. */
export function rowAt(rows, y) {
  return Math.max(0, upperBound(rows.top, y) - 1);
}

/** Return the row of an item. */
export function rowOf(rows, item) {
  return Math.max(0, upperBound(rows.first, item) - 1); // a heading's row comes before its items
}

/** Return the item in a row whose middle is closest to a position. */
export function closestItem(rows, row, x) {
  let best = rows.first[row];
  for (let i = best; i < rows.first[row] + rows.count[row]; i++) {
    const distance = (item) => Math.abs(rows.left[item] + rows.widths[item] / 2 - x);
    if (distance(i) < distance(best)) best = i;
  }
  return best;
}

/** Return the index of the first value of a sorted array that is greater. */
function upperBound(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}
