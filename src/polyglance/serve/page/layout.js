// Where every tile of the grid lies: justified rows below the headings of their sections.
//
// Pure arithmetic on typed arrays, so that 100,000 items are laid out in a few milliseconds and
// rows are found by binary search while scrolling.

export const GAP = 4;
const HEADING = 52;
const FIRST_HEADING = 40;
const NARROWEST = 24;
const MIN_RATIO = 0.5;
const SECTION_GAP = 28; // between small sections in one row
const HEADING_WIDTH = 150; // of a small section
const MAX_HEIGHT = 16_000_000; // browsers clip elements that are higher

/** Return the height that rows aim at in a grid of some width. */
export const targetHeight = (width) => (width < 600 ? 118 : width < 1100 ? 168 : 196);

/** Clip width by height, so that no tile fills a row or vanishes. */
export const clippedRatio = (ratio) => Math.min(3, Math.max(MIN_RATIO, ratio || 1));

/**
 * Lay out sections of items in rows of equal width.
 *
 * `sections` have a `count` and, if they show a heading, a `label`; `ratios` holds width by height
 * of all items, section after section. Rows are numbered from 0, headings included. Small sections
 * with headings share a row: the heading's row then has those from `section` to `lastSection`.
 */
export function layoutRows(sections, ratios, width, target = targetHeight(width)) {
  const left = new Float32Array(ratios.length);
  const widths = new Float32Array(ratios.length);
  const rows = { top: [], height: [], first: [], count: [], section: [], lastSection: [] };
  const headings = { row: [], left: [], width: [] }; // by section
  let top = 0;
  const push = (height, first, count, section, lastSection = section) => {
    rows.top.push(top);
    rows.height.push(height);
    rows.first.push(first);
    rows.count.push(count);
    rows.section.push(section);
    rows.lastSection.push(lastSection);
    top += height + (count ? GAP : 0);
  };
  let start = 0;
  for (let section = 0; section < sections.length; ) {
    const band = bandFrom(sections, ratios, section, start, width, target);
    const end = section + Math.max(1, band.length);
    for (let i = section; i < end; i++) headings.row[i] = rows.top.length;
    if (sections[section].label) push(section ? HEADING : FIRST_HEADING, start, 0, section, end - 1);
    if (band.length > 1) {
      const stop = band.at(-1).stop;
      push(placeBand(band, ratios, width, target, left, widths), start, stop - start, section, end - 1);
      band.forEach(({ start: first, stop: last }, i) => {
        headings.left[section + i] = left[first];
        headings.width[section + i] = (last < stop ? left[last] : width) - left[first] - SECTION_GAP / 2;
      });
      start = stop;
    } else {
      headings.left[section] = 0;
      headings.width[section] = width;
      const stop = start + sections[section].count;
      const height = evenHeight(ratios, start, stop, width, target);
      for (let first = start; first < stop; ) {
        const last = endOfRow(ratios, first, stop, width, height);
        push(placeRow(ratios, first, last, width, target, left, widths), first, last - first, section);
        first = last;
      }
      start = stop;
    }
    section = end;
  }
  // The height grows with the square of the rows' height: a million pictures get lower rows.
  const smaller = target * Math.sqrt(MAX_HEIGHT / top) * 0.98;
  if (top > MAX_HEIGHT && smaller > NARROWEST) return layoutRows(sections, ratios, width, smaller);
  return { ...rows, headings, left, widths, width, total: top };
}

/** Return the sections from one on that fit beside each other in one row, with their items. */
function bandFrom(sections, ratios, section, start, width, target) {
  const band = [];
  let used = 0;
  for (let i = section; i < sections.length && sections[i].label; i++) {
    const stop = start + sections[i].count;
    if (sections[i].count > width / (target * MIN_RATIO)) break;
    let sum = 0;
    for (let item = start; item < stop; item++) sum += ratios[item];
    const own = Math.max(HEADING_WIDTH, sum * target + GAP * (sections[i].count - 1));
    used += own + (band.length ? SECTION_GAP : 0);
    if (used > width) break;
    band.push({ start, stop, own, sum });
    start = stop;
  }
  return band;
}

/** Place small sections beside each other; return the row's height. */
function placeBand(band, ratios, width, target, left, widths) {
  const items = band.at(-1).stop - band[0].start;
  const gaps = SECTION_GAP * (band.length - 1) + GAP * (items - band.length);
  const sum = band.reduce((total, section) => total + section.sum, 0);
  const used = band.reduce((total, section) => total + section.own, SECTION_GAP * (band.length - 1));
  // Nearly full: a little higher, so that it ends at the edge.
  const exact = Math.floor((width - gaps) / sum);
  const full = exact <= target * 1.35 && used >= width * 0.72;
  const height = full ? Math.max(exact, NARROWEST) : Math.floor(target);
  let x = 0;
  for (const section of band) {
    const begin = x;
    for (let i = section.start; i < section.stop; i++) {
      left[i] = x;
      widths[i] = Math.max(NARROWEST, Math.floor(ratios[i] * height));
      x += widths[i] + GAP;
    }
    x = Math.max(x - GAP, begin + (full ? 0 : HEADING_WIDTH)) + SECTION_GAP;
  }
  return height;
}

/** Return the height near the target at which the last row of a section is as full as the others. */
function evenHeight(ratios, start, stop, width, target) {
  let sum = 0;
  for (let i = start; i < stop; i++) sum += ratios[i];
  const rows = Math.max(1, Math.round((sum * target + GAP * (stop - start)) / (width + GAP)));
  const height = (rows * (width + GAP) - GAP * (stop - start)) / sum;
  return Math.min(1.25 * target, Math.max(0.66 * target, height));
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
