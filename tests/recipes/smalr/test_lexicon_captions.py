"""Captions as word ids, and the fingerprint of their cache."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.toy_lexicon import rows_of, toy_captions
from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, SMALRConfig
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.smalr.evaluation import word_coverage
from polyglance.recipes.smalr.lexicon_captions import (
    SPLITS,
    DictionaryFiles,
    count_words,
    prepare_captions,
    remap_words,
)
from polyglance.records import Record, write_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.text.lexicon import Lexicon
from polyglance.utils.fingerprint import fingerprint


def test_captions_are_remapped_to_another_lexicon() -> None:
    texts = toy_captions()
    assert rows_of(texts.captions["test"]) == [[3, 2], [6, 5], [7], [4], [2, 4], [5]]
    frequent = texts.with_lexicon(texts.lexicon.without_rare(3))
    assert frequent.vectors[:, 0].tolist() == [0, 1, 2, 3, 5, 6]
    # A caption without a known word stays as a query, but is dropped from training.
    assert rows_of(frequent.captions["test"]) == [[3, 2], [5, 4], [0], [0], [2], [4]]
    assert rows_of(frequent.captions["train"]) == [[3, 2], [5, 4], [2], [4]]
    assert frequent.captions["train"].record_ids.tolist() == [0, 0, 1, 1]
    german = texts.with_lexicon(Lexicon({"de": texts.lexicon.counts["de"]}))
    assert rows_of(german.captions["test"]) == [[3, 2], [4], [2]]
    assert german.captions["test"].language_codes == ("de",)
    assert german.captions["test"].record_ids.tolist() == [0, 0, 1]


def test_remapping_keeps_empty_captions_in_place() -> None:
    table = toy_captions().captions["test"]
    numbers = np.zeros(8, np.int64)
    numbers[[2, 5]] = [20, 50]
    assert rows_of(remap_words(table, numbers)) == [[20], [50], [0], [0], [20], [50]]
    assert rows_of(remap_words(table, np.zeros(8, np.int64))) == [[0]] * 6


def test_translations_are_the_first_in_the_lexicon(tmp_path: Path) -> None:
    texts = toy_captions()
    dictionary = Dictionary(
        [("dog", "Köter"), ("dog", "Hund"), ("red", "Rot"), ("cat", "Mieze")], source="en"
    )
    assert texts.translations("en", "de", dictionary).tolist() == [0, 0, 5, 6, 0, 0, 0, 0]
    dictionary.save(tmp_path / "en-de.tsv")
    dictionaries = DictionaryFiles(str(tmp_path / "{source}-{target}.tsv"))
    assert dictionaries.mapping(texts, "en", "de").tolist() == [0, 0, 5, 6, 0, 0, 0, 0]
    assert dictionaries.mapping(texts, "de", "de").tolist() == list(range(8))


def test_coverage_counts_own_shared_and_unknown_words() -> None:
    texts = toy_captions()
    lexicon = texts.lexicon
    words = HybridEmbedding.build(
        torch.randn(8, 4),
        torch.from_numpy(lexicon.language_ids),
        torch.from_numpy(lexicon.frequency_ranks),
        own_words=1,
        own_width=2,
        width=4,
        tokens=torch.tensor([0, 0, 0, 1, 0, 0, 1, 0]),
        latent=torch.randn(2, 4),
    )
    model = SMALR(SMALRConfig(universal_width=4, gru_width=4), words, num_languages=2)
    found = word_coverage(model, texts.captions["test"], {"en": 10, "de": 4})
    # red dog, cat, dog cat: the dog is the commonest word, of ten in all.
    assert found["en"] == pytest.approx({"own": 0.2, "shared": 0.3, "unknown": 0.5})
    assert found["de"] == pytest.approx({"own": 0.5, "shared": 0.5, "unknown": 0.0})
    records = [Record(captions={"en": ("A red, red dog!", "so"), "de": ("Hund",)}), Record()]
    assert count_words(records, lexicon).tolist() == [[5, 1], [0, 0]]


def test_changed_vector_files_invalidate_the_cache(tmp_path: Path) -> None:
    manifests = {split: tmp_path / f"{split}.jsonl" for split in SPLITS}
    for path in manifests.values():
        write_manifest(path, [Record(captions={"en": ("a circle",)})])

    def vectors(numbers: str) -> np.ndarray:
        (tmp_path / "en.vec").write_text(f"1 2\ncircle {numbers}\n")
        source = str(tmp_path / "{language}.vec")
        return prepare_captions(manifests, ("en",), source, 2, cache_dir=tmp_path / "cache").vectors

    first = vectors("1 2")
    assert [1, 2] in first.tolist()
    assert [1, 4.5] in vectors("1 4.5").tolist()


def test_fingerprints_differ_by_content(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_text("one")
    numbers = np.arange(6)
    names = [
        fingerprint(tmp_path / "folder"), fingerprint(file), fingerprint(numbers),
        fingerprint(numbers.reshape(2, 3)), fingerprint(numbers.astype(np.int32)),
        fingerprint([1, 2]), fingerprint([1], [2]), fingerprint(json), fingerprint(TripletRule()),
    ]  # fmt: skip
    assert len(set(names)) == len(names)
    assert fingerprint(tmp_path / "folder") == names[0]
    file.write_text("two")
    assert fingerprint(tmp_path / "folder") != names[0]


def test_dictionaries_need_a_pattern() -> None:
    with pytest.raises(PolyglanceError, match=r"give a path with \{source\} and \{target\}"):
        DictionaryFiles("dictionaries.tsv")
