from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sentences import SENTENCES
from polyglance.errors import DataError, PolyglanceError
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.words import WordTokenizer

CORPUS = ["Der Hund bellt.", "Der Hund und der Ball", "ein Ball", "Ein Hund!"]


@pytest.fixture
def german() -> WordTokenizer:
    return WordTokenizer.from_texts(CORPUS, "de")


def test_the_commonest_word_comes_first_then_the_alphabet(german: WordTokenizer) -> None:
    assert isinstance(german, Tokenizer)
    assert german.counts == {"der": 3, "hund": 3, "ball": 2, "ein": 2, "bellt": 1, "und": 1}
    assert german.tokens(range(german.vocab_size)) == ["<pad>", "<unk>", *german.counts]
    assert german.vocab_size == 8


def test_rare_words_are_left_out() -> None:
    assert list(WordTokenizer.from_texts(CORPUS, "de", min_count=2).counts) == [
        "der", "hund", "ball", "ein",
    ]  # fmt: skip
    assert list(WordTokenizer.from_texts(CORPUS, "de", max_words=1).counts) == ["der"]


def test_unknown_words_are_dropped_or_mapped(german: WordTokenizer) -> None:
    text = "Ein roter Hund, ein blauer Ball"
    assert german.encode(text) == [5, 3, 5, 4]
    mapping = WordTokenizer.from_texts(CORPUS, "de", unknown="map")
    assert mapping.encode(text) == [5, 1, 3, 5, 1, 4]
    assert mapping.decode(mapping.encode(text)) == "ein <unk> hund ein <unk> ball"
    with pytest.raises(PolyglanceError, match="'drop' or 'map'"):
        WordTokenizer([], "de", unknown="guess")  # type: ignore[arg-type]


def test_case_can_be_kept() -> None:
    cased = WordTokenizer.from_texts(CORPUS, "de", lower=False)
    assert {"Der", "der", "Ein", "ein"} <= set(cased.counts)


def test_spans_and_lengths(german: WordTokenizer) -> None:
    text = "Ein  roter HUND!"
    found = german.encode_with_spans(text)
    assert found.tokens == ["ein", "hund"]
    assert found.spans is not None
    assert [text[start:end] for start, end in found.spans] == ["Ein", "HUND"]
    assert german.encode(text, max_length=1) == [5]
    assert german.encode(text, max_length=0) == []
    assert german.encode_batch([text, ""]) == [[5, 3], []]


def test_languages_without_spaces_are_joined_without() -> None:
    chinese = WordTokenizer.from_texts(SENTENCES["zh"], "zh")
    assert chinese.decode(chinese.encode("三只猫睡在沙发上。")) == "三只猫睡在沙发上"
    dictionary = WordTokenizer.from_texts(SENTENCES["zh"], "zh", use_segmenter=True)
    assert "沙发" in dictionary.counts
    assert "沙发" not in chinese.counts


@pytest.mark.parametrize("language", SENTENCES)
def test_every_word_of_the_corpus_is_known(language: str) -> None:
    tokenizer = WordTokenizer.from_texts(SENTENCES[language], language)
    for text in SENTENCES[language]:
        ids = tokenizer.encode(text)
        assert tokenizer.tokens(ids) == tokenizer.words(text)
        assert len(ids) >= 4
        assert min(ids) >= 2


def test_save_and_open_round_trip(tmp_path: Path, german: WordTokenizer) -> None:
    mapping = WordTokenizer(german.counts.items(), "cz", lower=False, unknown="map")
    for number, tokenizer in enumerate([german, mapping]):
        tokenizer.save(tmp_path / str(number))
        for place in (tmp_path / str(number), tmp_path / str(number) / "words.json"):
            again = open_tokenizer(place)
            assert isinstance(again, WordTokenizer)
            assert vars(again) == vars(tokenizer)
            assert list(again.counts) == list(tokenizer.counts)
    assert mapping.language == "cs"


@pytest.mark.parametrize(
    "change",
    [
        {"words": ["hund"]},
        {"words": {"hund": "3"}},
        {"words": {"hund": True}},
        {"unknown": "guess"},
        {"lower": 1},
        {"colour": "red"},
    ],
)
def test_a_malformed_file_is_refused(
    tmp_path: Path, german: WordTokenizer, change: dict[str, object]
) -> None:
    german.save(tmp_path)
    path = tmp_path / "words.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(PolyglanceError, match=r"expected|'drop' or 'map'"):
        open_tokenizer(path)


@settings(max_examples=50)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)))
def test_any_bytes_are_refused_with_our_own_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("words") / "words.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"words\.json"):
        WordTokenizer.open(path)
