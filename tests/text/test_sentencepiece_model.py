"""XLM-R's rules, three ways: our reader, SentencePiece with fairseq's offset, transformers."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sentences import SENTENCES
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.huggingface import FastTokenizer, replace_lone_surrogates

ALL_SENTENCES = [text for texts in SENTENCES.values() for text in texts]

ODD_TEXTS = [
    "", " ", "   ", "\n", "\t\r\n", "\u3000", "▁", "▁▁ a▁b", " leading", "trailing ", "a  b   c",
    "one\ttab\nand a line", "ＦＵＬＬ　ｗｉｄｔｈ １２３", "ﬁve ﬂags, æsthetic, Ǆ", "½ ² ㎏ ℌ ①",
    "e\u0301te\u0301 NFD", "été NFC", "a\u0300\u0301\u0302\u0303b", "각 ᄒ", "ｶﾞｷﾞ", "नि क्‍ष",
    "zero\u200bwidth\u200cjoin\u200ders\ufeff", "left\u200eright\u200f", "soft\u00adhyphen",
    "\x00nul \x01\x02 \x1b[0m \x7f \x85 \x9f", "👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️", "𝕸𝖆𝖙𝖍 𠀋𡈽", "\U0010ffff",
    "<mask>", "a <mask> b", "a<mask>b", " <mask> <mask>", "</s>", "x </s> y", "<s><pad><unk>",
    "＜mask＞ ＜s＞ ＜／s＞", "< mask >", "don't “quote” — … 'x'", "https://example.org/?a=b&c=d",
    "ಕನ್ನಡ ᠮᠣᠩᠭᠣᠯ 𞤀𞤣𞤤𞤢𞤥", "שָׁלוֹם וּבְרָכָה", "ﷺ ﻻ", "İstanbul ıI", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]  # fmt: skip


def train(path: Path, texts: list[str], **options: object) -> None:
    out = io.BytesIO()
    sentencepiece.set_min_log_level(2)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=out,
        **{
            "vocab_size": 700,
            "model_type": "unigram",
            "normalization_rule_name": "nmt_nfkc",
            "character_coverage": 0.98,  # some characters remain unknown
            "hard_vocab_limit": False,
            **options,
        },
    )
    path.write_bytes(out.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("xlmr")
    train(path / "sentencepiece.bpe.model", ALL_SENTENCES * 3)
    return path


@pytest.fixture(scope="module")
def ours(folder: Path) -> Tokenizer:
    return open_tokenizer(folder / "sentencepiece.bpe.model")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Callable[[str], list[int]]:
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(folder)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text).input_ids
        return ids

    return encode


@pytest.fixture(scope="module")
def fairseq(folder: Path) -> Callable[[str], list[int]]:
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))

    def encode(text: str) -> list[int]:
        return [0, *(3 if piece == 0 else piece + 1 for piece in model.encode(text)), 2]

    return encode


def test_special_tokens_have_xlm_rs_ids(ours: Tokenizer, folder: Path) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    assert isinstance(ours, FastTokenizer)
    assert (ours.bos_id, ours.pad_id, ours.eos_id, ours.unk_id) == (0, 1, 2, 3)
    assert ours.mask_id == ours.vocab_size - 1 == len(model) + 1
    assert ours.tokens([4, 5, 6]) == [model.id_to_piece(i) for i in (3, 4, 5)]


def test_sentences_have_the_ids_of_sentencepiece_and_of_transformers(
    ours: Tokenizer, theirs: Callable[[str], list[int]], fairseq: Callable[[str], list[int]]
) -> None:
    encoded = ours.encode_batch(ALL_SENTENCES)
    assert encoded == [fairseq(text) for text in ALL_SENTENCES]
    assert encoded == [theirs(text) for text in ALL_SENTENCES]
    assert any(3 in ids for ids in encoded)  # unknown characters were among them


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_have_the_ids_of_transformers(
    text: str, ours: Tokenizer, theirs: Callable[[str], list[int]]
) -> None:
    assert ours.encode(text) == theirs(text)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(ODD_TEXTS),
            st.sampled_from(ALL_SENTENCES).flatmap(
                lambda s: st.integers(0, len(s)).map(lambda cut: s[cut:])
            ),
            st.text(max_size=8),
            st.text(
                st.sampled_from("aábé ▁\u0301\u0308\u200b\u200d\u3099カｶ\u0652한ᄒ👍🏽<>/sm"),
                max_size=12,
            ),
        ),
        max_size=4,
    ).map("".join)
)
def test_any_text_has_the_ids_of_transformers(
    ours: Tokenizer, theirs: Callable[[str], list[int]], text: str
) -> None:
    assert ours.encode(text) == theirs(text)


def test_literal_specials_in_the_text_are_the_specials(ours: Tokenizer) -> None:
    assert ours.encode("<mask>", add_special_tokens=False) == [ours.mask_id]
    assert ours.encode("</s> <pad>", add_special_tokens=False) == [2, 1]


def test_a_batch_is_the_same_as_one_by_one(ours: Tokenizer) -> None:
    texts = [*ODD_TEXTS, *ALL_SENTENCES]
    assert ours.encode_batch(texts) == [ours.encode(text) for text in texts]
    assert ours.encode_batch([]) == []
    assert ours.encode_batch(texts, add_special_tokens=False, max_length=3) == [
        ours.encode(text, add_special_tokens=False)[:3] for text in texts
    ]


def test_truncation_keeps_the_closing_special_token(ours: Tokenizer) -> None:
    text = ALL_SENTENCES[0]
    full = ours.encode(text)
    assert len(full) > 8
    assert ours.encode(text, max_length=len(full)) == full
    assert ours.encode(text, max_length=6) == [*full[:5], ours.eos_id]
    assert ours.encode(text, max_length=2) == [ours.bos_id, ours.eos_id]
    assert ours.encode(text, add_special_tokens=False, max_length=6) == full[1:7]
    with pytest.raises(PolyglanceError, match="no room"):
        ours.encode(text, max_length=1)


def test_spans_index_the_given_text(ours: Tokenizer) -> None:
    text = "Ｚｗｅｉ  Kinder finden\tdie Burg"
    found = ours.encode_with_spans(text)
    assert found.ids == ours.encode(text)
    assert found.spans is not None
    assert found.spans[0] == found.spans[-1] == (0, 0)
    assert len(found.tokens) == len(found.ids) == len(found.spans)
    places = set()
    for (start, end), token in zip(found.spans[1:-1], found.tokens[1:-1], strict=True):
        places |= set(range(start, end))
        if token != "▁":  # a lone one, put before a word, lies on the word's first letter
            spelling = unicodedata.normalize("NFKC", text[start:end])
            assert spelling == token.removeprefix("▁")
    assert places == {place for place, letter in enumerate(text) if not letter.isspace()}
    short = ours.encode_with_spans(text, max_length=4)
    assert short.ids == ours.encode(text, max_length=4)
    assert short.spans == [*found.spans[:3], (0, 0)]


def test_decoding_gives_the_text_back(ours: Tokenizer) -> None:
    known = [text for text in ALL_SENTENCES if 3 not in ours.encode(text)]
    assert len(known) > 50
    for text in known:
        assert ours.decode(ours.encode(text)) == unicodedata.normalize("NFKC", text)


def test_lone_surrogates_are_replaced(ours: Tokenizer) -> None:
    assert replace_lone_surrogates("a\ud800b") == "a\ufffdb"
    assert replace_lone_surrogates("\ud83d\udc4d") == "👍"  # a pair that was taken apart
    assert ours.encode("a\ud800b") == ours.encode("a\ufffdb")
    assert ours.encode_batch(["a\udfff"]) == [ours.encode("a\ufffd")]


def test_an_unknown_id_is_an_error(ours: Tokenizer) -> None:
    with pytest.raises(PolyglanceError, match="no token of id"):
        ours.tokens([ours.vocab_size])


class TestOtherFiles:
    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        for number, content in enumerate([b"hello world", bytes(50), b"\x0a\x02\x0a\x00", b""]):
            path = tmp_path / f"{number}.model"
            path.write_bytes(content)
            with pytest.raises(DataError, match="expected a"):
                open_tokenizer(path)

    @settings(max_examples=60, deadline=None)
    @given(at=st.one_of(st.integers(0, 4000), st.integers(0, 200_000)), bits=st.integers(1, 255))
    def test_a_damaged_model_is_opened_or_refused(
        self, folder: Path, tmp_path_factory: pytest.TempPathFactory, at: int, bits: int
    ) -> None:
        data = bytearray((folder / "sentencepiece.bpe.model").read_bytes())
        data[at] ^= bits
        path = tmp_path_factory.mktemp("damaged") / "x.model"
        path.write_bytes(bytes(data))
        try:
            tokenizer = open_tokenizer(path)
        except DataError:
            return
        assert tokenizer.vocab_size > 0

    def test_bpe_is_refused(self, tmp_path: Path) -> None:
        train(tmp_path / "bpe.model", ALL_SENTENCES, model_type="bpe")
        with pytest.raises(DataError, match="of type unigram"):
            open_tokenizer(tmp_path / "bpe.model")

    def test_another_order_of_special_tokens_is_refused(self, tmp_path: Path) -> None:
        train(tmp_path / "t5.model", ALL_SENTENCES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        with pytest.raises(DataError, match="first pieces"):
            open_tokenizer(tmp_path / "t5.model")

    def test_user_defined_pieces_are_refused(self, tmp_path: Path) -> None:
        train(tmp_path / "user.model", ALL_SENTENCES, user_defined_symbols="[X]")
        with pytest.raises(DataError, match="normal pieces"):
            open_tokenizer(tmp_path / "user.model")

    def test_without_sentencepiece_the_extra_is_named(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("polyglance.text.sentencepiece_model.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match="train"):
            open_tokenizer(folder / "sentencepiece.bpe.model")
