"""Captions that translate each other, and the words that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.text_encoder import unigram_tokenizer
from polyglance.batches.order import Streaming
from polyglance.data.caption_files import build_captions
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Caption, Picture, ToyDataset
from polyglance.data.toy import align_captions as true_alignment
from polyglance.errors import DataError, PolyglanceError
from polyglance.objectives.co_masking import co_mask
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.uc2.aligned_captions import (
    AlignedCaptions,
    AlignedPair,
    align_captions,
    read_aligned,
    word_tokens,
    write_aligned,
)
from polyglance.recipes.uc2.alignment_files import open_alignments, parts, write_alignments
from polyglance.recipes.uc2.config import Translations
from polyglance.records import Record
from polyglance.text.alignment import AlignerSettings
from polyglance.text.tokenizer import Encoding, Tokenizer
from polyglance.training.mixture import step_generator

OTHERS = ("de", "fr", "cs", "ru", "ar", "ja", "zh")


@cache
def bilingual() -> list[Picture]:
    return list(ToyDataset(seed=0, languages=("en", "de"), captions_per_language=1).pictures(200))


@cache
def pictures() -> list[Picture]:
    return list(ToyDataset(seed=0, captions_per_language=1).pictures(160))


@cache
def toy_records() -> list[Record]:
    return [picture.record() for picture in pictures()]


def linked_words(**options: float) -> Counter[str]:
    pairs = align_captions([picture.record() for picture in bilingual()], "en", "de", **options)
    return Counter(
        bilingual()[pair.image].translations["en"].text.split()[i].lower()
        for pair in pairs
        for i, _ in pair.links
    )


def test_all_links_are_kept_unless_a_lift_is_asked_for() -> None:
    words, lifted = linked_words(), linked_words(min_lift=2.5)
    assert {"red", "circle"} <= set(lifted)
    assert not set(lifted) & {"a", "the"}
    assert words["a"] + words["the"] > 50
    assert lifted["red"] == words["red"]
    assert lifted.total() < words.total()


def test_fast_aligns_model_can_be_chosen() -> None:
    settings = Translations(aligner="fast_align").aligner_settings
    assert settings == AlignerSettings.fast_align() == Translations().aligner_settings
    assert Translations(aligner="hmm").aligner_settings == AlignerSettings()
    records = [picture.record() for picture in bilingual()]
    by_model = [
        align_captions(records, "en", "de", settings=Translations(aligner=name).aligner_settings)
        for name in ("fast_align", "hmm")
    ]
    assert by_model[0] != by_model[1]
    assert len(by_model[0]) == len(by_model[1]) == len(records)


def test_closest_caption_of_the_image_is_chosen() -> None:
    # Each image has captions of two others besides its own; only one fits its German caption.
    texts = [picture.record().captions for picture in bilingual()]
    records = [
        Record(
            captions={
                "en": tuple(texts[(number + step) % 200]["en"][0] for step in (7, 0, 31)),
                "de": texts[number]["de"],
            }
        )
        for number in range(200)
    ]
    more = [Record(captions=captions) for captions in texts]
    pairs = align_captions(records, "en", "de", texts=more)
    assert [pair.image for pair in pairs] == list(range(200))
    # Some scenes differ in a word that captions leave out: not all can be distinguished.
    assert sum(pair.first == 1 for pair in pairs) > 190
    by_place = align_captions(records, "en", "de", pairing="same-place", texts=more)
    assert {pair.first for pair in by_place} == {0}


def test_links_are_cached_until_the_key_changes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "en-de.tsv"
    pairs = [AlignedPair(0, 1, 2, ((0, 0), (3, 5))), AlignedPair(7, 0, 0, ())]
    assert read_aligned(path, "key") is None
    write_aligned(path, pairs, "key")
    assert read_aligned(path, "key") == pairs
    assert read_aligned(path, "another") is None
    path.write_text("# key\n1\t2\tx\t0-0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"en-de\.tsv:2: expected an image"):
        read_aligned(path, "key")


def test_captions_in_one_language_cannot_be_aligned() -> None:
    with pytest.raises(PolyglanceError, match="captions in both en and fr"):
        align_captions([picture.record() for picture in bilingual()], "en", "fr")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [text for r in toy_records() for captions in r.captions.values() for text in captions]
    return unigram_tokenizer(texts, pieces=700)


def toy_spans(caption: Caption) -> list[tuple[int, int]]:
    """Return the spans of the toy dataset's own words in a caption."""
    spans, end = [], 0
    for token in caption.tokens:
        start = caption.text.index(token.text, end)
        end = start + len(token.text)
        spans.append((start, end))
    return spans


def toy_words(caption: Caption, span: tuple[int, int]) -> list[int]:
    """Return the toy dataset's words that a sub-word overlaps."""
    return [
        n for n, (start, end) in enumerate(toy_spans(caption)) if start < span[1] and end > span[0]
    ]


def is_translation(
    picture: Picture, language: str, ours: tuple[int, int], theirs: tuple[int, int]
) -> bool | None:
    """Return whether two sub-words translate each other; None for function words on both sides."""
    here, there = (picture.translations[code] for code in ("en", language))
    first, second = toy_words(here, ours), toy_words(there, theirs)
    true_links = set(true_alignment(here, there))
    if any((i, j) in true_links for i in first for j in second):
        return True
    senses = [here.tokens[i].sense for i in first] + [there.tokens[j].sense for j in second]
    return False if any(senses) else None


def sampled_cases(pairs: AlignedCaptions, tokenizer: Tokenizer, count: int) -> list[bool]:
    """Return whether sub-words that were masked together are translations, where that is known."""
    table = pairs.table
    masking = TokenMasking(tokenizer.mask_id or 0, (4, tokenizer.vocab_size - 1))
    sampled = pairs.sample(600, np.random.default_rng(0))
    pair = pairs.gather(sampled)
    masked = torch.zeros(len(pair.ids), dtype=torch.bool)
    masked[co_mask(pair, masking, ItemDraws.of(0, 600)).positions] = True
    together = pair.links[:, masked[pair.links].all(0)].T.tolist()
    pair_ids = torch.cat([pair.first.sequence_ids, pair.second.sequence_ids]).tolist()
    positions = torch.cat([pair.first.positions, pair.second.positions]).tolist()
    cases: list[bool] = []
    for ours, theirs in (together[i] for i in np.random.default_rng(1).permutation(len(together))):
        rows = [side[sampled[pair_ids[ours]]] for side in (pairs.first, pairs.second)]
        language = table.language_codes[table.language_ids[rows[1]]]
        number = int(table.record_ids[rows[0]])
        spans = []
        for row, token, code in zip(rows, (ours, theirs), ("en", language), strict=True):
            assert table.record_ids[row] == number
            encoding = tokenizer.encode_with_spans(toy_records()[number].captions[code][0])
            assert pair.ids[token] == encoding.ids[positions[token]]
            assert encoding.spans is not None
            spans.append(encoding.spans[positions[token]])
        case = is_translation(pictures()[number], language, spans[0], spans[1])
        cases += [] if case is None else [case]
        if len(cases) == count:
            break
    return cases


def test_nine_of_ten_co_masked_tokens_are_translations(tokenizer: Tokenizer) -> None:
    records = toy_records()
    aligned = {("en", code): align_captions(records, "en", code, min_lift=2.5) for code in OTHERS}
    table = CaptionTable.build(records, tokenizer)
    pairs = AlignedCaptions.from_links(records, table, tokenizer, aligned)
    assert len(pairs) == len(OTHERS) * len(records)
    cases = sampled_cases(pairs, tokenizer, 200)
    assert len(cases) == 200
    assert sum(cases) >= 180
    # The measure can fail: the same captions with links that are one word off.
    off = {
        codes: [
            replace(pair, links=tuple((i, max(0, j - 1)) for i, j in pair.links)) for pair in some
        ]
        for codes, some in aligned.items()
    }
    wrong = sampled_cases(
        AlignedCaptions.from_links(records, table, tokenizer, off), tokenizer, 200
    )
    assert sum(wrong) < 100


def test_mapped_links_equal_those_in_memory(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lacking = replace(toy_records()[30], captions={"en": ("no other",)})
    records = [*toy_records()[:30], lacking, *toy_records()[31:50]]
    table = build_captions(records, tokenizer, tmp_path / "captions", "captions")
    languages = [("en", "de"), ("en", "zh")]

    def link(part: Sequence[Record], language: str) -> list[AlignedPair]:
        numbers = [n for n, record in enumerate(part) if language in record.captions]
        return [AlignedPair(n, 0, 0, ((0, 1), (2, n % 2))) for n in numbers]

    by_part = {
        codes: [
            replace(pair, image=start + pair.image)
            for start, part in parts(records, 20)
            for pair in link(part, codes[1])
        ]
        for codes in languages
    }
    assert [(start, len(part)) for start, part in parts(records, 20)] == [(0, 20), (20, 30)]
    aligned_parts = []

    def align(part: Sequence[Record], language: str) -> Sequence[AlignedPair]:
        aligned_parts.append(len(part))
        return link(part, language)

    folder = tmp_path / "links"
    assert open_alignments(folder, "key", table) is None
    write_alignments(folder, "key", records, table, tokenizer, languages, align, part_images=20)
    assert aligned_parts == [20, 30, 20, 30]
    assert open_alignments(folder, "another", table) is None
    streaming = Streaming(per_batch=8, seed=1)
    mapped = open_alignments(folder, "key", table, streaming=streaming)
    assert mapped is not None
    assert isinstance(mapped.first, np.memmap)
    known = AlignedCaptions.from_links(records, table, tokenizer, by_part, streaming=streaming)
    assert len(mapped) == len(known) == 2 * 49
    assert np.array_equal(mapped.first, known.first)
    for step in range(3):
        drawn = [some.sample(8, step_generator(0, step)) for some in (mapped, known)]
        assert np.array_equal(*drawn)
        ours, theirs = mapped.gather(drawn[0]), known.gather(drawn[1])
        assert torch.equal(ours.ids, theirs.ids)
        assert torch.equal(ours.links, theirs.links)
        assert len(ours.links[0]) > 8
    with pytest.raises(PolyglanceError, match="no captions translate each other"):
        write_alignments(
            tmp_path / "none", "key", records, table, tokenizer, [("en", "sw")], align,
            part_images=20,
        )  # fmt: skip
    assert not (tmp_path / "none").exists()


def test_languages_are_sampled_evenly(tokenizer: Tokenizer) -> None:
    table = CaptionTable.build(toy_records(), tokenizer)
    aligned = {
        ("en", code): [AlignedPair(number, 0, 0, ()) for number in range(count)]
        for code, count in (("de", 150), ("zh", 10))
    }
    pairs = AlignedCaptions.from_links(toy_records(), table, tokenizer, aligned)
    sampled = pairs.sample(4000, np.random.default_rng(0))
    chinese = table.language_ids[pairs.second[sampled]] == table.language_codes.index("zh")
    assert chinese.mean() == pytest.approx(0.5, abs=0.03)
    assert len(np.unique(sampled)) == 160
    assert np.array_equal(table.record_ids[pairs.first], table.record_ids[pairs.second])


def test_words_are_mapped_to_the_sub_words_that_spell_them() -> None:
    class Halves:
        """Splits at spaces and inside words; Chinese into pairs of characters."""

        def encode_with_spans(self, text: str) -> Encoding:
            cuts = {"a tiger": [(0, 1), (1, 4), (4, 7)], "一只老虎": [(0, 2), (2, 3), (3, 4)]}
            spans = [(0, 0), *cuts[text], (0, 0)]
            return Encoding(list(range(len(spans))), [], spans)

    tokenizer: Tokenizer = Halves()  # type: ignore[assignment]
    assert word_tokens("a tiger", "en", tokenizer, 5) == [[1], [2, 3]]
    assert word_tokens("一只老虎", "zh", tokenizer, 5) == [[1], [1], [2], [3]]
    # A truncated caption: <s> 一只 </s>.
    assert word_tokens("一只老虎", "zh", tokenizer, 3) == [[1], [1], [], []]


def test_tokenizer_without_spans_is_refused() -> None:
    class Slow:
        def encode_with_spans(self, text: str) -> Encoding:
            return Encoding([0, 5, 2], [], None)

    with pytest.raises(PolyglanceError, match="knows the spans of sub-words"):
        word_tokens("dog", "en", Slow(), 3)  # type: ignore[arg-type]
