"""Names of region labels in several languages, as text and as sub-words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.published.captions import OBJECTS, write_object_labels
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.uc2.labels import (
    LabelNamesConfig,
    LabelTokens,
    load_label_names,
    read_label_names,
)

NAMES = {"en": ["ab", "c", "dde"], "de": ["x", "yz", "w"]}


def test_imagenet_classes_have_own_names_or_translated_ones(tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").write_text("retriever\tApportierhund\ngoldfish\tGoldfisch\n")
    config = LabelNamesConfig(dictionaries="{source}-{target}.tsv")
    labels = load_label_names(config, ("en", "fr", "de"), tmp_path)
    assert labels.names["en"][1] == "goldfish"
    assert labels.names["de"][1] == "Goldfisch"
    golden = labels.names["en"].index("golden retriever")
    assert labels.names["de"][golden] == "Apportierhund"  # by its last word
    assert labels.names["de"][0] == labels.names["en"][0]
    assert labels.names["fr"][1] != "goldfish"
    assert {code: len(names) for code, names in labels.names.items()} == {
        "en": 1000, "fr": 1000, "de": 1000,
    }  # fmt: skip
    assert labels.coverage["fr"] == 1.0
    assert 0.001 < labels.coverage["de"] < 0.02


def test_names_of_other_labels_come_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("en\tde\nred dog\troter Hund\ncat\tKatze\n", encoding="utf-8")
    labels = load_label_names(LabelNamesConfig("labels.tsv"), ("en", "de", "cs"), tmp_path)
    assert labels.names == {
        "en": ["red dog", "cat"], "de": ["roter Hund", "Katze"], "cs": ["red dog", "cat"],
    }  # fmt: skip
    assert labels.coverage == {"en": 1.0, "de": 1.0, "cs": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dog\tHund\ncat\tKatze\n", "expected language codes in the first line"),
        ("en\tde\ncat\n", r"labels\.tsv:2: expected a name in each of en, de"),
        ("", "expected language codes"),
    ],
)
def test_malformed_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_label_names(path)


def test_table_needs_an_english_column(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("de\nHund\n", encoding="utf-8")
    with pytest.raises(PolyglanceError, match="need an English column"):
        load_label_names(LabelNamesConfig("labels.tsv"), ("de",), tmp_path)


class Letters:
    """A letter is a token."""

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        assert not add_special_tokens
        return [[ord(letter) - 97 for letter in text if letter != " "] for text in texts]


def test_sub_words_of_a_name_are_sampled_evenly() -> None:
    labels = LabelTokens(NAMES, Letters())
    generator = np.random.default_rng(0)
    assert labels.language_ids(["de", "en"]).tolist() == [1, 0]
    for language_id, language in enumerate(("en", "de")):
        for label, name in enumerate(NAMES[language]):
            sampled = labels.sample(
                np.full(3000, language_id), np.full(3000, label), generator.random(3000)
            )
            letters, counts = np.unique(sampled, return_counts=True)
            assert {chr(97 + letter) for letter in letters} == set(name)
            for letter, count in zip(letters, counts, strict=True):
                share = name.count(chr(97 + letter)) / len(name)
                assert count / 3000 == pytest.approx(share, abs=0.05)


def test_embedding_of_a_label_is_the_mean_of_its_sub_words() -> None:
    table = torch.nn.Parameter(torch.randn(26, 4))
    embedded = LabelTokens(NAMES, Letters()).embed(table, "de")
    expected = torch.stack(
        [torch.stack([table[ord(letter) - 97] for letter in name]).mean(0) for name in NAMES["de"]]
    )
    torch.testing.assert_close(embedded, expected)
    assert not embedded.requires_grad


def test_missing_names_are_reported() -> None:
    with pytest.raises(PolyglanceError, match="2 names of labels in fr, and 3 in en"):
        LabelTokens({**NAMES, "fr": ["a", "b"]}, Letters())
    with pytest.raises(PolyglanceError, match="label 1 has no name in fr"):
        LabelTokens({**NAMES, "fr": ["a", " ", "b"]}, Letters())
    with pytest.raises(PolyglanceError, match="labels have no names in cs"):
        LabelTokens(NAMES, Letters()).language_ids(["en", "cs"])


def test_uc2s_own_label_files_name_classes_after_the_background(tmp_path: Path) -> None:
    folder = write_object_labels(tmp_path / "object_labels")
    config = LabelNamesConfig("object_labels", background=True)
    names = load_label_names(config, ["en", "de", "ja"], tmp_path)
    assert names.names["en"] == ["background", *OBJECTS]
    assert names.names["de"][4] == "Hund"
    assert names.coverage == {"en": 1.0, "de": 1.0, "ja": 1.0}
    (folder / "img_label_objects_fr.txt").write_text("rouge\n")
    with pytest.raises(DataError, match="one label a line and as many in each"):
        load_label_names(config, ["en"], tmp_path)
