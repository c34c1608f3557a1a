"""BLEU and chrF against sacrebleu."""

from __future__ import annotations

import pytest

from polyglance.errors import PolyglanceError
from polyglance.evaluation.translation import score_translations

CASES = {
    "de": (
        ["Ein Hund läuft, 1,000.5 m-x 3-4 &quot;schnell&quot;.", "Zwei Männer (alt) stehen da!"],
        ["Ein Hund rennt, 1,000.5 m-x 3-4 \"schnell\".", "Zwei alte Männer stehen [dort]."],
    ),
    "zh": (
        ["一个女孩在海边“躺”着—2只狗。", "两个人 play 足球..."],
        ["一个小女孩躺在海边，2只狗。", "两个人在 play 足球。"],
    ),
    "ja": (["犬が走る。", "二人の男"], ["犬が走っている。", "男が二人"]),
    "ar": (["رجل يجدف، على الماء", "x"], ["رجل يجدف في الماء", "شخص يركب قارب"]),
    "cs": (["Pes", "kočka spí"], ["Pes běží", "kočka"]),  # no 4-gram at all
    "fr": (["un chat noir dort ici", "le"], ["deux chiens", "la"]),  # no match at all
}  # fmt: skip


@pytest.mark.parametrize("language", CASES)
def test_scores_equal_sacrebleu(language: str) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    translations, references = CASES[language]
    scores = score_translations(translations, references, language)
    bleu = sacrebleu.corpus_bleu(translations, [references], tokenize=scores.tokenizer)
    assert scores.bleu == pytest.approx(bleu.score, abs=1e-9)
    chrf = sacrebleu.corpus_chrf(translations, [references])
    assert scores.chrf == pytest.approx(chrf.score, abs=1e-9)


def test_equal_texts_score_100_and_other_numbers_of_texts_are_an_error() -> None:
    text = ["Ein Hund läuft durch den Schnee."]
    scores = score_translations(text, text, "de")
    assert (round(scores.bleu), round(scores.chrf), scores.tokenizer) == (100, 100, "13a")
    with pytest.raises(PolyglanceError, match="2 translations cannot be compared with 1"):
        score_translations([*text, "x"], text, "de")
