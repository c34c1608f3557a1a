from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from helpers.fasttext import fnv, ngrams, write_bin
from polyglance.errors import DataError, PolyglanceError
from polyglance.text.fasttext import FastTextModel
from polyglance.text.word_vectors import WordVectors, open_word_vectors, read_vec, write_vec

WORDS = ["</s>", "dog", "žena", "狗"]
BUCKETS = 50
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(len(WORDS) + BUCKETS, 4)).astype(np.float32)

# As published: spaces at the ends of lines, a word with a no-break space, and a repeated word.
PUBLISHED = "4 3\nthe 0.5 -1e-2 3 \nNew\u00a0York 1 2 3 \nthe 9 9 9\n, -0.25 0 1\n"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "wiki.en.vec"
    path.write_text(PUBLISHED, encoding="utf-8")
    return path


def test_a_published_vec_file(published: Path) -> None:
    opened = read_vec(published)
    assert opened.words == ("the", "New\u00a0York", ",")
    assert opened.dim == 3
    found, known = opened.vectors(["New\u00a0York", "dog", "the"])
    assert known.tolist() == [True, False, True]
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 2, 3], [0, 0, 0], [0.5, np.float32(-0.01), 3]]


def test_only_given_words_are_read(published: Path) -> None:
    opened = open_word_vectors(published, words=["the", "cat"])
    assert isinstance(opened, WordVectors)
    assert opened.words == ("the",)


@pytest.mark.parametrize("name", ["own.vec", "own.vec.gz"])
def test_written_vectors_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    write_vec(tmp_path / name, WORDS, ROWS[:4])
    again = read_vec(tmp_path / name)
    assert again.words == tuple(WORDS)
    assert (again.matrix == ROWS[:4]).all()
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).startswith(b"4 4\n</s> ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: expected the number of words"),
        ("dog 1 2 3\n", ":1: expected the number of words"),
        ("2 3\ndog 1 2 3\n", "declares 2 words but has 1"),
        ("1 3\ndog 1 2\n", ":2: expected a word and 3 numbers"),
        ("1 3\ndog 1 2 x\n", ":2: expected a word and 3 numbers"),
        ("1 3\ndog 1 2 nan\n", ":2: expected a word and 3 numbers"),
        ("1 0\ndog\n", ":1: expected the number of words"),
    ],
)
def test_damaged_vec_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.vec"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_vec(path)


def test_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.vec.gz"
    path.write_bytes(gzip.compress(PUBLISHED.encode())[:-12])
    with pytest.raises(DataError, match="cannot be read further"):
        read_vec(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match=r"ends in \.vec"):
        open_word_vectors(tmp_path / "vectors.npy")
    with pytest.raises(DataError, match="cannot be opened"):
        open_word_vectors(tmp_path / "none.vec")
    with pytest.raises(DataError, match="cannot be read"):
        open_word_vectors(tmp_path / "none.bin")


def wanted(word: str) -> list[float]:
    """A word's vector from its rows, one by one."""
    rows = [ROWS[WORDS.index(word)]] if word in WORDS else []
    if word != "</s>":
        rows += [ROWS[len(WORDS) + fnv(part) % BUCKETS] for part in ngrams(word, 3, 6)]
    return [float(sum(column) / len(rows)) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("labels", [(), ("__label__x",)])
def test_a_bin_model_has_vectors_for_known_and_unknown_words(
    tmp_path: Path, labels: tuple[str, ...]
) -> None:
    path = tmp_path / "cc.bin"
    write_bin(path, WORDS, ROWS, buckets=BUCKETS, labels=labels)
    opened = open_word_vectors(path)
    assert isinstance(opened, FastTextModel)
    assert opened.words == tuple(WORDS)
    asked = ["ženami", "dog", "</s>", "狗", "dogs", "", "žena", "الكلب"]
    found, known = opened.vectors(asked)
    # "<>" is too short to have a part
    assert known.tolist() == [word != "" for word in asked]
    for word, vector in zip(asked, found, strict=True):
        assert vector == pytest.approx(wanted(word) if word else [0] * 4, abs=1e-6)


def test_many_words_are_gathered_block_by_block(tmp_path: Path) -> None:
    write_bin(tmp_path / "m.bin", WORDS, ROWS, buckets=BUCKETS)
    opened = FastTextModel.open(tmp_path / "m.bin")
    asked = [f"word{number}" for number in range(2500)]
    found, _ = opened.vectors(asked)
    assert found[2100] == pytest.approx(wanted("word2100"), abs=1e-6)


def test_old_classifiers_have_no_subwords(tmp_path: Path) -> None:
    write_bin(tmp_path / "m.bin", WORDS, ROWS, buckets=BUCKETS, version=11, model=3)
    found, known = FastTextModel.open(tmp_path / "m.bin").vectors(["dog", "dogs"])
    assert known.tolist() == [True, False]
    assert (found[0] == ROWS[1]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 9}, "version 9"),
        ({"quantised": True}, "quantised"),
        ({"pruned": 3}, "pruned subwords"),
        ({"buckets": 40}, "damaged or truncated"),
    ],
)
def test_unsupported_models_are_refused(
    tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    write_bin(tmp_path / "m.bin", WORDS, ROWS, **{"buckets": BUCKETS} | changes)
    with pytest.raises(DataError, match=message):
        FastTextModel.open(tmp_path / "m.bin")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    whole = write_bin(path, WORDS, ROWS, buckets=BUCKETS)
    needed = len(whole) - (1 + 16 + len(WORDS) * 16)  # the output matrix is not read
    for length in [*range(0, 200, 7), needed - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"m\.bin"):
            FastTextModel.open(path)
    path.write_bytes(b"\x1f\x8b" + whole[2:])
    with pytest.raises(DataError, match="not a fastText model"):
        FastTextModel.open(path)
