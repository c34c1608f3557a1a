// Encode sentences and pictures with the model's graphs, and search: all inside the browser.

import * as ort from "./ort/ort.wasm.min.mjs";
import { loadTokenizer } from "./tokenizer.js";

// One thread: more need headers that a plain file server does not send.
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;

const OPTIONS = { executionProviders: ["wasm"] };

export class BrowserModel {
  constructor(settings, tokenizer, textGraph) {
    Object.assign(this, { settings, tokenizer, textGraph });
  }

  static async load() {
    const settings = await (await fetch("model/settings.json")).json();
    const [tokenizer, textGraph] = await Promise.all([
      loadTokenizer("model/vocabulary.bin.gz"),
      ort.InferenceSession.create("model/text.onnx", OPTIONS),
    ]);
    return new BrowserModel(settings, tokenizer, textGraph);
  }

  async encodeText(text) {
    const ids = this.tokenizer.encode(text, this.settings.maxLength);
    const shape = [1, ids.length];
    const { text_embeds } = await this.textGraph.run({
      input_ids: new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), shape),
      attention_mask: new ort.Tensor("int64", new BigInt64Array(ids.length).fill(1n), shape),
    });
    return text_embeds.data;
  }

  // A picture as a Blob; the image graph is loaded with the first one.
  async encodePicture(blob) {
    this.imageGraph ??= ort.InferenceSession.create("model/picture.onnx", OPTIONS);
    const { size, mean, std } = this.settings;
    const pixels = await squarePixels(blob, size);
    const values = new Float32Array(3 * size * size);
    for (let place = 0; place < size * size; place++) {
      for (let channel = 0; channel < 3; channel++) {
        const value = (pixels[4 * place + channel] - mean[channel]) / std[channel];
        values[channel * size * size + place] = value;
      }
    }
    const input = new ort.Tensor("float32", values, [1, 3, size, size]);
    const { image_embeds } = await (await this.imageGraph).run({ pixel_values: input });
    return image_embeds.data;
  }
}

async function squarePixels(blob, size) {
  const bitmap = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(size, size);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white"; // behind transparent parts
  context.fillRect(0, 0, size, size);
  context.drawImage(bitmap, 0, 0, size, size);
  bitmap.close();
  return context.getImageData(0, 0, size, size).data;
}

export class Gallery {
  constructor() {
    this.photos = [];
    this.vectors = [];
  }

  static async load(width) {
    const gallery = new Gallery();
    const [photos, buffer] = await Promise.all([
      fetch("photos.json").then((response) => response.json()),
      fetch("vectors.bin").then((response) => response.arrayBuffer()),
    ]);
    const all = new Float32Array(buffer);
    photos.forEach((photo, number) => {
      gallery.add(photo, all.subarray(number * width, (number + 1) * width));
    });
    return gallery;
  }

  add(photo, vector) {
    this.photos.push(photo);
    this.vectors.push(vector);
  }

  search(query, count) {
    const hits = this.vectors.map((vector, number) => {
      let score = 0;
      for (let place = 0; place < vector.length; place++) score += vector[place] * query[place];
      return { ...this.photos[number], score };
    });
    return hits.sort((one, other) => other.score - one.score).slice(0, count);
  }
}
