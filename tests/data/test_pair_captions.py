"""Which captions of a picture are translations of each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.data.pair_captions import matches, pair_captions
from polyglance.encoders.protocol import Encoder
from polyglance.errors import DataError, PolyglanceError

MEANINGS = {"one": 0, "uno": 0, "two": 1, "due": 1, "three": 2, "tre": 2, "quattro": 3}


class Meanings:
    """Encodes a word as the direction of its meaning."""

    def encode_texts(self, texts: Sequence[str], *, language: str) -> NDArray[np.float32]:
        return np.eye(4, dtype=np.float32)[[MEANINGS[text] for text in texts]]


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_captions_of_one_picture_are_paired_by_meaning(tmp_path: Path) -> None:
    english = write(
        tmp_path / "en.jsonl",
        {"image": "1.jpg", "captions": {"en": ["one", "two"]}},
        {"image": "2.jpg", "captions": {"en": ["one"]}},
    )
    italian = write(
        tmp_path / "it.jsonl",
        {"image": "1.jpg", "captions": {"it": ["quattro", "due", "uno"], "en": ["two", "three"]}},
        {"image": "3.jpg", "captions": {"it": ["uno"]}},
    )
    out = tmp_path / "pairs.jsonl"
    encoder = cast("Encoder", Meanings())
    result = pair_captions([english, italian], out, encoder, source="en", target="it")
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"image": "1.jpg", "en": "one", "it": "uno"},
        {"image": "1.jpg", "en": "two", "it": "due"},
    ]
    assert (result.pictures, result.captions, result.pairs) == (1, 3, 2)
    with pytest.raises(DataError, match="has captions in both en and de"):
        pair_captions([english], out, encoder, source="en", target="de")


def test_a_pair_needs_similarity_and_a_margin_on_both_sides() -> None:
    similarities = np.array([[0.9, 0.5, 0.1], [0.88, 0.2, 0.1], [0.1, 0.3, 0.6]], np.float32)
    assert list(matches(similarities, 0.55, 0.01)) == [(0, 0), (2, 2)]
    assert list(matches(similarities, 0.55, 0.05)) == [(2, 2)]  # 0.88 is too near 0.9
    assert list(matches(similarities, 0.7, 0.01)) == [(0, 0)]


def test_captions_are_paired_by_the_words_of_a_dictionary(tmp_path: Path) -> None:
    manifest = write(
        tmp_path / "captions.jsonl",
        {
            "image": "1.jpg",
            "captions": {
                "en": ["A dog runs on the beach.", "Two men ride a bicycle."],
                "it": ["Due uomini in bicicletta.", "Un cane corre sulla spiaggia."],
            },
        },
    )
    words = {"cane": "dog", "spiaggia": "beach", "corre": "runs", "due": "two", "uomini": "men"}
    (tmp_path / "it-en.tsv").write_text(
        "".join(f"{word}\t{other}\n" for word, other in words.items()), encoding="utf-8"
    )
    out = tmp_path / "pairs.jsonl"
    options = ["--to", "it", "--out", str(out), "--dictionary", str(tmp_path / "it-en.tsv")]
    command = ["data", "pair-captions", str(manifest), *options, "--min-similarity", "0.3"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"image": "1.jpg", "en": "A dog runs on the beach.", "it": "Un cane corre sulla spiaggia."},
        {"image": "1.jpg", "en": "Two men ride a bicycle.", "it": "Due uomini in bicicletta."},
    ]
    both = CliRunner().invoke(app, [*command, "--encoder", "any"])
    assert isinstance(both.exception, PolyglanceError)
    assert "give one of them" in str(both.exception)
