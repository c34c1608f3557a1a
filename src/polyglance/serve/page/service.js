// Asking the service. Whatever it refuses is a `Problem` with the key of a message.

const LARGEST_UPLOAD = 4_000_000;
const LONGEST_SIDE = 1600;
const LONGEST_QUESTION = 300;
const SENT_AS_THEY_ARE = ["image/jpeg", "image/png", "image/webp", "image/gif"];

export class Problem extends Error {}

const MESSAGES = {
  401: "problemLocked",
  404: "problemGone",
  413: "problemPicture",
  415: "problemPicture",
  422: "problemQuery",
  503: "problemBusy",
};

async function answer(address, options, messages = MESSAGES) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("problemOffline");
  }
  if (!response.ok) throw new Problem(messages[response.status] ?? "problemOther");
  return response.json();
}

export const library = () => answer("/api/library");
export const languages = () => answer("/api/languages");

/** Hits for a search as it stands in the address bar. */
export function search(asked, { offset = 0, limit = 40, signal } = {}) {
  const parameters = new URLSearchParams(asked);
  parameters.set("limit", limit);
  parameters.set("offset", offset);
  return answer(`/api/search?${parameters}`, { signal });
}

/** Of a hit, where the words of a search look. */
export const why = (hit, words, signal) => closer(hit, "why", words, signal);

/** What a model answers to a question about a hit. */
export const answers = (hit, question, signal) => closer(hit, "answers", question, signal);

function closer(hit, what, words, signal) {
  const parameters = new URLSearchParams({ q: [...words].slice(0, LONGEST_QUESTION).join("") });
  const messages = { ...MESSAGES, 422: "problemQuestion" };
  return answer(`/api/items/${hit.id}/${what}?${parameters}`, { signal }, messages);
}

/** Send a picture; the text that stands for it in searches. */
export async function upload(file) {
  const body = await small(file);
  const headers = { "content-type": body.type || "application/octet-stream" };
  return (await answer("/api/pictures", { method: "POST", body, headers })).picture;
}

/** A large picture made smaller before it travels; one the browser cannot read stays as it is. */
async function small(file) {
  if (file.size <= LARGEST_UPLOAD && SENT_AS_THEY_ARE.includes(file.type)) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, LONGEST_SIDE / Math.max(picture.width, picture.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob((blob) => done(blob ?? file), "image/jpeg", 0.9));
  } catch {
    return file;
  }
}

export const thumbnail = (id, size = 256) => `/api/items/${id}/thumbnail?size=${size}`;
export const file = (hit) => `/api/items/${hit.id}/${hit.kind === "clip" ? "clip" : "picture"}`;
