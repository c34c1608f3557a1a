from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.translators import CountingTranslator
from polyglance.cli import app
from polyglance.data.machine_captions import (
    machine_captions_path,
    read_human_captions,
    read_with_machine_captions,
)
from polyglance.data.translate import embedding_check, round_trip_check, translate_manifest
from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text.translation import TranslationCache

CHECKED = ("--check", "round-trip")
RECORDS = [
    Record(image="1.jpg", captions={"en": ("A dog runs.", "Two dogs play here.")}),
    Record(image="2.jpg", captions={"en": ("A dog runs.",), "de": ("Ein Hund läuft.",)}),
    Record(image="3.jpg", captions={"cs": ("Pes.",)}, split="test"),
]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    write_manifest(tmp_path / "english.jsonl", RECORDS)
    (tmp_path / "1.jpg").touch()
    return tmp_path / "english.jsonl"


@pytest.fixture
def cache(tmp_path: Path) -> TranslationCache:
    return TranslationCache(tmp_path / "cache.sqlite3")


def test_translations_are_added_and_human_captions_stay(
    manifest: Path, cache: TranslationCache
) -> None:
    out = manifest.with_name("many.jsonl.gz")
    translators = [CountingTranslator(), CountingTranslator(target="fr")]
    report = translate_manifest(manifest, out, translators, cache=cache, checks=[])
    first, second, third = read_manifest(out)
    assert first.captions["de"] == ("Ade dogde runs.de", "Twode dogsde playde here.de")
    assert first.captions["en"] == RECORDS[0].captions["en"]
    assert second.captions["de"] == ("Ein Hund läuft.",)
    assert second.captions["fr"] == ("Afr dogfr runs.fr",)
    assert third == RECORDS[2]
    assert list(read_human_captions(out)) == RECORDS
    about = report.languages["de"]
    assert (about.existing, about.texts, about.translated, about.captions) == (1, 2, 2, 2)
    assert translators[1].requests == [["A dog runs.", "Two dogs play here."]], "each text once"


def test_the_cache_serves_other_manifests_and_output_is_reproducible(
    manifest: Path, cache: TranslationCache
) -> None:
    translate_manifest(manifest, manifest.with_name("a.jsonl"), [CountingTranslator()], cache=cache)
    again = CountingTranslator()
    report = translate_manifest(manifest, manifest.with_name("b.jsonl"), [again], cache=cache)
    assert again.requests == []
    assert report.languages["de"].cached == 2
    for name in ("{}.jsonl", "{}.machine.jsonl"):
        one, other = (manifest.with_name(name.format(letter)) for letter in "ab")
        assert one.read_bytes() == other.read_bytes()


def test_a_dropped_translation_is_counted_and_the_others_keep_their_source(
    manifest: Path, cache: TranslationCache
) -> None:
    class Stutters(CountingTranslator):
        def translate(self, texts: Sequence[str]) -> list[str]:
            return ["Hund Hund Hund" if text == "A dog runs." else "Zwei hier." for text in texts]

    out = manifest.with_name("many.jsonl")
    report = translate_manifest(manifest, out, [Stutters()], cache=cache)
    about = report.languages["de"]
    assert {name: count for name, count in about.dropped.items() if count} == {"repetition": 1}
    assert about.examples["repetition"] == [("A dog runs.", "Hund Hund Hund")]
    (record, machine), *_ = read_with_machine_captions(out)
    assert record.captions["de"] == ("Zwei hier.",)
    assert machine == {"de": (1,)}


def test_captions_without_a_letter_are_counted_and_not_translated(
    manifest: Path, cache: TranslationCache
) -> None:
    captions = ("A dog runs.", "", " ", "...", "🐕 12!")
    write_manifest(manifest, [Record(image="1.jpg", captions={"en": captions})])
    translator = CountingTranslator()
    report = translate_manifest(manifest, manifest.with_name("x.jsonl"), [translator], cache=cache)
    about = report.languages["de"]
    assert translator.requests == [["A dog runs."]]
    assert (about.texts, about.dropped["empty"], about.captions) == (5, 4, 1)
    assert ("...", "") in about.examples["empty"]


def test_without_captions_to_translate_nothing_is_written(
    manifest: Path, cache: TranslationCache
) -> None:
    out = manifest.with_name("good.jsonl")
    out.write_text("as it was")

    def refused(translator: CountingTranslator, what: str) -> None:
        with pytest.raises(PolyglanceError, match=what):
            translate_manifest(manifest, out, [translator], cache=cache, problems=Problems())
        assert translator.requests == []
        assert out.read_text() == "as it was"
        assert not machine_captions_path(out).exists()

    refused(
        CountingTranslator(source="fr", target="es"),
        r"in French \(fr\), only in cs, de, en: name one with",
    )
    manifest.write_text("{\n[]\n")
    refused(
        CountingTranslator(),
        r"no record to translate, all 2 lines are malformed .*english\.jsonl:1: exp",
    )
    manifest.write_text("")
    refused(CountingTranslator(), "the file is empty")
    manifest.write_text('{"image": "1.jpg"}\n')
    refused(CountingTranslator(), r"no caption in English \(en\), nor any other")


def test_marks_survive_translation_into_more_languages(
    manifest: Path, cache: TranslationCache
) -> None:
    first, second = manifest.with_name("de.jsonl"), manifest.with_name("de-fr.jsonl")
    translate_manifest(manifest, first, [CountingTranslator()], cache=cache)
    german = CountingTranslator(fingerprint="another")
    translate_manifest(first, second, [german, CountingTranslator(target="fr")], cache=cache)
    assert german.requests == []
    assert list(read_human_captions(second)) == RECORDS


def test_paths_are_relative_to_the_new_folder_and_ids_stay(
    manifest: Path, cache: TranslationCache
) -> None:
    out = manifest.parent / "deep" / "many.jsonl"
    translate_manifest(manifest, out, [CountingTranslator()], cache=cache)
    assert [record.image for record in read_manifest(out)] == ["../1.jpg", "2.jpg", "3.jpg"]


def test_a_changed_manifest_is_refused(manifest: Path, cache: TranslationCache) -> None:
    out = manifest.with_name("many.jsonl")
    translate_manifest(manifest, out, [CountingTranslator()], cache=cache)
    write_manifest(out, list(read_manifest(out))[1:])
    with pytest.raises(DataError, match="does not match"):
        list(read_human_captions(out))
    machine_captions_path(out).unlink()
    assert len(list(read_human_captions(out))) == 2


class _Animals:
    """An encoder that knows dogs and trains in two languages."""

    name, width, fingerprint = "animals", 2, "-"

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        dogs = [("dog" if language == "en" else "Hund") in text for text in texts]
        return np.array([[dog, not dog] for dog in dogs], np.float32)

    def encode_pictures(self, pictures: Sequence[object]) -> Vectors:
        raise NotImplementedError


def test_embedding_and_round_trip_checks(cache: TranslationCache) -> None:
    pairs = [("a dog", "ein Hund"), ("a dog", "ein Zug"), ("a train", "ein Zug")]
    assert embedding_check(_Animals())(pairs, "en", "de") == [True, False, True]

    class Back(CountingTranslator):
        def translate(self, texts: Sequence[str]) -> list[str]:
            return [text.replace("ein Hund", "a dog") for text in texts]

    check = round_trip_check([Back(source="de", target="en")], min_chrf=0.9, cache=cache)
    assert check([("a dog", "ein Hund"), ("a cat", "ein Hund")], "en", "de") == [True, False]


def test_translators_need_one_source_and_different_targets(manifest: Path) -> None:
    with pytest.raises(PolyglanceError, match="all from the same language"):
        translate_manifest(
            manifest,
            "x.jsonl",
            [CountingTranslator(), CountingTranslator(source="fr", target="es")],
        )
    with pytest.raises(PolyglanceError, match="several translators into de"):
        translate_manifest(manifest, "x.jsonl", [CountingTranslator(), CountingTranslator()])


def test_the_command_with_a_dictionary(manifest: Path, tmp_path: Path) -> None:
    words = tmp_path / "en-de.txt"
    words.write_text("dog Hund\ndogs Hunde\na ein\ntwo zwei\nruns läuft\nplay spielen\nhere hier\n")
    out, report = tmp_path / "many.jsonl", tmp_path / "report.json"
    command = [
        "data", "translate", str(manifest), "--to", "deu", "--translator", "nowhere/{target}",
        "--translator", "words", "--dictionaries", str(words), "--cache", str(tmp_path / "cache"),
        "--out", str(out), "--report", str(report), "--check", "round-trip",
        "--min-similarity", "0.5",
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    line = "de: 2 captions by words; of 2 texts 0 from the cache, dropped: none; 1 record has"
    assert line in done.output
    assert next(read_manifest(out)).captions["de"] == (
        "Ein Hund läuft.",
        "Zwei Hunde spielen hier.",
    )
    assert json.loads(report.read_text())["languages"]["de"]["dropped"]["round-trip"] == 0
    again = CliRunner().invoke(app, [*command, "--max-length-ratio", "0.5"])
    assert "2 from the cache, dropped: 2 length" in again.output
    wrong = CliRunner().invoke(app, [*command, "--check", "guess"])
    assert "--check takes embedding or round-trip" in str(wrong.exception) + wrong.output
    unused = CliRunner().invoke(app, [part for part in command if part not in CHECKED])
    assert "--min-similarity needs a comparison of meanings" in str(unused.exception)


def test_the_command_refuses_contradictory_options(manifest: Path, tmp_path: Path) -> None:
    words, out = tmp_path / "en-de.txt", tmp_path / "many.jsonl"
    words.write_text("dog Hund\n")
    command = [
        "data", "translate", str(manifest), "--to", "de", "--translator", "words",
        "--dictionaries", str(words), "--cache", str(tmp_path / "cache"), "--out", str(out),
    ]  # fmt: skip
    for options, message in (
        (["--encoder", "foo"], "--encoder is the model of --check embedding"),
        (["--encoder", "foo", *CHECKED], "--encoder is the model of --check embedding"),
        (
            ["--min-length-ratio", "3", "--max-length-ratio", "1"],
            "no length ratio is at least 3 and at most 1",
        ),
        (["--out", str(tmp_path / "x.txt")], "ends in .jsonl or .jsonl.gz, not 'x.txt'"),
    ):
        done = CliRunner().invoke(app, [*command, *options])
        assert isinstance(done.exception, PolyglanceError), done.output
        assert message in str(done.exception)
        assert not out.exists()
    manifest.unlink()
    done = CliRunner().invoke(app, [*command, "--dictionaries", "nowhere"])
    assert "there is no manifest" in str(done.exception)  # before any dictionary is looked for


def test_the_command_reports_what_it_did(manifest: Path, tmp_path: Path) -> None:
    words = tmp_path / "en-sw.txt"
    words.write_text("is ni\n")
    out = tmp_path / "many.jsonl"
    command = [
        "data", "translate", str(manifest), "--to", "sw", "--translator", "words",
        "--dictionaries", str(words), "--cache", str(tmp_path / "cache"), "--out", str(out),
    ]  # fmt: skip
    write_manifest(
        manifest, [Record(image="1.jpg", captions={"en": ("A dog.",), "sw": ("Mbwa.",)})]
    )
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "sw: nothing to translate, 1 record has captions in it already" in done.output
    assert list(read_manifest(out)) == list(read_manifest(manifest))
    # For a language that people wrote throughout no translator is looked for.
    words.rename(words.with_name("en-de.txt"))
    german = [part if part != str(words) else str(words.with_name("en-de.txt")) for part in command]
    done = CliRunner().invoke(app, [*german, "--to", "de"])
    assert done.exit_code == 0, done.output
    assert "sw: nothing to translate" in done.output
    assert "de: " in done.output
    for wrong, message in (
        ("es,de", "expected a language code"),
        ("en", "already in English: give"),
    ):
        done = CliRunner().invoke(app, [*german, "--to", wrong])
        assert isinstance(done.exception, PolyglanceError)
        assert message in str(done.exception)
    words.with_name("en-de.txt").rename(words)
    kite = "A kite surfer is doing a flip over the waves."
    write_manifest(manifest, [Record(image="1.jpg", captions={"en": (kite, "")})])
    done = CliRunner().invoke(app, command)
    assert "sw: 0 captions by words; of 2 texts 0 from the cache, dropped: 1 empty, 1 copied" in (
        done.output
    )


@pytest.mark.skipif(shutil.which("apertium") is None, reason="apertium is not installed")
def test_apertium(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "spanish.jsonl"
    command = ["data", "translate", str(manifest), "--to", "es", "--translator", "apertium",
               "--cache", str(tmp_path / "cache"), "--out", str(out)]  # fmt: skip
    done = CliRunner().invoke(app, command)
    if "apertium has no English to Spanish" in str(done.exception) + done.output:
        pytest.skip("apertium-eng-spa is not installed")
    assert done.exit_code == 0, done.output
    first = next(read_manifest(out)).captions["es"]
    assert "perro" in first[0]
    assert "perros" in first[1]
