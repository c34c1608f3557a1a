// Calls to the server's API. A failed call throws a `Problem` with the key of a message.

const MAX_UPLOAD_BYTES = 4_000_000;
const MAX_UPLOAD_SIDE = 1600;
const MAX_QUESTION_CHARS = 300;
const UPLOAD_TYPES = ["image/jpeg", "image/png", "image/webp", "image/gif"];

export class Problem extends Error {}

const MESSAGES = {
  401: "problemLocked",
  403: "problemForbidden",
  404: "problemGone",
  413: "problemPicture",
  415: "problemPicture",
  422: "problemQuery",
  429: "problemBusy",
  503: "problemBusy",
};

async function request(url, options, messages = MESSAGES) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("problemOffline");
  }
  if (!response.ok) throw new Problem(messages[response.status] ?? "problemOther");
  return response.status === 204 ? null : response.json();
}

/** Id of the served library: thumbnails whose address has it can be cached for good. */
let libraryId = null;

export async function library() {
  const info = await request("/api/library");
  libraryId = info.library ?? null;
  return info;
}

/** Search; `search` holds the same parameters as the page's address. */
export const search = (search, { offset = 0, limit = 60, signal } = {}) =>
  request(withParameters("/api/search", search, { limit, offset, stack: true }), { signal });

/** Return how many items there are in each month, the newest first. */
export const timeline = (filters, sort, signal) =>
  request(withParameters("/api/timeline", filters, { unit: "month", sort }), { signal });

/** Return a page of the items that a timeline counts. */
export const items = (filters, sort, { offset, limit, snapshot, signal }) =>
  request(withParameters("/api/items", filters, { sort, offset, limit, snapshot }), { signal });

/** Return the rank of an item in a timeline, or null. */
export const rank = async (id, filters, sort, snapshot) =>
  (await request(withParameters(`/api/items/${id}/neighbors`, filters, { sort, snapshot }))).rank;

export const folders = (parent, signal) =>
  request(withParameters("/api/folders", "", parent ? { parent } : {}), { signal });
export const facets = (filters) => request(withParameters("/api/facets", filters, {}));
export const item = (id) => request(`/api/items/${id}`);
export const details = (id, signal) => request(`/api/items/${id}/details`, { signal });
export const similar = (id, signal) => request(`/api/items/${id}/similar?limit=12`, { signal });
export const stack = (id, signal) => request(`/api/items/${id}/stack`, { signal });
export const reveal = (id) => request(`/api/items/${id}/reveal`, { method: "POST" });

/** Call an endpoint for adding folders, which the server offers on its own machine only. */
export function manage(endpoint, method = "GET", body = undefined) {
  const headers = body && { "content-type": "application/json" };
  const options = { method, headers, body: body && JSON.stringify(body) };
  return request(`/api/manage/${endpoint}`, options, { ...MESSAGES, 422: "problemFolder", 404: "problemFolder" });
}

function withParameters(url, search, more) {
  const parameters = new URLSearchParams(search);
  for (const [key, value] of Object.entries(more)) if (value !== undefined) parameters.set(key, value);
  return `${url}?${parameters}`;
}

/** Return which parts of a hit match each word of a query. */
export const explain = (hit, query, signal) => requestOfHit(hit, "why", query, signal);

/** Return the answers to a question about a hit. */
export const answers = (hit, question, signal) => requestOfHit(hit, "answers", question, signal);

function requestOfHit(hit, endpoint, text, signal) {
  const parameters = new URLSearchParams({ q: [...text].slice(0, MAX_QUESTION_CHARS).join("") });
  const messages = { ...MESSAGES, 422: "problemQuestion" };
  return request(`/api/items/${hit.id}/${endpoint}?${parameters}`, { signal }, messages);
}

/** Upload a picture and return the token that stands for it in searches. */
export async function upload(file) {
  const body = await shrink(file);
  const headers = { "content-type": body.type || "application/octet-stream" };
  return (await request("/api/pictures", { method: "POST", body, headers })).picture;
}

/** Scale a large picture down before uploading; return one the browser cannot read unchanged. */
async function shrink(file) {
  if (file.size <= MAX_UPLOAD_BYTES && UPLOAD_TYPES.includes(file.type)) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, MAX_UPLOAD_SIDE / Math.max(picture.width, picture.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob((blob) => done(blob ?? file), "image/jpeg", 0.9));
  } catch {
    return file;
  }
}

export const thumbnailUrl = (id, size = 256) =>
  `/api/items/${id}/thumbnail?size=${size}${libraryId ? `&v=${libraryId}` : ""}`;
export const fileUrl = (item) => `/api/items/${item.id}/${item.kind === "clip" ? "clip" : "picture"}`;
export const downloadUrl = (item) => `/api/items/${item.id}/file`;
