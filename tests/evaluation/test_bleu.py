"""BLEU by hand, and equal to sacrebleu's."""

from __future__ import annotations

import importlib.util
import math
import random
import sys

import pytest

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.evaluation.bleu import _sacrebleu_tokenizer, corpus_bleu, sentence_bleu

PIECES = (
    "a", "dog", "runs", "Dog", "1,000.5", "3-4", "&quot;x&quot;", "(old)", "m-x", "don't", "läuft,",
    "海边", "“躺”", "—2只", "في", "الماء،", "-", "<skipped>", "...", "x.y", " ", "\u00a0", "ﬁ",
)  # fmt: skip


def texts(seed: int, count: int) -> tuple[list[str], list[list[str]]]:
    """Random texts, with one to three references each that share pieces with them."""
    draw = random.Random(seed)

    def sentence() -> str:
        return " ".join(draw.choices(PIECES, k=draw.randint(0, 9)))

    predictions = [sentence() for _ in range(count)]
    references = []
    for text in predictions:
        words = text.split(" ")
        draw.shuffle(words)
        references.append([" ".join(words[: draw.randint(1, 9)]), sentence(), sentence()])
    return predictions, [own[: draw.randint(1, 3)] for own in references]


@pytest.mark.parametrize("tokenizer", ["13a", "zh", "char", "none", "intl"])
def test_equals_sacrebleu(tokenizer: str) -> None:
    from sacrebleu.metrics.bleu import BLEU

    corpus = BLEU(tokenize=tokenizer)
    single = BLEU(tokenize=tokenizer, effective_order=True)
    for seed in range(20):
        predictions, references = texts(seed, 1 + seed % 5)
        streams = [[own[n] if n < len(own) else None for own in references] for n in range(3)]
        streams = [stream for stream in streams if any(text is not None for text in stream)]
        expected = corpus.corpus_score(predictions, streams).score
        found = corpus_bleu(predictions, references, tokenizer=tokenizer)
        assert found.score == pytest.approx(expected, abs=1e-9)
        assert found.signature.split("|")[:5] == str(corpus.get_signature()).split("|")[:5]
        scores = [single.sentence_score(*pair).score for pair in zip(predictions, references)]  # noqa: B905
        mean = sum(scores) / len(scores)
        assert sentence_bleu(predictions, references, tokenizer=tokenizer) == pytest.approx(
            mean, abs=1e-9
        )


class TestBleu:
    def test_by_hand(self):
        """Of six words five match, of five pairs three, of four triples only "on the beach"."""
        result = corpus_bleu(["a dog runs on the beach"], [["a dog walks on the beach"]])
        expected = 100 * (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25
        # No run of four matches; smoothing counts half of one.
        assert result.score == pytest.approx(expected)
        assert result.tokenizer == "13a"
        assert "tok:13a" in result.signature

    def test_brevity_penalty_and_the_closest_of_several_references(self):
        result = corpus_bleu(
            ["a dog runs on", "two men"], [["a dog runs on grass", "x"], ["two men"]]
        )
        # Six words against seven of the closest references; every n-gram matches.
        assert result.score == pytest.approx(100 * math.exp(1 - 7 / 6))

    def test_chinese_is_split_into_characters(self):
        result = corpus_bleu(["一只狗在海滩上"], [["一只猫在海滩上"]], "zh")
        assert result.tokenizer == "zh"
        matches = [(6, 7), (4, 6), (2, 5), (1, 4)]
        expected = 100 * math.prod(hit / all_ for hit, all_ in matches) ** 0.25
        assert result.score == pytest.approx(expected)

    def test_japanese_names_what_it_needs_or_runs(self):
        sentences = ["犬が浜辺を走っている"], [["犬が浜辺を走っている"]]
        if importlib.util.find_spec("MeCab") is None:
            with pytest.raises(PolyglanceError, match=r"sacrebleu\[ja\].*'char'"):
                corpus_bleu(*sentences, "ja")
        else:
            assert corpus_bleu(*sentences, "ja").score == pytest.approx(100)
        assert corpus_bleu(*sentences, "ja", tokenizer="char").score == pytest.approx(100)

    def test_languages_without_spaces_are_split_into_characters(self):
        assert corpus_bleu(["หมาวิ่ง"], [["หมาวิ่ง"]], "th").tokenizer == "char"

    def test_tokenizers_that_would_download_are_refused(self):
        with pytest.raises(PolyglanceError, match="offline"):
            corpus_bleu(["a"], [["a"]], tokenizer="flores200")

    def test_a_prediction_without_reference_is_an_error(self):
        with pytest.raises(PolyglanceError, match="at least one reference"):
            corpus_bleu(["a", "b"], [["a"], []])

    def test_without_sacrebleu_only_its_tokenizers_are_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
        _sacrebleu_tokenizer.cache_clear()
        assert corpus_bleu(["a b c d"], [["a b c d"]]).score == pytest.approx(100)
        with pytest.raises(MissingExtraError, match=r"intl.*polyglance\[evaluate\]"):
            corpus_bleu(["a"], [["a"]], tokenizer="intl")

    def test_counts_must_agree(self):
        with pytest.raises(PolyglanceError, match="1 predictions do not match 2"):
            corpus_bleu(["a"], [["a"], ["b"]])
        with pytest.raises(PolyglanceError, match="no predictions"):
            corpus_bleu([], [])
