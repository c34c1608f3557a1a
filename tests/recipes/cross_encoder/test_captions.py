"""Samplers of captions: balanced by language, plain, and code-switched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from polyglance.batches.inputs import pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import (
    CodeSwitchedCaptions,
    LanguageBalancedSampler,
    PlainCaptions,
    Streaming,
)
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import Dictionary
from polyglance.training.mixture import step_generator


class Letters:
    """A letter is a token."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]


TABLE = CaptionTable.build(
    [
        Record(
            captions={"en": ("a", "b", "c")}
            | ({"de": ("d",)} if number % 3 == 0 else {})
            | ({"fr": ("e", "f")} if number in (1, 4) else {})
        )
        for number in range(30)
    ],
    Letters(),
)


def test_languages_are_sampled_evenly_whatever_their_captions() -> None:
    sampler = LanguageBalancedSampler(TABLE)
    rows = sampler.sample(30_000, np.random.default_rng(0))
    shares = np.bincount(TABLE.language_ids[rows]) / len(rows)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)
    for language, images, per_image in (("en", 30, 3), ("de", 10, 1), ("fr", 2, 2)):
        own = rows[TABLE.language_ids[rows] == TABLE.language_codes.index(language)]
        captions, counts = np.unique(own, return_counts=True)
        assert len(captions) == images * per_image
        assert counts.min() > 0.6 * counts.mean()


def test_languages_may_be_sampled_by_their_captions() -> None:
    sampler = LanguageBalancedSampler(TABLE, language_alpha=0.5)
    rows = sampler.sample(30_000, np.random.default_rng(0))
    roots = {"en": 90**0.5, "de": 10**0.5, "fr": 4**0.5}
    for language, root in roots.items():
        share = (TABLE.language_ids[rows] == TABLE.language_codes.index(language)).mean()
        assert share == pytest.approx(root / sum(roots.values()), abs=0.01)


def test_other_captions_are_of_other_images_in_the_same_language() -> None:
    sampler = LanguageBalancedSampler(TABLE)
    generator = np.random.default_rng(0)
    rows = sampler.sample(30_000, generator)
    others = sampler.sample_other_images(rows, generator)
    assert (TABLE.record_ids[rows] != TABLE.record_ids[others]).all()
    assert np.array_equal(TABLE.language_ids[rows], TABLE.language_ids[others])
    of_seven = TABLE.record_ids[others][TABLE.record_ids[rows] == 7]
    assert set(of_seven.tolist()) == set(range(30)) - {7}


def test_images_may_be_sampled_more_often() -> None:
    repeats = np.where(np.arange(30) < 3, 5, 1)
    sampler = LanguageBalancedSampler(TABLE, repeats=repeats, language_alpha=1.0)
    generator = np.random.default_rng(0)
    rows = sampler.sample(60_000, generator)
    # As if the first three were there five times: captions by language, then each image's share.
    captions = {"en": 3 * 42, "de": 14, "fr": 2 * (5 + 1)}
    for language, count in captions.items():
        own = TABLE.record_ids[
            rows[TABLE.language_ids[rows] == TABLE.language_codes.index(language)]
        ]
        assert len(own) / len(rows) == pytest.approx(count / sum(captions.values()), abs=0.01)
        images = np.flatnonzero(np.bincount(own))
        drawn = np.bincount(own)[images]
        assert drawn / drawn.sum() == pytest.approx(
            repeats[images] / repeats[images].sum(), abs=0.02
        )
    others = sampler.sample_other_images(rows, generator)
    assert (TABLE.record_ids[rows] != TABLE.record_ids[others]).all()
    with pytest.raises(PolyglanceError, match="leave repeats out"):
        LanguageBalancedSampler(TABLE, repeats=repeats, streaming=Streaming(4))


def test_chosen_languages_need_captions() -> None:
    sampler = LanguageBalancedSampler(TABLE, languages=("fr",))
    assert sampler.images.tolist() == [1, 4]
    assert set(TABLE.record_ids[sampler.sample(100, np.random.default_rng(0))].tolist()) == {1, 4}
    with pytest.raises(PolyglanceError, match="at least two images with captions in cs"):
        LanguageBalancedSampler(TABLE, languages=("en", "cs"))


ENGLISH = ("dog", "cat", "runs", "sleeps")
WORDS = ("<s>", "</s>", *ENGLISH, "Hund", "Katze", "chien", "chat", "Vogel")
SWITCHER = CodeSwitcher(
    {
        "de": Dictionary([("dog", "Hund"), ("cat", "Katze")]),
        "fr": Dictionary([("dog", "chien"), ("cat", "chat")]),
    },
    beta=1.0,
)
RECORDS = [
    Record(captions={"en": ("dog runs", "dog sleeps"), "de": ("Hund",)}),
    Record(captions={"de": ("Katze", "Vogel")}),
    Record(captions={"en": ("cat runs",)}),
]


class ByWord:
    """A word is a token; sentences are wrapped in special tokens."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[0, *map(WORDS.index, text.split()), 1] for text in texts]


def code_switched(alpha: float = 0.5, variants: int = 3, refresh: int = 0) -> CodeSwitchedCaptions:
    return CodeSwitchedCaptions(
        RECORDS, SWITCHER, ByWord(), alpha=alpha, variants=variants, refresh=refresh
    )


def decode(captions: CodeSwitchedCaptions, rows: np.ndarray) -> list[str]:
    ids, lengths = captions.table.gather(rows)
    ends = np.cumsum(lengths)
    sentences = (ids[end - length : end] for end, length in zip(ends, lengths, strict=True))
    return [" ".join(WORDS[i] for i in sentence[1:-1]) for sentence in sentences]


def test_the_share_alpha_of_captions_is_code_switched_and_stays_with_its_image() -> None:
    captions = code_switched(alpha=0.3)
    images = np.array([0, 2] * 2000)
    texts = decode(captions, captions.sample(images, step_generator(0, 0)))
    plain = [text.split()[0] in ENGLISH for text in texts]
    assert np.mean(plain) == pytest.approx(0.7, abs=0.03)
    dogs, cats = ({text.split()[0] for text in texts[start::2]} for start in (0, 1))
    assert dogs <= {"dog", "Hund", "chien"}
    assert cats <= {"cat", "Katze", "chat"}
    assert {text.split()[1] for text in texts} == {"runs", "sleeps"}
    assert captions.images.tolist() == [0, 2]
    assert captions.table.language_codes == ("en",)  # the language of the original


@pytest.mark.parametrize(("alpha", "plain"), [(0.0, True), (1.0, False)])
def test_alpha_of_zero_and_one_switch_none_and_all(alpha: float, plain: bool) -> None:
    captions = code_switched(alpha)
    texts = decode(captions, captions.sample(np.zeros(50, np.int64), step_generator(0, 0)))
    assert {text.startswith("dog") for text in texts} == {plain}


def test_variants_depend_on_the_step_alone() -> None:
    captions = code_switched(alpha=1.0, variants=8, refresh=10)
    tables = []
    for step in (0, 9, 10, 25, 9):
        captions.sample(np.array([0]), step_generator(0, step))
        tables.append(captions.table.token_ids.tolist())
    assert tables[0] == tables[1] == tables[4]
    assert len({tuple(table) for table in tables[:4]}) == 3
    resumed = code_switched(alpha=1.0, variants=8, refresh=10)
    resumed.sample(np.array([0]), step_generator(0, 25))
    assert resumed.table.token_ids.tolist() == tables[3]
    constant = code_switched(alpha=1.0, variants=8, refresh=0)
    before = constant.table
    constant.sample(np.array([0]), step_generator(0, 10_000))
    assert constant.table is before


def test_plain_captions_are_in_the_chosen_languages() -> None:
    table = CaptionTable.build(RECORDS, ByWord())
    german = PlainCaptions(table, languages=["de"])
    assert german.images.tolist() == [0, 1]
    rows = german.sample(np.array([0, 1] * 50), step_generator(0, 0))
    assert set(table.language_ids[rows].tolist()) == {table.language_codes.index("de")}
    assert table.record_ids[rows].tolist() == [0, 1] * 50
    assert PlainCaptions(table).images.tolist() == [0, 1, 2]
    assert PlainCaptions(table, weights={"en": 1.0}).images.tolist() == [0, 2]
    with pytest.raises(PolyglanceError, match="no caption is in fr: choose from en, de"):
        PlainCaptions(table, languages=["fr"])


def test_captions_are_packed_with_the_model_s_language_ids() -> None:
    table = CaptionTable.build(RECORDS, ByWord())
    text = pack_captions(table, np.array([2, 0]), language_ids=np.array([7, 5]))
    assert text.ids.tolist() == [0, WORDS.index("Hund"), 1, 0, 2, 4, 1]
    assert text.packing.lengths.tolist() == [3, 4]
    assert text.languages is not None
    assert text.languages.tolist() == [5, 7]
    assert pack_captions(table, np.array([0])).languages is None


def test_captions_that_cannot_be_code_switched_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="replaces words of 'en' captions, and there are"):
        CodeSwitchedCaptions(RECORDS[1:2], SWITCHER, ByWord())
    with pytest.raises(PolyglanceError, match=r"alpha is 1\.5"):
        code_switched(alpha=1.5)

    class NoTokens:
        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[] for _ in texts]

    with pytest.raises(PolyglanceError, match="some captions have no tokens"):
        CodeSwitchedCaptions(RECORDS, SWITCHER, NoTokens())
