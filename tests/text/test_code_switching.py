"""Code-switching: how often, into what, and that what comes out is still a sentence."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.e5 import e5_tokenizer
from polyglance.data.toy import LANGUAGES, ToyDataset
from polyglance.data.toy import dictionary as toy_dictionary
from polyglance.errors import PolyglanceError
from polyglance.text import Tokenizer
from polyglance.text.code_switching import CodeSwitchedText, CodeSwitcher, is_translation
from polyglance.text.dictionaries import Dictionary

GERMAN = Dictionary(
    [("a", "ein"), ("dog", "Hund"), ("dog", "Köter"), ("dog", "Klammer"), ("run", "rennen"),
     ("t-shirt", "Hemd"), ("ice cream", "Eis"), ("ice", "Glatteis"), ("box", "Kiste")],
    source="en",
)  # fmt: skip
JAPANESE = Dictionary([("a", "一"), ("dog", "犬"), ("run", "走る"), ("big", "大きい")], source="en")
ENGLISH_FROM_CHINESE = Dictionary(
    [("狗", "dog"), ("自行车", "bicycle"), ("车", "car")], source="zh"
)


def always(**dictionaries: Dictionary) -> CodeSwitcher:
    return CodeSwitcher(dictionaries, beta=1, rank_exponent=np.inf)


def switch(switcher: CodeSwitcher, text: str, seed: int = 0) -> str:
    return switcher(text, np.random.default_rng(seed)).text


def is_consistent(original: str, found: CodeSwitchedText) -> bool:
    """Return whether undoing the replacements gives the original text."""
    text, at = "", 0
    for span in found.replacements:
        text += found.text[at : span.start] + span.original
        at = span.end
    return text + found.text[at:] == original


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog", "ein Hund"),
        ("A dog, a cat.", "Ein Hund, ein cat."),
        ("THE DOG RUNS! A dog?", "THE HUND RENNEN! Ein Hund?"),
        ("The Dog", "The Hund"),  # German writes nouns so, capital or not
        ("the dog's box", "the Hund's Kiste"),
        ("dogs running in boxes", "Hund rennen in Kiste"),
        ("two t-shirts", "two Hemd"),
        ("a t-bone (a dog)", "ein t-bone (ein Hund)"),
        ("a dog-box", "ein Hund-Kiste"),
        ("ice cream", "Glatteis cream"),
        ("it's a dog’s run", "it's ein Hund’s rennen"),
        ("", ""),
        ("...", "..."),
    ],
)
def test_words_case_and_punctuation(text: str, expected: str) -> None:
    found = always(de=GERMAN)(text, np.random.default_rng(0))
    assert found.text == expected
    assert is_consistent(text, found)


def test_addresses_are_not_changed() -> None:
    text = "A dog at www.dog.org/dog-box, http://box.de or dog@box.com, a box."
    found = always(de=GERMAN)(text, np.random.default_rng(0))
    assert found.text == (
        "Ein Hund at www.dog.org/dog-box, http://box.de or dog@box.com, ein Kiste."
    )
    assert is_consistent(text, found)


def test_phrases_up_to_max_phrase_words() -> None:
    switcher = CodeSwitcher({"de": GERMAN}, beta=1, max_phrase_words=3)
    assert switch(switcher, "Ice cream, a big ice") == "Eis, ein big Glatteis"


def test_languages_without_spaces() -> None:
    assert switch(always(ja=JAPANESE), "a big dog runs.") == "一 大きい 犬 走る."
    chinese = CodeSwitcher({"en": ENGLISH_FROM_CHINESE}, source="zh", beta=1)
    found = chinese("一只狗骑自行车。", np.random.default_rng(0))
    assert found.text == "一只 dog 骑 bicycle。"  # the longest word: no car in a bicycle
    assert [(span.original, found.text[span.start : span.end]) for span in found.replacements] == [
        ("狗", "dog"), ("自行车", "bicycle"),
    ]  # fmt: skip
    to_japanese = Dictionary([("狗", "犬")], source="zh")
    assert switch(CodeSwitcher({"ja": to_japanese}, source="zh", beta=1), "一只狗。") == "一只犬。"


@pytest.mark.parametrize("beta", [0.0, 0.15, 0.5, 0.8, 1.0])
def test_share_of_replaced_words_is_beta(beta: float) -> None:
    """Of 20,000 words that are known; no more than four deviations from what is stated."""
    text = "a dog runs beside a dog"  # five words are known, one is not
    prepared = CodeSwitcher({"de": GERMAN, "ja": JAPANESE}, beta=beta).prepare([text] * 4000)
    found = prepared.draw(np.random.default_rng(7))
    assert prepared.coverage == pytest.approx(5 / 6)
    touched = sum(len(one.replacements) for one in found)
    deviation = np.sqrt(20_000 * beta * (1 - beta))
    assert abs(touched - 20_000 * beta) <= 4 * deviation
    by_word = Counter(span.original for one in found for span in one.replacements)
    assert abs(by_word["runs"] - 4000 * beta) <= 4 * np.sqrt(4000 * beta * (1 - beta))


def test_languages_and_translations_are_drawn_by_weight() -> None:
    rng = np.random.default_rng(3)

    def drawn(**options: object) -> Counter[str]:
        switcher = CodeSwitcher({"de": GERMAN, "ja": JAPANESE}, beta=1, **options)  # type: ignore[arg-type]
        return Counter(switcher.prepare(["dog"] * 9000).draw_texts(rng))

    even = drawn(rank_exponent=0)
    assert even["犬"] == pytest.approx(4500, abs=200)
    for word in ("Hund", "Köter", "Klammer"):
        assert even[word] == pytest.approx(1500, abs=150)
    preferred = drawn(rank_exponent=1, weights={"de": 1})
    # 1 : 1/2 : 1/3 of 9000
    for word, share in (("Hund", 6 / 11), ("Köter", 3 / 11), ("Klammer", 2 / 11), ("犬", 0)):
        assert preferred[word] == pytest.approx(9000 * share, abs=200)
    assert set(drawn(rank_exponent=np.inf)) == {"Hund", "犬"}
    three_to_one = drawn(weights={"de": 3, "ja": 1})
    assert three_to_one["犬"] == pytest.approx(2250, abs=200)


def test_one_word_per_sentence() -> None:
    switcher = CodeSwitcher({"de": GERMAN}, beta=0.1, one_per_sentence=True)
    texts = ["a dog runs", "", "cats only", "dog"] * 500
    found = switcher.prepare(texts).draw(np.random.default_rng(5))
    assert [len(one.replacements) for one in found[:4]] == [1, 0, 0, 1]
    assert all(len(one.replacements) == (text in ("a dog runs", "dog")) for one, text in
               zip(found, texts, strict=True))  # fmt: skip
    which = Counter(one.replacements[0].original for one in found[::4])
    assert all(count == pytest.approx(500 / 3, abs=60) for count in which.values())
    assert len(which) == 3


def toy_switcher(beta: float = 0.5) -> CodeSwitcher:
    dictionaries = {
        code: Dictionary(
            (
                (word, other)
                for word, found in toy_dictionary("en", code).items()
                for other in found
            ),
            source="en",
        )
        for code in LANGUAGES
        if code != "en"
    }
    return CodeSwitcher(dictionaries, beta=beta)


def toy_captions(count: int) -> list[str]:
    return [picture.captions["en"][0].text for picture in ToyDataset(seed=1).pictures(count)]


def test_same_seed_gives_same_texts() -> None:
    texts, switcher = toy_captions(50), toy_switcher()
    first, second = (switcher.prepare(texts).draw_texts(np.random.default_rng(9)) for _ in range(2))
    assert first == second
    other = switcher.prepare(texts).draw_texts(np.random.default_rng(10))
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 40
    with_spans = switcher.prepare(texts).draw(np.random.default_rng(9))
    assert [one.text for one in with_spans] == first
    assert switcher(texts[0], np.random.default_rng(4)) == switcher(
        texts[0], np.random.default_rng(4)
    )


def test_chosen_rows_are_drawn() -> None:
    prepared = always(de=GERMAN).prepare(["a dog", "cats", "a box", ""])
    rng = np.random.default_rng(0)
    assert prepared.draw_texts(rng, [2, 0, 2, 3]) == ["ein Kiste", "ein Hund", "ein Kiste", ""]
    assert prepared.draw_texts(rng, []) == []
    assert [len(one.replacements) for one in prepared.draw(rng, np.array([1, 2]))] == [0, 2]
    assert len(prepared) == 4
    assert always(de=GERMAN).prepare([]).draw_texts(rng) == []


def test_replacements_give_positions_in_the_new_text() -> None:
    texts = toy_captions(200)
    found = toy_switcher().prepare(texts).draw(np.random.default_rng(2))
    assert {span.language for one in found for span in one.replacements} == set(LANGUAGES) - {"en"}
    for text, one in zip(texts, found, strict=True):
        assert is_consistent(text, one)
        for span in one.replacements:
            word = one.text[span.start : span.end]
            known = toy_dictionary("en", span.language)
            candidates = known.get(span.original, ()) or known.get(span.original.lower(), ())
            folded = {candidate.lower() for candidate in candidates}
            assert word.lower() in folded or not candidates  # a base form's translation


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return e5_tokenizer()


def test_elided_forms_are_not_translations(tokenizer: Tokenizer) -> None:
    """The aligner learns *quelqu'* and *l’*, as its words are cut."""
    learned = [
        ("someone", "quelqu'"),
        ("someone", "quelqu’"),
        ("water", "eau"),
        ("today", "aujourd'hui"),
    ]
    switcher = always(fr=Dictionary(learned, source="en"))
    found = switcher("Someone's water today", np.random.default_rng(0))
    assert found.text == "Someone's eau aujourd'hui"
    edges = {edge for span in found.replacements for edge in (span.start, span.end)}
    for start, end in tokenizer.encode_with_spans(found.text, add_special_tokens=False).spans:
        assert not [e for e in edges if start < e < end and found.text[start:e].strip()]


def test_code_switching_keeps_tokenisation_intact(tokenizer: Tokenizer) -> None:
    """Nothing unknown, no token across a span's edge, and all other tokens as they were."""
    texts = toy_captions(300)
    for text, found in zip(
        texts, toy_switcher(0.6).prepare(texts).draw(np.random.default_rng(8)), strict=True
    ):
        encoding = tokenizer.encode_with_spans(found.text, add_special_tokens=False)
        assert tokenizer.unk_id not in encoding.ids
        edges = {span.start for span in found.replacements} | {
            span.end for span in found.replacements
        }
        for start, end in encoding.spans:
            # XLM-R's piece may take the space before a word along
            inside = [e for e in edges if start < e < end and found.text[start:e].strip()]
            assert not inside
        assert tokenizer.decode(encoding.ids) == found.text
        kept = [
            token for token, (start, end) in zip(encoding.tokens, encoding.spans, strict=True)
            if not any(s.start < end and start < s.end for s in found.replacements) and token != "▁"
        ]  # fmt: skip
        before = Counter(tokenizer.encode_with_spans(text, add_special_tokens=False).tokens)
        assert not Counter(kept) - before


@given(st.text(max_size=40), st.integers(0, 5), st.sampled_from(["en", "zh", "fr", "th"]))
def test_any_text_is_handled(text: str, seed: int, source: str) -> None:
    texts = [text, text + " dog A"]
    for beta in (0.0, 0.7):
        switcher = CodeSwitcher({"de": GERMAN, "ja": JAPANESE}, beta=beta, source=source)
        for one, original in zip(
            switcher.prepare(texts).draw(np.random.default_rng(seed)), texts, strict=True
        ):
            gaps = len(one.text.replace(" ", "")) - len(original.replace(" ", ""))
            grown = sum(s.end - s.start - len(s.original) for s in one.replacements)
            assert gaps == grown or " " in "".join(s.original for s in one.replacements)
            if beta == 0:
                assert one == CodeSwitchedText(original, ())


def test_words_come_before_phrases_and_explanations_are_dropped() -> None:
    white = Dictionary([("white", "White River"), ("white", "weiß"), ("white", "as snow is white")])
    assert always(de=white).translations("White", "de") == ("weiß", "White River")
    assert is_translation("Hund")
    assert is_translation("avoir l'air de")
    assert is_translation("नमस्ते")
    assert is_translation("ku\u200cche")
    assert not is_translation("the first letter of it")
    assert not is_translation("see: dog")
    assert not is_translation("(dog)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1.5}, "beta is a probability"),
        ({"beta": float("nan")}, "beta is a probability"),
        ({"rank_exponent": -1}, "at least 0"),
        ({"rank_exponent": float("nan")}, "at least 0, not nan"),
        ({"weights": {"fr": 1}}, "weights"),
        ({"weights": {"de": -1}}, "weights"),
        ({"weights": {"de": float("nan")}}, "weights"),
        ({"weights": {"de": float("inf")}}, "weights"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        CodeSwitcher({"de": GERMAN}, **options)  # type: ignore[arg-type]
    with pytest.raises(PolyglanceError, match="at least one language"):
        CodeSwitcher({})
