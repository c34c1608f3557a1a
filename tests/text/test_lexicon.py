from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sentences import SENTENCES
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.text import Tokenizer
from polyglance.text.dictionaries import Dictionary
from polyglance.text.lexicon import MASK_ID, PAD_ID, Lexicon
from polyglance.text.words import WordTokenizer

TEXTS = {
    "en": ["A dog and a ball", "a red ball", "The ball!", "in winter"],
    "de": ["Der Hund bellt.", "der Ball in Rot", "Der Welpe"],
}


@pytest.fixture
def lexicon() -> Lexicon:
    return Lexicon.from_texts(TEXTS)


def test_ids_are_sorted_by_language_then_frequency(lexicon: Lexicon) -> None:
    assert lexicon.words == (
        "<pad>", "<mask>",
        "a", "ball", "and", "dog", "in", "red", "the", "winter",
        "der", "ball", "bellt", "hund", "in", "rot", "welpe",
    )  # fmt: skip
    assert len(lexicon) == 17
    assert (PAD_ID, MASK_ID) == (0, 1)
    assert lexicon.languages == ("en", "de")
    assert lexicon.language_ids.tolist() == [-1, -1, *[0] * 8, *[1] * 7]
    assert lexicon.frequency_ranks.tolist() == [-1, -1, *range(8), *range(7)]
    assert lexicon.counts["en"]["ball"] == 3


def test_a_spelling_of_two_languages_is_two_words(lexicon: Lexicon) -> None:
    assert lexicon.word_id("ball", "en") == 3
    assert lexicon.word_id("ball", "de") == 11
    assert lexicon.word_id("hund", "en") is None
    assert lexicon.encode("Ball in", "en") == [3, 6]
    assert lexicon.encode("Ball in", "de") == [11, 14]


def test_unknown_words_are_dropped_and_unknown_languages_refused(lexicon: Lexicon) -> None:
    assert lexicon.encode("The blue ball", "en") == [8, 3]
    assert lexicon.encode_batch(["blue", "A dog."], "eng") == [[], [2, 5]]
    with pytest.raises(PolyglanceError, match="no words of 'fr', only of en, de"):
        lexicon.encode("chien", "fr")


def test_rare_words_are_left_out(lexicon: Lexicon) -> None:
    assert lexicon.without_rare(2).words == ("<pad>", "<mask>", "a", "ball", "der")
    assert Lexicon.from_texts(TEXTS, min_count=2).words == lexicon.without_rare(2).words
    top = Lexicon.from_texts(TEXTS, max_words=1)
    assert top.words[2:] == ("a", "der")


def test_a_language_of_a_lexicon_is_a_tokenizer(lexicon: Lexicon, tmp_path: Path) -> None:
    german = lexicon.tokenizer("de")
    assert isinstance(german, Tokenizer)
    assert (german.pad_id, german.mask_id, german.unk_id) == (0, 1, None)
    assert german.vocab_size == len(lexicon)
    found = german.encode_with_spans("Der rote HUND", max_length=5)
    assert (found.ids, found.tokens, found.spans) == ([10, 13], ["der", "hund"], [(0, 3), (9, 13)])
    assert german.decode([0, 10, 13]) == "der hund"
    german.save(tmp_path)
    assert Lexicon.open(tmp_path).words == lexicon.words


def test_captions_are_encoded_each_in_its_language(lexicon: Lexicon) -> None:
    records = [
        Record(image="0", captions={"de": ("Der Ball", "nichts"), "en": ("the ball",)}),
        Record(image="1", captions={"en": ("in winter",)}),
    ]
    table = CaptionTable.build(records, lexicon.tokenizers, languages=lexicon.languages)
    ids, lengths = table.gather(np.arange(len(table)))
    assert ids.tolist() == [8, 3, 10, 11, 6, 9]
    assert lengths.tolist() == [2, 2, 2]
    assert table.language_ids.tolist() == [0, 1, 0]


@pytest.mark.parametrize("language", SENTENCES)
def test_words_are_split_as_by_the_word_tokenizer(language: str) -> None:
    texts = SENTENCES[language]
    words = WordTokenizer.from_texts(texts, language)
    lexicon = Lexicon.from_texts({"en": ["something else"], language: texts})
    for text in texts:
        ids = lexicon.encode(text, language)
        assert [lexicon.words[i] for i in ids] == words.words(text)


def test_chinese_can_be_split_by_a_segmenter(tmp_path: Path) -> None:
    lexicon = Lexicon.from_texts({"zh": SENTENCES["zh"]}, segmented=["zh"])
    assert lexicon.word_id("沙发", "zh") is not None
    lexicon.save(tmp_path)
    again = Lexicon.open(tmp_path)
    assert again.encode(SENTENCES["zh"][0], "zh") == lexicon.encode(SENTENCES["zh"][0], "zh")


def test_lexicon_from_records() -> None:
    records = [Record(captions={"cs": ("Pes",), "en": ("A dog", "dog")}), Record(image="bare")]
    assert Lexicon.from_records(records).words[2:] == ("pes", "dog", "a")
    chosen = Lexicon.from_records(records, languages=["eng", "de"])
    assert (chosen.languages, chosen.words[2:]) == (("en", "de"), ("dog", "a"))


def test_adding_a_language_keeps_ids(lexicon: Lexicon) -> None:
    more = lexicon.with_language("fr", ["Le chien rouge"], max_words=2)
    assert more.words == (*lexicon.words, "chien", "le")
    assert more.languages == ("en", "de", "fr")
    assert more.encode("Der Hund", "de") == lexicon.encode("Der Hund", "de")
    with pytest.raises(PolyglanceError, match="already has words of 'de'"):
        lexicon.with_language("deu", [])


def test_rare_words_are_mapped_to_english(lexicon: Lexicon, tmp_path: Path) -> None:
    german = Dictionary([("Hund", "hound"), ("Hund", "Dog"), ("Rot", "red"), ("Welpe", "puppy")])
    mapped = lexicon.with_dictionaries({"de": german}, min_count=2)
    # English keeps its rare words; German keeps "der"; "welpe" has no English word and is gone.
    assert mapped.words == (*lexicon.words[:10], "der")
    assert mapped.aliases == {"de": {"hund": 5, "rot": 7}}
    assert mapped.encode("Der Hund, der Welpe in Rot", "de") == [10, 5, 10, 7]
    mapped.save(tmp_path)
    assert Lexicon.open(tmp_path).encode("Der Hund in Rot", "de") == [10, 5, 7]


def test_first_known_translation_is_used() -> None:
    """Dictionaries have the best first, however common another may be."""
    words = Lexicon({
        "en": {"candy": 90, "confetti": 2, "café": 1},
        "de": {"konfetti": 1, "kaffeehaus": 1, "rar": 1},
    })  # fmt: skip
    german = Dictionary([
        ("Konfetti", "paper streamers"), ("Konfetti", "Confetti"), ("Konfetti", "candy"),
        ("Kaffeehaus", "CAFE\N{COMBINING ACUTE ACCENT}"), ("rar", "scarce"),
    ])  # fmt: skip
    borrowed = words.with_dictionaries({"de": german}, 2).aliases
    assert borrowed == {"de": {"konfetti": 3, "kaffeehaus": 4}}


def test_save_and_open_round_trip_in_a_small_file(tmp_path: Path) -> None:
    lexicon = Lexicon.from_texts(SENTENCES)
    path = lexicon.save(tmp_path)
    for place in (tmp_path, path):
        again = Lexicon.open(place)
        assert vars(again).keys() >= {"counts", "words"}
        assert (again.counts, again.words) == (lexicon.counts, lexicon.words)
        assert (again.language_ids == lexicon.language_ids).all()
    assert path.stat().st_size < 12 * len(lexicon) + 500


@pytest.mark.parametrize(
    "change",
    [
        {"languages": {"en": {"words": "a b", "counts": [1]}}},
        {"languages": {"en": {"words": "a a", "counts": [1, 1]}}},
        {"languages": {"en": {"words": "a", "counts": ["1"]}}},
        {"languages": {"e n": {"words": "a", "counts": [1]}}},
        {"languages": []},
        {"borrowed": {"de": {"hund": 99}}},
        {"borrowed": {"de": {"hund": "dog"}}},
        {"segmented": [1]},
    ],
)
def test_malformed_file_is_refused(
    lexicon: Lexicon, tmp_path: Path, change: dict[str, object]
) -> None:
    path = lexicon.save(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=r"lexicon\.json: expected a lexicon"):
        Lexicon.open(path)


@settings(max_examples=50)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_bytes_are_refused_with_our_own_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"lexicon\.json"):
        Lexicon.open(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Lexicon.open(tmp_path)


def test_character_that_expands_to_several_words(tmp_path: Path) -> None:
    written = Lexicon.from_texts({"ar": ["النبي \ufdfa"]})
    spelled = Lexicon.from_texts({"ar": ["النبي صلى الله عليه وسلم"]})
    assert written.words == spelled.words
    written.save(tmp_path)
    opened = Lexicon.open(tmp_path)
    assert opened.words == written.words
    assert opened.encode("\ufdfa", "ar") == opened.encode("صلى الله عليه وسلم", "ar")
    assert len(opened.encode("\ufdfa", "ar")) == 4
    encoding = opened.tokenizer("ar").encode_with_spans("\ufdfa")
    assert encoding.spans == [(0, 1)] * 4
