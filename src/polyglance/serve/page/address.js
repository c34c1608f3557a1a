// The page's address: the search, the view and the open picture. Everything shown follows from it.

const LISTS = ["not", "like", "unlike", "off"];
const FILTERS = ["folder", "kind", "since", "until", "camera", "place"];
const KEYS = ["q", "correct", ...LISTS, ...FILTERS];
const VIEWS = ["recent", "folders", "add"];
const LIMITS = { like: 4, unlike: 4, not: 8 };

/** Return search, view and open picture of an address's query. */
export function parseAddress(query) {
  const all = new URLSearchParams(query);
  const search = new URLSearchParams([...all].filter(([key, value]) => KEYS.includes(key) && value));
  const searches = ["q", "like", "unlike", "not"].some((key) => search.has(key));
  const view = VIEWS.includes(all.get("view")) && !searches ? all.get("view") : "";
  const photo = /^[1-9]\d{0,15}$/.test(all.get("photo") ?? "") ? Number(all.get("photo")) : null;
  return { search, searches, view, photo };
}

/** Return the address of a search in a view, with a picture open or without. */
export function formatAddress({ search = "", view = "", photo = null }) {
  const all = new URLSearchParams(search);
  if (view) all.set("view", view);
  if (photo) all.set("photo", photo);
  return all.size ? `/?${all}` : "/";
}

/** Return the parameters of a search that also a timeline knows. */
export const filtersOf = (search) =>
  new URLSearchParams([...search].filter(([key]) => FILTERS.includes(key)));

/** Append a value to a list; the oldest ones give way at the limit. */
export function appendLimited(search, key, value) {
  const rest = search.getAll(key).slice(-(LIMITS[key] - 1));
  search.delete(key);
  for (const one of [...rest, value]) search.append(key, one);
}
