// XLM-R's unigram tokenizer, with the ids that polyglance.encoders.unigram gives.
//
// The vocabulary is the content of vocabulary.xz (polyglance.encoders.vocabulary), compressed with
// gzip, which browsers decompress.

const SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"];
const MASK = "<mask>";
const [BOS, , EOS, UNKNOWN] = SPECIALS.keys();
const UNKNOWN_PENALTY = 10;
const MARK = "▁";
// Unicode's White_Space, which is not what \s matches.
const SPACES = /[\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const MAX_GRAPHEME_BYTES = 6;

export async function loadTokenizer(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  const stream = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new UnigramTokenizer(await new Response(stream).arrayBuffer());
}

export class UnigramTokenizer {
  constructor(buffer) {
    const { pieces, scores, rows, charsmap } = parseVocabulary(buffer);
    this.scores = scores;
    this.rows = rows;
    this.normalise = charsmap.length ? new Normaliser(charsmap) : null;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
    for (const name of [...SPECIALS, MASK]) this.ids.delete(name);
    this.longest = 1;
    for (const piece of this.ids.keys()) {
      if (piece.length > this.longest) this.longest = Math.max(this.longest, [...piece].length);
    }
    this.unknownScore = scores.reduce((least, score) => Math.min(least, score), 0) - UNKNOWN_PENALTY;
    this.segments = new Map();
  }

  // Rows of <s>, the text's pieces and </s>; longer texts are truncated.
  encode(text, maxLength) {
    const ids = [];
    for (const word of this.split(text)) {
      if (ids.length > maxLength) break;
      let pieces = this.segments.get(word);
      if (!pieces) this.segments.set(word, (pieces = this.segment(word)));
      ids.push(...pieces);
    }
    return [BOS, ...ids.slice(0, maxLength - 2), EOS].map((id) => this.rows[id]);
  }

  split(text) {
    text = text.toWellFormed();
    if (this.normalise) text = this.normalise.apply(text);
    const words = [];
    for (const word of text.split(SPACES)) {
      if (!word) continue;
      words.push(...(word.startsWith(MARK) ? word : MARK + word).match(/▁[^▁]*/gu));
    }
    return words;
  }

  // The most likely pieces of a word (Viterbi); adjacent unknown characters become one piece.
  segment(word) {
    const starts = [0]; // of characters, which may be two units long
    for (const character of word) starts.push(starts.at(-1) + character.length);
    const length = starts.length - 1;
    const best = new Float64Array(length + 1).fill(-1e300);
    const from = new Int32Array(length + 1);
    const pieceAt = new Int32Array(length + 1).fill(UNKNOWN);
    best[0] = 0;
    for (let start = 0; start < length; start++) {
      let hasSingle = false;
      const last = Math.min(start + this.longest, length);
      for (let end = start + 1; end <= last; end++) {
        const piece = this.ids.get(word.slice(starts[start], starts[end]));
        if (piece === undefined) continue;
        hasSingle ||= end === start + 1;
        const score = best[start] + this.scores[piece];
        if (score > best[end]) {
          best[end] = score;
          from[end] = start;
          pieceAt[end] = piece;
        }
      }
      const unknown = best[start] + this.unknownScore;
      if (!hasSingle && unknown > best[start + 1]) {
        best[start + 1] = unknown;
        from[start + 1] = start;
        pieceAt[start + 1] = UNKNOWN;
      }
    }
    const pieces = [];
    for (let end = length; end > 0; end = from[end]) {
      const piece = pieceAt[end];
      if (piece !== UNKNOWN || pieces.at(-1) !== UNKNOWN) pieces.push(piece);
    }
    return pieces.reverse();
  }
}

function parseVocabulary(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  if (new TextDecoder().decode(bytes.subarray(0, 4)) !== "PGV1") throw new Error("no vocabulary");
  const [count, textBytes] = [view.getUint32(4, true), view.getUint32(8, true)];
  const scoresAt = 16 + Math.ceil(count / 8);
  const textAt = scoresAt + 4 * count;
  const rows = new Int32Array(count);
  const isFrequent = (id) => (bytes[16 + (id >> 3)] >> (7 - (id & 7))) & 1;
  let row = 0;
  for (const wanted of [1, 0]) {
    for (let id = 0; id < count; id++) if (isFrequent(id) === wanted) rows[id] = row++;
  }
  // Differences of the scores' bits, by planes of bytes.
  const bits = new Int32Array(count);
  let sum = 0;
  for (let id = 0; id < count; id++) {
    let step = 0;
    for (let plane = 0; plane < 4; plane++) step |= bytes[scoresAt + plane * count + id] << (8 * plane);
    bits[id] = sum = (sum + step) | 0;
  }
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const pieces = decoder.decode(bytes.subarray(textAt, textAt + textBytes)).split("\n");
  const charsmap = bytes.slice(textAt + textBytes);
  return { pieces, scores: new Float32Array(bits.buffer), rows, charsmap };
}

// SentencePiece's compiled normalisation: a double-array trie of what is replaced, and the texts
// that replace it, as the tokenizers library applies it.
class Normaliser {
  constructor(charsmap) {
    const trieBytes = new DataView(charsmap.buffer).getUint32(0, true);
    this.trie = new Uint32Array(charsmap.slice(4, 4 + trieBytes).buffer);
    this.texts = charsmap.subarray(4 + trieBytes);
    this.encoder = new TextEncoder();
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
    this.known = new Map();
  }

  apply(text) {
    let normal = "";
    for (const { segment } of this.graphemes.segment(text)) {
      let found = this.known.get(segment);
      if (found === undefined) this.known.set(segment, (found = this.grapheme(segment)));
      normal += found;
    }
    return normal;
  }

  grapheme(segment) {
    const bytes = this.encoder.encode(segment);
    if (bytes.length < MAX_GRAPHEME_BYTES) {
      const whole = this.find(bytes);
      if (whole !== null) return whole;
    }
    let normal = "";
    for (const character of segment) {
      normal += this.find(this.encoder.encode(character)) ?? character;
    }
    return normal;
  }

  // The text that replaces the shortest known beginning, or null.
  find(bytes) {
    const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
    let position = offset(this.trie[0]);
    for (const byte of bytes) {
      if (byte === 0) return null;
      position ^= byte;
      const unit = this.trie[position];
      if (unit === undefined || (unit & 0x800000ff) !== byte) return null;
      position ^= offset(unit);
      if ((unit >>> 8) & 1) {
        const start = this.trie[position] & 0x7fffffff;
        return this.decoder.decode(this.texts.subarray(start, this.texts.indexOf(0, start)));
      }
    }
    return null;
  }
}
