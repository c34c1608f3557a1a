from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.text_encoder import unigram_tokenizer
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Caption, Picture, ToyDataset, align_captions
from polyglance.errors import PolyglanceError
from polyglance.objectives.co_masking import co_mask
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions, word_pieces
from polyglance.recipes.uc2.link_captions import AlignedPair, align_captions
from polyglance.text.tokenizer import Encoding, Tokenizer

PICTURES = list(ToyDataset(seed=0, captions_per_language=1).pictures(250))
RECORDS = [picture.record() for picture in PICTURES]
OTHERS = ("de", "fr", "cs", "ru", "ar", "ja", "zh")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [text for r in RECORDS for said in r.captions.values() for text in said]
    return unigram_tokenizer(texts, pieces=700)


def spans(caption: Caption) -> list[tuple[int, int]]:
    """Where the toy world's words lie in a caption."""
    found, at = [], 0
    for token in caption.tokens:
        start = caption.text.index(token.text, at)
        at = start + len(token.text)
        found.append((start, at))
    return found


def toy_words(caption: Caption, span: tuple[int, int]) -> list[int]:
    """The toy world's words that a sub-word is a part of."""
    return [n for n, (start, end) in enumerate(spans(caption)) if start < span[1] and end > span[0]]


def is_translation(
    pictures: Sequence[Picture], number: int, language: str, ours: tuple[int, int],
    theirs: tuple[int, int],
) -> bool | None:  # fmt: skip
    """What the toy world knows of two sub-words; None for words of grammar alone on both sides."""
    here, there = (pictures[number].translations[code] for code in ("en", language))
    first, second = toy_words(here, ours), toy_words(there, theirs)
    known = set(align_captions(here, there))
    if any((i, j) in known for i in first for j in second):
        return True
    meaning = [here.tokens[i].sense for i in first] + [there.tokens[j].sense for j in second]
    return False if any(meaning) else None


def sampled_cases(pairs: AlignedCaptions, tokenizer: Tokenizer, count: int) -> list[bool]:
    """Whether sub-words that were hidden together are translations, as far as the world knows."""
    table = pairs.table
    masking = TokenMasking(tokenizer.mask_id or 0, (4, tokenizer.vocab_size - 1))
    torch.manual_seed(0)
    drawn = pairs.draw(600, np.random.default_rng(0))
    pair = pairs.gather(drawn)
    told = torch.zeros(len(pair.ids), dtype=torch.bool)
    told[co_mask(pair, masking).positions] = True
    together = pair.links[:, told[pair.links].all(0)].T.tolist()
    owners = torch.cat([pair.first.sequence_ids, pair.second.sequence_ids]).tolist()
    positions = torch.cat([pair.first.positions, pair.second.positions]).tolist()
    cases = []
    for ours, theirs in (together[i] for i in np.random.default_rng(1).permutation(len(together))):
        rows = [side[drawn[owners[ours]]] for side in (pairs.first, pairs.second)]
        language = table.language_codes[table.language_ids[rows[1]]]
        number = int(table.record_ids[rows[0]])
        places = []
        for row, at, code in zip(rows, (ours, theirs), ("en", language), strict=True):
            assert table.record_ids[row] == number
            found = tokenizer.encode_with_spans(RECORDS[number].captions[code][0])
            assert pair.ids[at] == found.ids[positions[at]]
            assert found.spans is not None
            places.append(found.spans[positions[at]])
        cases.append(is_translation(PICTURES, number, language, places[0], places[1]))
    return [case for case in cases if case is not None][:count]


def test_co_masked_tokens_are_translations_in_nine_of_ten_cases(tokenizer: Tokenizer) -> None:
    linked = {("en", code): align_captions(RECORDS, "en", code) for code in OTHERS}
    table = CaptionTable.build(RECORDS, tokenizer)
    pairs = AlignedCaptions.from_links(RECORDS, table, tokenizer, linked)
    assert len(pairs) == len(OTHERS) * len(RECORDS)
    cases = sampled_cases(pairs, tokenizer, 200)
    assert len(cases) == 200
    assert sum(cases) >= 180
    # The measure can fail: the same captions with links that are one word off.
    off = {
        codes: [
            replace(pair, links=tuple((i, max(0, j - 1)) for i, j in pair.links)) for pair in some
        ]
        for codes, some in linked.items()
    }
    wrong = sampled_cases(
        AlignedCaptions.from_links(RECORDS, table, tokenizer, off), tokenizer, 200
    )
    assert sum(wrong) < 100


def test_other_languages_are_drawn_evenly(tokenizer: Tokenizer) -> None:
    table = CaptionTable.build(RECORDS, tokenizer)
    linked = {
        ("en", code): [AlignedPair(number, 0, 0, ()) for number in range(count)]
        for code, count in (("de", 200), ("zh", 10))
    }
    pairs = AlignedCaptions.from_links(RECORDS, table, tokenizer, linked)
    drawn = pairs.draw(4000, np.random.default_rng(0))
    chinese = table.language_ids[pairs.second[drawn]] == table.language_codes.index("zh")
    assert chinese.mean() == pytest.approx(0.5, abs=0.03)
    assert len(np.unique(drawn)) == 210
    assert np.array_equal(table.record_ids[pairs.first], table.record_ids[pairs.second])


def test_links_of_words_are_those_of_the_sub_words_that_spell_them() -> None:
    class Halves:
        """Cuts at spaces and in the middle of words; Chinese in twos."""

        def encode_with_spans(self, text: str) -> Encoding:
            cuts = {"a tiger": [(0, 1), (1, 4), (4, 7)], "一只老虎": [(0, 2), (2, 3), (3, 4)]}
            found = [(0, 0), *cuts[text], (0, 0)]
            return Encoding(list(range(len(found))), [], found)

    tokenizer: Tokenizer = Halves()  # type: ignore[assignment]
    assert word_pieces("a tiger", "en", tokenizer, 5) == [[1], [2, 3]]
    assert word_pieces("一只老虎", "zh", tokenizer, 5) == [[1], [1], [2], [3]]
    # Of a caption that was cut, what is left: <s> 一只 </s>.
    assert word_pieces("一只老虎", "zh", tokenizer, 3) == [[1], [1], [], []]


def test_a_tokenizer_that_does_not_know_where_is_refused() -> None:
    class Slow:
        def encode_with_spans(self, text: str) -> Encoding:
            return Encoding([0, 5, 2], [], None)

    with pytest.raises(PolyglanceError, match="where sub-words lie"):
        word_pieces("dog", "en", Slow(), 3)  # type: ignore[arg-type]
