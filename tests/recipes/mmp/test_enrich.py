"""What is made of English captions: switched ones, translations, words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from helpers.text_encoder import unigram_tokenizer
from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.recipes.mmp.enrich import (
    MIXED,
    code_switch,
    enrich,
    frequent_words,
    with_emoji_names,
    word_records,
)
from polyglance.recipes.mmp.photo_data import class_records, with_extra_captions
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.vision.labels import label_names

GERMAN = Dictionary([("dog", "Hund"), ("beach", "Strand"), ("runs", "läuft")], source="en")
TURKISH = Dictionary([("dog", "köpek"), ("beach", "plaj"), ("runs", "koşuyor")], source="en")


def test_frequent_words_of_captions_are_selected() -> None:
    texts = ["The dog and the dog", "hot dog", "hot dog", "Hot dog, an owl", "a cat"]
    assert frequent_words(texts) == {"dog", "hot", "hot dog"}


def test_code_switched_caption_has_one_other_language() -> None:
    texts = ["A dog runs on the beach."] * 300 + ["A cat sleeps."]
    found = code_switch(
        texts, {"de": GERMAN, "tr": TURKISH}, ("de", "de", "tr"), np.random.default_rng(0)
    )
    assert found[-1] == []  # no word of it is known
    flat = [text for texts in found for text in texts]
    assert len(flat) > 450  # of 600: half of the words is sometimes one word or none
    german = [text for text in flat if any(word in text for word in ("Hund", "Strand", "läuft"))]
    turkish = [text for text in flat if any(word in text for word in ("köpek", "plaj", "koşuyor"))]
    assert len(german) + len(turkish) == len(flat)
    assert not set(german) & set(turkish)
    assert 1.6 < len(german) / len(turkish) < 2.5  # German was drawn twice as often
    assert "A Hund läuft on the Strand." in german
    assert "A dog läuft on the Strand." in german


def test_emoji_names_extend_the_dictionary() -> None:
    names = [{"en": "dog", "de": "Hundegesicht", "ko": "개"}, {"en": "owl", "de": "Eule"}]
    known = with_emoji_names({"de": GERMAN}, names)
    assert known["de"].translations("dog") == ("Hund", "Hundegesicht")
    assert known["de"].translations("owl") == ("Eule",)
    assert list(known["ko"].pairs()) == [("dog", "개")]
    assert "en" not in known


def test_word_records_have_words_labels_and_emoji() -> None:
    found = list(word_records({"de": GERMAN, "tr": TURKISH}, [{"en": "owl", "ko": "부엉이"}]))
    assert found[0].captions == {"en": ("dog",), "de": ("Hund",), "tr": ("köpek",)}
    assert found[-1].captions == {"en": ("owl",), "ko": ("부엉이",)}
    assert len(found) == 3 + len(label_names()) + 1
    assert found[3].captions["en"] == label_names("en")[0][:2]


def test_class_records_have_names_in_the_languages_of_words() -> None:
    name = label_names("en")[0][0]
    classes = class_records([Record(captions={"en": (name.upper(),), "tr": ("balık",)})])
    assert len(classes) == len(label_names())
    assert classes[0].captions["tr"] == ("balık",)
    assert classes[0].captions["en"] == label_names("en")[0][:2]
    assert "tr" not in classes[1].captions


def test_extra_captions_are_added_by_image() -> None:
    records = [Record(image="a.png", captions={"en": ("a",)}), Record(image="b.png")]
    more = [Record(image="a.png", captions={MIXED: ("x", "y")}), Record(image="c.png")]
    joined = with_extra_captions(records, more)
    assert [dict(record.captions) for record in joined] == [{"en": ("a",), MIXED: ("x", "y")}, {}]


class _Backwards:
    source, target = "en", "es"

    def translate(self, texts: Sequence[str]) -> list[str]:
        return [text[::-1] for text in texts]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two pictures, one of them without English, a translation, a dictionary, emoji."""
    english = {"en": ("A dog runs.", "The dog on a beach")}
    write_manifest(
        tmp_path / "corpus" / "pictures.jsonl",
        [
            Record(image="0.png", captions=english),
            Record(image="1.png", captions={"it": ("cane",)}),
        ],
    )
    write_manifest(
        tmp_path / "corpus" / "parallel.jsonl",
        [Record(captions={"en": ("a dog runs on a beach",), "fr": ("un chien court",)})],
    )
    (tmp_path / "dictionaries").mkdir()
    GERMAN.save(tmp_path / "dictionaries" / "en-de.tsv")
    folder = tmp_path / "emoji" / "en"
    folder.mkdir(parents=True)
    owl = {"annotations": {"annotations": {"🦉": {"tts": ["owl"]}}}}
    (folder / "annotations.json").write_text(json.dumps(owl), encoding="utf-8")
    tokenizer = unigram_tokenizer(["dog Hund beach Strand runs läuft"], pieces=28)
    tokenizer.save(tmp_path / "encoder")
    shape = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
    )
    save_encoder(Encoder(shape), tmp_path / "encoder")
    return tmp_path


def test_enrich_writes_manifests(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An untrained encoder finds nothing alike: let whatever the dictionary has pass.
    monkeypatch.setattr("polyglance.training.sense_selection.MIN_SIMILARITY", -2.0)
    written = enrich(
        data / "corpus",
        data / "out",
        pictures=["pictures.jsonl"],
        parallel=["parallel.jsonl"],
        emoji=data / "emoji",
        dictionaries=[data / "dictionaries"],
        translators=[_Backwards()],
        encoder=str(data / "encoder"),
        switch_languages=["de"],
    )
    assert written["pictures.jsonl"] == written["parallel.jsonl"] == 1
    (picture,) = read_manifest(data / "out" / "pictures.jsonl")
    assert picture.image == "0.png"
    assert picture.captions["es"] == (".snur god A", "hcaeb a no god ehT")
    assert set(picture.captions) <= {"es", MIXED}
    (parallel,) = read_manifest(data / "out" / "parallel.jsonl")
    assert parallel.captions["fr"] == ("un chien court",)
    assert {"en", "fr", "es"} <= set(parallel.captions)
    words = list(read_manifest(data / "out" / "words.jsonl"))
    assert {"en": ("dog",), "de": ("Hund",)} in [dict(record.captions) for record in words]


def test_missing_dictionaries_are_reported(data: Path) -> None:
    with pytest.raises(PolyglanceError, match="no dictionar"):
        enrich(
            data / "corpus",
            data / "out",
            pictures=["pictures.jsonl"],
            parallel=(),
            dictionaries=[data / "emoji"],
            encoder=str(data / "encoder"),
        )
