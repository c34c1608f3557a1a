// Calls to the server's API. A failed call throws a `Problem` with the key of a message.

const MAX_UPLOAD_BYTES = 4_000_000;
const MAX_UPLOAD_SIDE = 1600;
const MAX_QUESTION_CHARS = 300;
const UPLOAD_TYPES = ["image/jpeg", "image/png", "image/webp", "image/gif"];

export class Problem extends Error {}

const MESSAGES = {
  401: "problemLocked",
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
  return response.json();
}

export const library = () => request("/api/library");
export const languages = () => request("/api/languages");

/** Search; `search` holds the same parameters as the page's address. */
export function search(search, { offset = 0, limit = 40, signal } = {}) {
  const parameters = new URLSearchParams(search);
  parameters.set("limit", limit);
  parameters.set("offset", offset);
  return request(`/api/search?${parameters}`, { signal });
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

export const thumbnailUrl = (id, size = 256) => `/api/items/${id}/thumbnail?size=${size}`;
export const fileUrl = (hit) => `/api/items/${hit.id}/${hit.kind === "clip" ? "clip" : "picture"}`;
