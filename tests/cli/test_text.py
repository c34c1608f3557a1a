"""``polyglance text align`` and ``code-switch`` on real files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from polyglance.cli import app
from polyglance.cli.code_switch import print_texts, rank_by_captions, source_words
from polyglance.data.machine_captions import (
    machine_captions_path,
    read_with_machine_captions,
    update_machine_captions,
)
from polyglance.data.toy import ToyDataset
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text import segment
from polyglance.text.alignment.links import read_pharaoh
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import Dictionary, open_dictionary


def text(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(
        app, ["text", *map(str, arguments)], input=stdin, catch_exceptions=False
    )


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A manifest of translations."""
    path = tmp_path / "toy.jsonl"
    pictures = ToyDataset(seed=4).pictures(150)
    write_manifest(
        path,
        (
            Record(captions={code: (picture.captions[code][0].text,) for code in ("en", "de")})
            for picture in pictures
        ),
    )
    return path


@pytest.fixture
def words(tmp_path: Path) -> Path:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "en-de.txt").write_text("dog Hund\na ein\ndog Köter\n", encoding="utf-8")
    (folder / "en-ja.tsv").write_text("dog\t犬\n", encoding="utf-8")
    return folder


def test_align_a_manifest_and_learn_its_dictionary(toy: Path, tmp_path: Path) -> None:
    out, learned = tmp_path / "links", tmp_path / "en-de.tsv"
    done = text("align", toy, "--languages", "en,de", "--out", out, "--dictionary", learned)
    assert done.exit_code == 0
    assert "150 lines" in done.stderr
    links = list(read_pharaoh(out))
    assert len(links) == 150
    assert all(links)
    assert open_dictionary(learned).translations("star")[0] == "Stern"
    # The links of another aligner give the same dictionary.
    again = tmp_path / "again-en-de.tsv"
    text("align", toy, "--languages", "en,de", "--links", out, "--dictionary", again)
    assert again.read_bytes() == learned.read_bytes()
    # The dictionary can be used for code-switching.
    done = text("code-switch", "A red star.", "--dictionaries", learned, "--beta", 1)
    assert "Stern" in done.stdout


def test_align_other_formats_and_malformed_lines(tmp_path: Path) -> None:
    source = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"en": f"the dog {n}", "de": f"der hund {n}"}) for n in range(5)]
    source.write_text("\n".join([*lines, "nonsense"]) + "\n", encoding="utf-8")
    done = text("align", source, "--languages", "en,de")
    assert done.stdout.splitlines() == ["0-0 1-1 2-2"] * 5
    assert "pairs.jsonl:6" in done.stderr
    with pytest.raises(DataError, match=r"pairs\.jsonl:6"):
        text("align", source, "--languages", "en,de", "--strict")
    tatoeba = tmp_path / "tatoeba.tsv"
    tatoeba.write_text("deu\tder hund\tthe dog\n", encoding="utf-8")
    done = text("align", tatoeba, "--languages", "en,de", "--format", "tatoeba")
    assert done.stdout == "0-0 1-1\n"


def test_align_two_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("the dog\nthe cat\na dog\n")
    (tmp_path / "b").write_text("der hund\ndie katze\nein hund\n")
    done = text("align", tmp_path / "a", tmp_path / "b", "--symmetry", "union", "--fast-align")
    assert len(done.stdout.splitlines()) == 3
    assert "1-1" in done.stdout.splitlines()[2]


def test_align_the_format_of_fast_align(tmp_path: Path) -> None:
    source, out = tmp_path / "en-de.txt", tmp_path / "links"
    lines = ["the dog . ||| der hund .", "the cat", "a dog ||| ein hund", "a ||| b ||| c"]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = text("align", source, "--out", out)
    # The full stop is linked as well, and every input line gives a line.
    assert out.read_text().splitlines() == ["0-0 1-1 2-2", "", "0-0 1-1", ""]
    assert "en-de.txt:2: expected" in done.stderr
    assert "en-de.txt:4: expected" in done.stderr
    assert "2 malformed" in done.stderr
    text("align", source, "--languages", "en,de", "--out", out)
    assert out.read_text().splitlines() == ["0-0 1-1", "", "0-0 1-1", ""]
    with pytest.raises(DataError, match=r"en-de\.txt:2"):
        text("align", source, "--strict")


def test_align_the_toy_dataset(tmp_path: Path) -> None:
    pairs = [
        " ||| ".join(" ".join(picture.captions[code][0].words) for code in ("en", "de"))
        for picture in ToyDataset(seed=4).pictures(60)
    ]
    (tmp_path / "en-de.txt").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    tokens = tmp_path / "tokens"
    done = text("align", tmp_path / "en-de.txt", "--tokens", tokens)
    assert all(done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 60
    assert tokens.read_text(encoding="utf-8") == "\n".join(pairs) + "\n"


def test_align_names_malformed_lines_if_there_are_no_others(tmp_path: Path) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text("nonsense\n{}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["text", "align", str(source), "--languages", "en,de"])
    assert isinstance(done.exception, DataError)
    assert "both en and de" in str(done.exception)
    assert "pairs.jsonl:1" in done.stderr
    assert "malformed entries were skipped" in done.stderr


def test_align_writes_the_tokens(tmp_path: Path) -> None:
    source, tokens, out = tmp_path / "m.jsonl", tmp_path / "tokens", tmp_path / "links"
    captions = {"en": ("A blue sofa.", "Cats"), "zh": ("蓝色的沙发。", "猫")}
    write_manifest(source, [Record(captions=captions)])
    options = ("--languages", "en,zh", "--tokens", tokens, "--out", out)
    done = text("align", source, *options)
    assert tokens.read_text(encoding="utf-8") == "A blue sofa ||| 蓝 色 的 沙 发\nCats ||| 猫\n"
    assert len(out.read_text().splitlines()) == 2
    assert "tokens: 2 lines" in done.stderr
    text("align", source, *options, "--segment")
    assert tokens.read_text(encoding="utf-8") == "A blue sofa ||| 蓝色 的 沙发\nCats ||| 猫\n"


def test_align_without_a_segmenter_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "m.jsonl"
    captions = {"en": ("A cat.",), "de": ("Katze",), "zh": ("猫",), "th": ("แมว",)}
    write_manifest(source, [Record(captions=captions)])
    with pytest.raises(PolyglanceError, match="written without spaces"):
        text("align", source, "--languages", "en,de", "--segment")
    with pytest.raises(PolyglanceError, match="only for zh and ja"):
        text("align", source, "--languages", "en,th", "--segment")
    monkeypatch.setattr(segment, "find_spec", lambda name: None)
    segment._jieba.cache_clear()
    with pytest.raises(MissingExtraError, match=r"polyglance\[segment\]"):
        text("align", source, "--languages", "en,zh", "--segment")


def test_sentences_and_seeds(words: Path) -> None:
    arguments = ("code-switch", "A dog.", "The dog?", "--dictionaries", words, "--seed", 3)
    one, two = text(*arguments), text(*arguments)
    assert one.stdout == two.stdout
    assert len(one.stdout.splitlines()) == 2
    all_words = text(*arguments, "--beta", 1, "--languages", "de", "--preference", "inf")
    assert all_words.stdout == "Ein Hund.\nThe Hund?\n"
    none = text(*arguments, "--beta", 0, "--variants", 2)
    assert none.stdout == "A dog.\nA dog.\nThe dog?\nThe dog?\n"


def test_lines_of_files_and_of_standard_input(words: Path, tmp_path: Path) -> None:
    options = ("--dictionaries", words, "--languages", "ja", "--beta", 1)
    assert text("code-switch", *options, stdin="a dog\n\ndogs\n").stdout == "a 犬\n\n犬\n"
    (tmp_path / "in.txt").write_text("a dog\n")
    done = text("code-switch", tmp_path / "in.txt", *options, "--out", tmp_path / "out.txt")
    assert "1 texts, 50% of words in the dictionaries" in done.stdout
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "a 犬\n"


def test_standard_input_is_read_like_files(words: Path) -> None:
    options = ("--dictionaries", words, "--languages", "ja", "--beta", 1)
    done = text("code-switch", *options, stdin=b"\xef\xbb\xbfdog\r\na\rdog\r\n")
    assert done.stdout_bytes == "犬\na\r犬\n".encode()
    done = text("code-switch", *options, stdin=b"a dog\n\xff dog\ndogs\n")
    assert done.stdout == "a 犬\n犬\n"
    assert "skipped standard input:2: expected UTF-8 text" in done.stderr
    with pytest.raises(DataError, match="standard input:2: expected UTF-8 text"):
        text("code-switch", *options, "--strict", stdin=b"a dog\n\xff dog\n")
    with pytest.raises(DataError, match="standard input: no line can be read: give text"):
        text("code-switch", *options, stdin=b"\xff dog\n")


def test_seeds_are_not_negative(words: Path) -> None:
    done = text("code-switch", "A dog.", "--dictionaries", words, "--seed", -1)
    assert done.exit_code == 2
    assert "--seed" in done.stderr


def test_all_files_are_read_and_must_exist(words: Path, tmp_path: Path) -> None:
    options = ("--dictionaries", words, "--languages", "ja", "--beta", 1)
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a dog\n")
    two.write_text("dogs\n")
    assert text("code-switch", one, "A dog.", two, *options).stdout == "a 犬\nA 犬.\n犬\n"
    for missing in ("nofile.jsonl", "no.txt.gz", "no/file", "no.tsv", "no.json"):
        with pytest.raises(PolyglanceError, match=f"there is no file {missing}"):
            text("code-switch", missing, *options)
        with pytest.raises(PolyglanceError, match=f"there is no file {missing}"):
            text("code-switch", one, missing, *options)
    assert text("code-switch", "dog/cat is no file.txt", *options).stdout.startswith("犬/cat")


def test_manifests_move_with_their_paths(words: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.jpg").touch()
        records = [
            Record(image=f"{name}.jpg", captions={"en": ("a dog",)}),
            Record(image="gone.jpg", captions={"en": ("dog",)}),
            Record(video="dQw4w9WgXcQ", captions={"en": ("dogs",)}),
        ]
        write_manifest(tmp_path / name / "m.jsonl", records)
    manifests = [tmp_path / name / "m.jsonl" for name in ("a", "b")]
    out = tmp_path / "b" / "x.jsonl"
    options = ("--dictionaries", words, "--languages", "ja", "--beta", 1)
    text("code-switch", *manifests, *options, "--out", out)
    switched = list(read_manifest(out))
    assert [record.key for record in switched] == [
        "../a/a.jpg", "gone.jpg", "dQw4w9WgXcQ", "b.jpg", "gone.jpg", "dQw4w9WgXcQ",
    ]  # fmt: skip
    assert (out.parent / str(switched[0].image)).exists()
    assert switched[3].captions == {"en": ("a 犬",)}
    with pytest.raises(PolyglanceError, match="not both"):
        text("code-switch", manifests[0], "a dog", *options)


def test_malformed_lines_of_dictionaries_are_named(words: Path) -> None:
    with (words / "en-de.txt").open("a", encoding="utf-8") as file:
        file.write("cat\nbig red dog\ncat Katze\n")
    options = ("--dictionaries", words, "--languages", "de", "--beta", 1, "--preference", "inf")
    done = text("code-switch", "a cat", *options)
    assert done.stdout == "ein Katze\n"
    assert "en-de.txt:4: expected a word and its translation" in done.stderr
    assert "2 malformed" in done.stderr
    with pytest.raises(DataError, match=r"en-de\.txt:4"):
        text("code-switch", "a cat", *options, "--strict")
    (words / "en-de.txt").write_text("nothing\n")
    with pytest.raises(DataError, match="there are none"):
        text("code-switch", "a cat", *options)


def test_malformed_lines_of_manifests_and_texts_are_named(words: Path, tmp_path: Path) -> None:
    manifest, common, out = (tmp_path / f"{name}.jsonl" for name in ("m", "common", "out"))
    write_manifest(manifest, [Record(id="1", captions={"en": ("a dog",)})])
    write_manifest(common, [Record(captions={"de": ("Ein Köter!",)})])
    for path in (manifest, common):
        with path.open("a") as file:
            file.write("nonsense\n")
    options = ("--dictionaries", words, "--languages", "de", "--beta", 1, "--preference", "inf")
    ranked = (*options, "--ranked-by", common, "--out", out)
    done = text("code-switch", manifest, *ranked)
    assert next(read_manifest(out)).captions == {"en": ("ein Köter",)}
    assert "m.jsonl:2: expected valid JSON" in done.stderr
    assert "common.jsonl:2: expected valid JSON" in done.stderr
    assert "2 malformed" in done.stderr
    done = text("code-switch", manifest, *options, "--ranked-by", manifest)
    assert done.stdout == "ein Hund\n"
    assert "1 malformed" in done.stderr, "the same line is named once"
    with pytest.raises(DataError, match=r"m\.jsonl:2"):
        text("code-switch", manifest, *options, "--strict")
    with pytest.raises(DataError, match=r"common\.jsonl:2"):
        text("code-switch", "a dog", *ranked, "--strict")

    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"\xff\na dog\n")
    done = text("code-switch", lines, *options)
    assert done.stdout == "ein Hund\n"
    assert "lines.txt:1: expected UTF-8 text" in done.stderr
    with pytest.raises(DataError, match=r"lines\.txt:1"):
        text("code-switch", lines, *options, "--strict")
    lines.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"lines\.txt: no line can be read"):
        text("code-switch", lines, *options)


def test_phrases_of_the_dictionary(words: Path) -> None:
    (words / "en-de.tsv").write_text("hot dog\tBockwurst\nhot\theiß\n", encoding="utf-8")
    options = ("--dictionaries", words, "--languages", "de", "--beta", 1, "--preference", "inf")
    assert text("code-switch", "a hot dog", *options).stdout == "ein heiß Hund\n"
    assert (
        text("code-switch", "a hot dog", *options, "--max-phrase-words", 2).stdout
        == "ein Bockwurst\n"
    )


def test_a_manifest_in_and_a_manifest_out(words: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "m.jsonl", tmp_path / "out.jsonl"
    records = [
        Record(image="1.jpg", captions={"en": ("A dog.", "Dogs"), "fr": ("Un chien.",)}),
        Record(image="2.jpg", captions={"fr": ("Rien.",)}),
        Record(image="3.jpg", captions={"en": ("a dog",)}),
    ]
    write_manifest(path, records)
    options = ("--dictionaries", words, "--languages", "de", "--beta", 1, "--preference", "inf")
    text("code-switch", path, *options, "--variants", 2, "--out", out)
    switched = list(read_manifest(out))
    assert [record.image for record in switched] == ["1.jpg", "2.jpg", "3.jpg"]
    assert switched[0].captions == {
        "en": ("Ein Hund.", "Ein Hund.", "Hund", "Hund"), "fr": ("Un chien.",),
    }  # fmt: skip
    assert switched[1] == records[1]
    assert switched[2].captions == {"en": ("ein Hund", "ein Hund")}
    json.loads(out.read_text(encoding="utf-8").splitlines()[0])


def test_machine_captions_stay_marked_in_the_new_manifest(words: Path, tmp_path: Path) -> None:
    """Each English caption has two variants: the second one's are the third and fourth."""
    path, out = tmp_path / "m.jsonl", tmp_path / "out" / "m.jsonl"
    captions = {"en": ("A dog.", "Dogs"), "fr": ("Un chien.", "Des chiens")}
    records = [Record(image="1.jpg", captions=captions), Record(image="2.jpg", captions=captions)]
    (tmp_path / "1.jpg").touch()
    write_manifest(path, records)
    update_machine_captions(path, records, [{"fr": (0, 1)}, {"en": (0, 1)}])
    options = ("--dictionaries", words, "--languages", "de", "--variants", 2, "--out", out)
    text("code-switch", path, *options)
    (record, machine), (_, other_machine) = read_with_machine_captions(out)
    assert record.image == "../1.jpg"
    assert (machine, other_machine) == ({"fr": (0, 2)}, {"en": (0, 0, 1, 1)})
    machine_captions_path(path).unlink()
    text("code-switch", path, *options)
    assert not machine_captions_path(out).exists()


def test_captions_rank_translations(words: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [Record(captions={"de": ("Ein Köter!",), "ja": ("犬",)})])
    dictionaries = {"de": open_dictionary(words / "en-de.txt", source="en")}
    assert rank_by_captions(dictionaries, path)["de"].translations("dog") == ("Köter", "Hund")
    options = ("--dictionaries", words, "--languages", "de", "--beta", 1, "--preference", "inf")
    assert text("code-switch", "dog", *options, "--ranked-by", path).stdout == "Köter\n"


def test_preview_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    german = Dictionary([("dog", "Hund"), ("hound", "Hund"), ("cramp", "Hund"), ("a", "ein")])
    switched = CodeSwitcher({"de": german}, beta=1)("A dog.", np.random.default_rng(0))
    assert source_words([switched], {"de": german}) == {
        ("de", "ein"): ["a"], ("de", "hund"): ["dog", "hound", "cramp"],
    }  # fmt: skip
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_texts(["A dog."], [switched], {"de": german})
    output = capsys.readouterr().out
    assert "A dog." in output
    assert "\x1b[1;32mHund" in output
    assert "German: dog, hound, cramp" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["align", "only-one"], "only-one: no such file or folder; give two text files"),
        (["align", "a", "b", "--format", "bogus"], "no format is called 'bogus'"),
        (["align", "a", "b", "--format", "tatoeba"], "--format tatoeba needs one dataset"),
        (["align", "a", "b", "--links", "c", "--symmetry", "union"], "so --symmetry has no effect"),
        (["align", "a", "b", "--links", "c", "--fast-align"], "so --fast-align has no effect"),
        (["code-switch", "a dog", "--dictionaries", ".", "--preference", "nan"], "not nan"),
        (["code-switch", "a dog", "--dictionaries", ".", "--beta", "nan"], "not nan"),
        (["align", "a", "b", "--symmetry", "x"], "a: cannot be opened"),
        (["code-switch", "a dog", "--languages", "tlh"], "no dictionary"),
        (["code-switch", "a dog", "--dictionaries", "nowhere"], "no dictionaries there"),
        (["code-switch", "a dog", "--source", "?"], "expected a language code"),
        (["align", "a", "b", "--languages", "en,?"], "expected a language code"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str], message: str, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(words)
    if arguments[-1] == "tlh":
        arguments = [*arguments, "--dictionaries", "."]
    with pytest.raises(PolyglanceError, match=message):
        text(*arguments)
