from __future__ import annotations

import builtins
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.text import segment
from polyglance.text.segment import address_spans, normalise_word, word_spans


def words(
    text: str, language: str, *, use_segmenter: bool = False, lower: bool = True
) -> list[str]:
    return [
        normalise_word(text[start:end], language, lower=lower)
        for start, end in word_spans(text, language, use_segmenter=use_segmenter)
    ]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "A dog's ball, isn't it?", ["a", "dog's", "ball", "isn't", "it"]),
        ("en", "'quoted' rock’n’roll dogs'", ["quoted", "rock'n'roll", "dogs"]),
        ("en", "well-known U.S. e-mail 3.5", ["well", "known", "u", "s", "e", "mail", "3", "5"]),
        ("de", "Größe—STRASSE (Maß)", ["größe", "strasse", "maß"]),
        ("fr", "L'homme qu’il aujourd'hui", ["l'", "homme", "qu'", "il", "aujourd'", "hui"]),
        ("tr", "ISPARTA İzmir'de", ["ısparta", "izmir'de"]),
        ("cs", "Pr\u030ci\u0301lis\u030c z\u030clut\u030c", ["příliš", "žluť"]),
        ("ru", "Собака бежит.", ["собака", "бежит"]),
        ("ar", "الكلب يجري، بسرعة؟", ["الكلب", "يجري", "بسرعة"]),
        ("fa", "می\u200cخواهم بروم", ["می\u200cخواهم", "بروم"]),
        ("hi", "हिन्दी में किताब।", ["हिन्दी", "में", "किताब"]),
        ("ko", "개가 해변을 달린다.", ["개가", "해변을", "달린다"]),
        ("he", "כֶּלֶב רץ", ["כֶּלֶב", "רץ"]),
        ("zh", "一只黑狗，在跑。", ["一", "只", "黑", "狗", "在", "跑"]),
        ("zh", "我用iPhone15拍了２０张照", ["我", "用", "iphone15", "拍", "了", "20", "张", "照"]),
        ("ja", "黒い犬が走る。", ["黒", "い", "犬", "が", "走", "る"]),
        ("ja", "東京タワーへ行きました", ["東京", "タワー", "へ", "行", "きました"]),
        ("ja", "人々はｺｰﾋｰとCDを", ["人々", "は", "コーヒー", "と", "cd", "を"]),
        ("th", "เด็กเล่นน้ำ", ["เด็", "ก", "เล่", "น", "น้ำ"]),
        ("lo", "ເດັກນ້ຳ", ["ເດັ", "ກ", "ນ້ຳ"]),
        ("en", "soft\u00adly zero\u200bwidth \u200eleft", ["softly", "zero", "width", "left"]),
        ("en", "👍🏽 ❤️ … — 100 % €", ["100"]),
        ("en", "", []),
        ("en", " \n\t", []),
    ],
)
def test_words_of_many_scripts(language: str, text: str, expected: list[str]) -> None:
    assert words(text, language) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://dogs.org/a-dog?x=1#b now", ["https://dogs.org/a-dog?x=1#b"]),
        ("www.dogs.de, a dog", ["www.dogs.de,"]),
        ("(HTTP://Dogs.ORG) dogs", ["HTTP://Dogs.ORG)"]),
        ("mail big.dog+x@a-dog.example.org or dog.com/dog", ["big.dog+x@a-dog.example.org",
                                                             "dog.com/dog"]),
        ("看http://a.com/dog狗", ["http://a.com/dog"]),
        ("a dog. Come and/or go @ 3.5:30 http:// wwwhat end.in", []),
    ],
)  # fmt: skip
def test_web_and_mail_addresses(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in address_spans(text)] == expected


def test_case_is_kept_without_lower() -> None:
    assert words("Der ＨＵＮＤ", "de", lower=False) == ["Der", "HUND"]


def test_chinese_segmenter() -> None:
    text = "三只猫睡在蓝色的沙发上。"
    found = words(text, "zh", use_segmenter=True)
    assert "沙发" in found
    assert "蓝色" in found
    assert "".join(found) == text.rstrip("。")


def test_japanese_segmenter() -> None:
    text = "赤いジャケットを着た男性が 雪山に登っている。"
    found = words(text, "ja", use_segmenter=True)
    assert {"赤い", "ジャケット", "男性", "登っ"} <= set(found)
    assert "".join(found) == text.replace(" ", "").rstrip("。")


def test_languages_without_a_segmenter_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="only for zh and ja"):
        word_spans("ein Hund", "de", use_segmenter=True)


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_a_missing_segmenter_names_its_extra(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "find_spec", lambda name: None)
    segment._jieba.cache_clear()
    segment._mecab.cache_clear()
    with pytest.raises(MissingExtraError, match=r"polyglance\[segment\]"):
        word_spans("犬", language, use_segmenter=True)


def test_splitting_by_script_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name in ("jieba", "fugashi", "unidic_lite"):
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert words("黒い犬", "ja") == ["黒", "い", "犬"]
    assert words("黑狗", "zh") == ["黑", "狗"]


@given(st.text(), st.sampled_from(["en", "fr", "ja", "zh", "th", "tr"]))
def test_every_letter_is_in_exactly_one_word(text: str, language: str) -> None:
    cuts = word_spans(text, language)
    assert all(start < end for start, end in cuts)
    assert all(before[1] <= after[0] for before, after in pairwise(cuts))
    inside = {place for start, end in cuts for place in range(start, end)}
    letters = {at for at, c in enumerate(text) if c.isalnum() and unicodedata.category(c) != "Lm"}
    assert letters <= inside


@given(st.text(), st.sampled_from(["en", "tr"]))
def test_normalisation_is_idempotent(text: str, language: str) -> None:
    once = normalise_word(text, language)
    composed = normalise_word(unicodedata.normalize("NFC", text), language)
    decomposed = normalise_word(unicodedata.normalize("NFD", text), language)
    assert normalise_word(once, language) == once
    assert composed == decomposed
