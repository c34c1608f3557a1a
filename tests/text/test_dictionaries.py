from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.dictd import base64, write_dictd
from polyglance.data.toy import dictionary as toy_dictionary
from polyglance.data.toy.writer import write_dictionary
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.text.dictd import parse_article
from polyglance.text.dictionaries import Dictionary, open_dictionary

# The shapes that FreeDict's articles have, with other words.
BICYCLE = (
    "bicycle /bˈaɪsɪkəl/\n"
    "Fahrrad <neut>, Rad <neut> [Bayr.]  [Ös.] , Drahtesel <masc> [humor.]\n"
    '      "an old bicycle"  - ein altes Fahrrad, ein altes Rad\n'
    "   Synonyms: {cycle}, {bike}\n"
    "\n"
    " see: {bicycles}\n\n"
)
SURMISE = "surmise /səːmaiz/\n1. conjecturer, se douter de\n2. supposer\n"
CLAMP = "dog /dˈɒɡ/\n [techn.] Klammer <fem>\n         Note: (carpentry)\n         Note: x\n"
DOG = "dog /dˈɒɡ/ (dogs) <n>\nHund <masc> [zool.]\n see: {dogs}\n\n"
HALF = "house… /hˈaʊs/ <adj>\nHaus…, häuslich <adj>\n"


def test_articles_yield_only_translations() -> None:
    assert list(parse_article(BICYCLE)) == [
        ("bicycle", "Fahrrad"), ("bicycle", "Rad"), ("bicycle", "Drahtesel"),
    ]  # fmt: skip
    assert [found for _, found in parse_article(SURMISE)] == [
        "conjecturer", "se douter de", "supposer",
    ]  # fmt: skip
    assert list(parse_article(CLAMP)) == [("dog", "Klammer")]
    assert list(parse_article(DOG)) == [("dog", "Hund")]
    assert list(parse_article(HALF)) == []
    assert list(parse_article("")) == list(parse_article("dog")) == []


def test_articles_of_other_publishers() -> None:
    wikdict = "owl //aʊl// /[æʊl]/ <n>\n1. burung hantu, celepuk\na bird\n2. kukuk 2.\nat night\n"
    assert list(parse_article(wikdict, has_definitions=True)) == [
        ("owl", "burung hantu"), ("owl", "celepuk"), ("owl", "kukuk"),
    ]  # fmt: skip
    one = "owlet /ˈaʊlɪt/\nanak burung hantu\na young owl\n"
    assert list(parse_article(one, has_definitions=True)) == [("owlet", "anak burung hantu")]
    # A line between, numbers before and after the grammar, deeper senses, sentences' ends.
    assert list(parse_article("owl /aʊl/\n\nκουκουβάγια\n")) == [("owl", "κουκουβάγια")]
    polish = "hoot /huːt/\nI.  <N>  pohukiwanie\nII.  <V> 1.  huczeć\n 2.  pohukiwać.\n - o sowie\n"
    assert [found for _, found in parse_article(polish)] == ["pohukiwanie", "huczeć", "pohukiwać"]
    assert list(parse_article("give\ngive/take notice, रात~को\n")) == [("give", "रात को")]


@pytest.mark.parametrize("zipped", [True, False])
def test_installed_freedict_dictionary(tmp_path: Path, zipped: bool) -> None:
    articles = [
        ("bicycle", BICYCLE),
        ("cycle", BICYCLE),  # a second way to the same article
        ("dog", CLAMP),
        ("dog", DOG),
        ("long", "long\n" + "x" * 5000 + "\n"),
        ("maedchen", "Mädchen\ngirl\n"),
    ]
    index = write_dictd(tmp_path, articles, zipped=zipped)
    for path in (index, index.with_suffix(".dict.dz"), index.with_suffix(".dict")):
        opened = open_dictionary(path)
        assert set(opened) == {"bicycle", "dog", "long", "mädchen"}
        assert opened.translations("Dog") == ("Klammer", "Hund")
        assert opened.translations("MÄDCHEN") == ("girl",)
        assert opened.translations("cat") == ()


def test_base64_numbers() -> None:
    """By hand, of a published index: F V r r is ((5 * 64 + 21) * 64 + 43) * 64 + 43."""
    assert base64(((5 * 64 + 21) * 64 + 43) * 64 + 43) == "FVrr"
    assert base64(0) == "A"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda index: index.write_text("dog\tA!\tB\n"), "line 1 of the index"),
        (lambda index: index.write_text("dog\tA\n"), "line 1 of the index"),
        (lambda index: index.write_text("dog\t\tB\n"), "line 1 of the index"),
        (lambda index: index.write_text("dog\tZZZZ\tB\n"), "do not belong together"),
        (lambda index: index.write_bytes(b"\xff\xfe"), "damaged"),
        (lambda index: index.unlink(), "cannot be read"),
        (lambda index: index.with_suffix(".dict.dz").unlink(), "cannot be read"),
        (lambda index: index.with_suffix(".dict.dz").write_bytes(b"no"), "cannot be read"),
        (
            lambda index: index.with_suffix(".dict.dz").write_bytes(
                index.with_suffix(".dict.dz").read_bytes()[:-9]
            ),
            "damaged",
        ),
    ],
)
def test_damaged_dictionary_is_refused(tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    index = write_dictd(tmp_path, [("dog", DOG)])
    damage(index)
    with pytest.raises(DataError, match=message):
        open_dictionary(index)


def test_muse_pairs(tmp_path: Path) -> None:
    path = tmp_path / "en-de.txt"
    path.write_text("dog hund\nDog köter\n\ncat\tkatze\n", encoding="utf-8")
    opened = open_dictionary(path)
    assert opened.translations("DOG") == ("hund", "köter")
    assert len(opened) == 2
    assert "Cat" in opened


def test_tab_separated_scores_and_phrases(tmp_path: Path) -> None:
    path = tmp_path / "panlex.tsv"
    path.write_text("ice cream\tled\t2\nice cream\tzmrzlina\t7.5\ndog\tpes\n", encoding="utf-8")
    opened = open_dictionary(path)
    assert opened.translations("ice cream") == ("zmrzlina", "led")
    assert opened.translations("dog") == ("pes",)


def test_scores_sort_across_scattered_lines_of_a_word(tmp_path: Path) -> None:
    path = tmp_path / "panlex.tsv"
    lines = ("dog\tBock\t1", "cat\tKatze\t1", "Dog\tHund\t9", "dog\tKöter\t5", "cat\tKater")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    opened = open_dictionary(path)
    assert list(opened) == ["dog", "cat"]
    assert opened.translations("dog") == ("Hund", "Köter", "Bock")
    assert opened.translations("cat") == ("Katze", "Kater")


def test_malformed_lines_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("dog hund\ncat\na b c\nred\trot\tmuch\n\tx\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.txt:2: expected a word and its translation"):
        open_dictionary(path)
    problems = Problems()
    assert len(open_dictionary(path, problems=problems)) == 1
    assert [problem.line for problem in problems.items] == [2, 3, 4, 5]
    for nothing in ("\n", "cat\n", "red\trot\tnan\n"):
        path.write_text(nothing)
        with pytest.raises(PolyglanceError, match="there are none"):
            open_dictionary(path, problems=Problems())


def test_toy_dataset_dictionaries(tmp_path: Path) -> None:
    write_dictionary(tmp_path / "en-ja.txt", "en", "ja")
    opened = open_dictionary(tmp_path / "en-ja.txt")
    for word, translations in toy_dictionary("en", "ja").items():
        assert opened.translations(word) == translations


def test_reverse_merge_and_rank(tmp_path: Path) -> None:
    german = Dictionary([("dog", "Bock"), ("dog", "Hund"), ("hound", "Hund"), ("dog", "der Hund")])
    back = german.reversed(source="de")
    assert back.translations("hund") == ("dog", "hound")
    assert back.source == "de"
    ranked = german.ranked({"hund": 5})
    assert ranked.translations("dog") == ("Hund", "Bock", "der Hund")
    both = german | Dictionary([("dog", "Köter"), ("cat", "Katze")])
    assert both.translations("dog") == ("Bock", "Hund", "der Hund", "Köter")
    assert both.translations("cat") == ("Katze",)
    both.save(tmp_path / "both.tsv")
    assert list(open_dictionary(tmp_path / "both.tsv").pairs()) == list(both.pairs())


def test_turkish_case_rules() -> None:
    pairs = [("ILIK", "warm"), ("ilik", "buttonhole")]
    assert Dictionary(pairs, source="tr").translations("ılık") == ("warm",)
    assert Dictionary(pairs).translations("ilik") == ("warm", "buttonhole")


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3))))
def test_reversing_twice_keeps_every_pair(pairs: list[tuple[str, str]]) -> None:
    once = Dictionary(pairs)
    twice = once.reversed().reversed()
    for word, translation in once.pairs():
        if not once.normalise(translation):  # a soft hyphen, say, which is no word to look up
            continue
        assert word in once.reversed().translations(translation)
        assert once.normalise(translation) in {
            once.normalise(one) for one in twice.translations(word)
        }
