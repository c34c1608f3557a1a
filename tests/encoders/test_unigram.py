"""Our unigram tokenizer gives the ids of the ``tokenizers`` library on XLM-R's vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.e5 import e5_tokenizer
from helpers.sentences import SENTENCES
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.export.vocabulary import read_vocabulary
from polyglance.text import Tokenizer
from polyglance.weights.unigram import MASK, SPECIALS

ODD = [
    "", " ", "\n\t ", "▁", "▁▁a▁b", "a  b\u00a0c\u3000d", "A" * 300, "ﬁﬂ ① Ⅷ ｆｕｌｌ ｗｉｄｔｈ",
    "e\u0301 vs é", "각 vs 각", "ก็ กำลัง", "नमस्ते दुनिया", "السلام عليكم", "שָׁלוֹם", "🐕‍🦺 👩‍👩‍👧",
    "\u200b\ufeff\u00ad", "x\x00y\x01z", "𒀀𒁀𓀀", "\ue000\ue001 \ue002", "a\ue000\ue001b\ue002c",
    "don't   stop—now…", "https://example.org/?a=1&b=%20", "１２３ 456 ٧٨٩", "ß ẞ İ ı ǅ",
    "ភាសាខ្មែរ", "ພາສາລາວ", "မြန်မာ", "ქართული", "Հայերեն", "አማርኛ", "\ud800 lone",
    "x" * 17 + " " + "犬" * 40,
]  # fmt: skip
TEXTS = [text for texts in SENTENCES.values() for text in texts]


@pytest.fixture(scope="module")
def original() -> Tokenizer:
    return e5_tokenizer()


@pytest.fixture(scope="module")
def vocabulary(original: Tokenizer) -> Vocabulary:
    """XLM-R's, with some pieces in front, as frequent ones are."""
    frequent = np.random.default_rng(0).random(250_002) < 0.4
    frequent[:4] = True
    return read_vocabulary(original, frequent)


@pytest.fixture(scope="module")
def ours(vocabulary: Vocabulary) -> UnigramTokenizer:
    return UnigramTokenizer(vocabulary)


@pytest.fixture(scope="module")
def order(vocabulary: Vocabulary) -> NDArray[np.int32]:
    return vocabulary.order


@pytest.mark.parametrize("longest", [512, 9, 3])
def test_sentences_in_many_scripts_get_the_original_ids(
    original: Tokenizer, ours: UnigramTokenizer, order: NDArray[np.int32], longest: int
) -> None:
    for text in [*TEXTS, *ODD, " ".join(TEXTS)]:
        expected = order[original.encode(text, max_length=longest)].tolist()
        assert ours.encode(text, longest) == expected, text


@settings(max_examples=300)
@given(st.text(max_size=40))
@example("\ud800 a lone surrogate")
def test_any_text_gets_the_original_ids(
    original: Tokenizer, ours: UnigramTokenizer, order: NDArray[np.int32], text: str
) -> None:
    assume(not any(name in text for name in (*SPECIALS, MASK)))  # see the last test
    assert ours.encode(text, 512) == order[original.encode(text)].tolist()


@settings(max_examples=100)
@given(st.lists(st.sampled_from(list("abenrst äß'-,.▁ 的一狗й𒀀\ue000")), max_size=60).map("".join))
def test_unknown_characters_get_the_original_ids(
    original: Tokenizer, ours: UnigramTokenizer, order: NDArray[np.int32], text: str
) -> None:
    assert ours.encode(text, 512) == order[original.encode(text)].tolist()


def test_a_special_token_in_the_text_is_text(ours: UnigramTokenizer) -> None:
    for text in ("</s>", "a <mask> b", "<s><pad>"):
        inside = ours.encode(text, 512)[1:-1]
        assert not {0, 1, 2, 3} & set(inside)
        assert len(inside) > 2
