"""One code a language, whatever a dataset writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyglance import languages
from polyglance.languages import (
    get_language,
    is_language_code,
    is_right_to_left,
    is_spaceless,
    normalise_language,
)

# The 112 codes (ISO 639-3) of the Tatoeba pairs, and what they are here where that differs.
TATOEBA = """
afr:af amh:am ang ara:ar arq arz ast awa aze:az bel:be ben:bn ber bos:bs bre:br bul:bg cat:ca cbk
ceb ces:cs cha:ch cmn:zh cor:kw csb cym:cy dan:da deu:de dsb dtp ell:el epo:eo est:et eus:eu fao:fo
fin:fi fra:fr fry:fy gla:gd gle:ga glg:gl gsw heb:he hin:hi hrv:hr hsb hun:hu hye:hy ido:io ile:ie
ina:ia ind:id isl:is ita:it jav:jv jpn:ja kab kat:ka kaz:kk khm:km kor:ko kur:ku kzj:dtp lat:la lfn
lit:lt lvs:lv mal:ml mar:mr max mhr mkd:mk mon:mn nds nld:nl nno:nn nob:nb nov oci:oc orv pam pes:fa
pms pol:pl por:pt ron:ro rus:ru slk:sk slv:sl spa:es sqi:sq srp:sr swe:sv swg swh:sw tam:ta tat:tt
tel:te tgl:tl tha:th tuk:tk tur:tr tzl uig:ug ukr:uk urd:ur uzb:uz vie:vi war wuu xho:xh yid:yi yue
zsm:ms
"""


def test_tatoeba_codes() -> None:
    pairs = [word.partition(":") for word in TATOEBA.split()]
    assert len(pairs) == 112
    for code, _, expected in pairs:
        assert normalise_language(code) == (expected or code)
        assert get_language(code).english_name != code, f"no English name for {code}"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("cz", "cs"),
        ("jp", "ja"),
        ("cn", "zh"),
        ("kr", "ko"),
        ("ua", "uk"),
        ("iw", "he"),
        ("in", "id"),
        ("zh-CN", "zh"),
        ("zh_Hant_TW", "zh"),
        ("zho", "zh"),
        ("chi", "zh"),
        ("zh-yue", "yue"),
        ("pt-BR", "pt"),
        ("pt_PT", "pt"),
        ("en-US", "en"),
        ("es-419", "es"),
        ("ger", "de"),
        ("EN", "en"),
        (" de ", "de"),
        ("German", "de"),
        ("čeština", "cs"),
        ("日本語", "ja"),
        ("simple", "en"),
        ("sr-Latn", "sr"),
    ],
)
def test_common_spellings(written: str, code: str) -> None:
    assert normalise_language(written) == code


def test_an_unknown_code_passes_in_lower_case() -> None:
    assert normalise_language("XX") == "xx"
    assert normalise_language("brx-IN") == "brx"
    assert get_language("brx").english_name == "brx"
    assert not is_language_code("brx")


@pytest.mark.parametrize("garbage", ["", " ", "x", "e n", "12", "english!", "de-", "a\x00", "🙂"])
def test_garbage_is_refused_with_what_was_expected(garbage: str) -> None:
    with pytest.raises(ValueError, match="a language code such as 'de'"):
        normalise_language(garbage)


def test_names_and_scripts() -> None:
    german, arabic, japanese = get_language("de"), get_language("ara"), get_language("jp")
    assert (german.english_name, german.native_name) == ("German", "Deutsch")
    assert (german.right_to_left, german.spaceless) == (False, False)
    assert (arabic.code, arabic.native_name, arabic.right_to_left) == ("ar", "العربية", True)
    assert (japanese.native_name, japanese.spaceless) == ("日本語", True)
    assert [code for code in ("he", "fa", "ur", "yi", "zh", "en") if is_right_to_left(code)] == [
        "he",
        "fa",
        "ur",
        "yi",
    ]
    assert [code for code in ("zh-TW", "th", "km", "ko", "vi") if is_spaceless(code)] == [
        "zh-TW",
        "th",
        "km",
    ]


def test_every_code_of_the_table_stands_for_one_language() -> None:
    all_codes: set[str] = set()
    for row in languages._TABLE.strip().splitlines():
        codes = row.split("|")[0].split()
        for code in codes:
            assert code not in all_codes, f"{code} is in the table twice"
            assert normalise_language(code) == codes[0]
            assert is_language_code(code)
        all_codes.update(codes)
    two_letters = {code for code in languages._NAMES if len(code) == 2}
    assert len(two_letters) == 183  # ISO 639-1, less Kanuri's "kr", which people write for Korean
    assert all_codes >= languages._RIGHT_TO_LEFT | languages._SPACELESS


@given(st.text(max_size=12))
def test_any_text_is_a_stable_code_or_refused(text: str) -> None:
    try:
        code = normalise_language(text)
    except ValueError:
        return
    assert normalise_language(code) == code
    assert code == code.lower()
    assert get_language(text).code == code
