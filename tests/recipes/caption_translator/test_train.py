"""The caption translator on a toy language: learned, saved, resumed, used by `data translate`."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from polyglance.data.machine_captions import read_translators, read_with_machine_captions
from polyglance.data.translate import translate_manifest
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes import Recipe, open_recipe
from polyglance.recipes.caption_translator.data import split_pairs
from polyglance.text.translation import TranslationCache, open_translator
from polyglance.text.translation.caption_translator import CaptionTranslator, load_translation_model

WORDS = {
    "dog": ("hund", "pes"),
    "cat": ("katze", "kocka"),
    "bird": ("vogel", "ptak"),
    "red": ("rot", "cerveny"),
    "green": ("gruen", "zeleny"),
    "blue": ("blau", "modry"),
    "runs": ("rennt", "bezi"),
    "sleeps": ("schlaeft", "spi"),
    "eats": ("frisst", "ji"),
    "here": ("hier", "tady"),
    "there": ("dort", "tam"),
}
SENTENCES = [
    f"{colour} {animal} {verb} {place}."
    for colour, animal, verb, place in itertools.product(
        ("red", "green", "blue"), ("dog", "cat", "bird"), ("runs", "sleeps", "eats"),
        ("here", "there"),
    )
]  # fmt: skip


def translated(sentence: str, column: int) -> str:
    """Translate into a toy language, in which the first two words change places."""
    words = [WORDS[word][column] for word in sentence.rstrip(".").split()]
    return " ".join([words[1], words[0], *words[2:]]) + "."


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    with gzip.open(folder / "captions.jsonl.gz", "wt", encoding="utf-8") as file:
        for number, text in enumerate(SENTENCES):
            line = {"en": text, "de": translated(text, 0), "zh-Hant": "不"}
            file.write(json.dumps(line | ({} if number % 2 else {"id": "x"})) + "\n")
    with lzma.open(folder / "sentences.tsv.xz", "wt", encoding="utf-8") as table:
        for text in SENTENCES:
            table.write(f"ces\t{translated(text, 1)}\t{text}\ntoki_Latn\tsoweli\t{text}\n")
    return folder


def recipe(*changes: str) -> Recipe:
    return open_recipe(
        "caption-translator",
        [
            "languages=[de, cs]",
            "corpora=[{path: captions.jsonl.gz, name: captions, held_out: 6, skip: [zh-Hant]},"
            " {path: sentences.tsv.xz, name: sentences, weight: 1.0}]",
            "vocabulary={size: 400}",
            "network={hidden_size: 32, num_heads: 2, intermediate_size: 64, encoder_layers: 1,"
            " decoder_layers: 1, dropout: 0.0, max_tokens: 24}",
            "batch_tokens=512",
            "num_beams=2",
            "plain_share=0.3",
            "loop.steps=120",
            "loop.learning_rate=0.01",
            "loop.warmup=15",
            "loop.ema_decay=0.9",
            "loop.precision=float32",
            "loop.save_every=60",
            "loop.validate_every=0",
            *changes,
        ],
    )


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, recipe().train(data, folder)


def test_held_out_captions_are_translated(run: tuple[Path, dict[str, Any]]) -> None:
    _, report = run
    scores = report["test"]["captions"]["de"]
    # Six sentences that no corpus trained on; chance is below 20.
    assert scores["sentences"] == 6
    assert scores["tokenizer"] == "13a"
    assert scores["bleu"] > 80
    assert scores["chrf"] > 80
    assert report["round_trip"]["de"] > 60
    assert report["pairs"] == {"captions": {"de": 45}, "sentences": {"cs": 45}}


def test_no_corpus_trains_on_what_another_holds_out(data: Path) -> None:
    train, validation, test = split_pairs(recipe().settings, data)
    held = {p.source for part in (validation, test) for p in part["captions"]["de"]}
    assert len(held) == 9
    assert not held & {pair.source for pair in train}
    assert "sentences" not in test  # which holds nothing out itself
    assert {pair.language for pair in train} == {"de", "cs"}


def test_pictures_are_held_out_whole(tmp_path: Path) -> None:
    lines = [
        {"image": f"{n}.jpg", "en": f"{text}, {n}", "de": "x"}
        for n in range(8) for text in ("one", "two")
    ]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    settings = recipe(
        "languages=[de]", "corpora=[{path: pairs.jsonl, name: pictures, held_out: 2}]"
    ).settings
    train, validation, test = split_pairs(settings, tmp_path)
    sizes = [len(part["pictures"]["de"]) for part in (validation, test)]
    assert (len(train), *sizes) == (10, 2, 4)


def test_a_run_resumes_exactly(data: Path, tmp_path: Path) -> None:
    short = ("loop.steps=8", "loop.save_every=4", "vocabulary.max_sentences=99")
    recipe(*short).train(data, tmp_path / "whole")
    recipe(*short, "loop.steps=4").train(data, tmp_path / "parts")
    report = recipe(*short).train(data, tmp_path / "parts")
    assert report["steps"] == 8
    whole, parts = (
        load_translation_model(tmp_path / name / "translator").network.state_dict()
        for name in ("whole", "parts")
    )
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


def test_data_translate_takes_the_folder_and_names_it(
    run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = run[0] / "translator"
    manifest = tmp_path / "train.jsonl"
    records = [
        {"image": "1.jpg", "captions": {"en": [SENTENCES[0], SENTENCES[7]]}},
        {"image": "2.jpg", "captions": {"en": [SENTENCES[9]], "de": ["Von Hand."]}},
    ]
    manifest.write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")
    translator = open_translator(str(folder), "en", "de")
    assert isinstance(translator, CaptionTranslator)
    with TranslationCache(tmp_path / "cache.sqlite3") as cache:
        report = translate_manifest(
            manifest, tmp_path / "many.jsonl", [translator], cache=cache, checks=[]
        )
    assert report.languages["de"].translator == "translator"
    (first, machine), (second, human) = read_with_machine_captions(tmp_path / "many.jsonl")
    assert first.captions["de"] == (translated(SENTENCES[0], 0), translated(SENTENCES[7], 0))
    assert (machine, human) == ({"de": (0, 1)}, {})
    assert second.captions["de"] == ("Von Hand.",)
    name = read_translators(tmp_path / "many.jsonl")["de"]
    assert name == f"translator {translator.fingerprint[:16]}"


def test_untaught_and_refused_languages_are_errors(
    run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = run[0] / "translator"
    with pytest.raises(PolyglanceError, match="does not translate German to Czech, only en-de"):
        CaptionTranslator(folder, "de", "cs")
    refused = json.loads((folder / "config.json").read_text()) | {"refused": {"cs": "chrF 3"}}
    (tmp_path / "config.json").write_text(json.dumps(refused))
    with pytest.raises(PolyglanceError, match=r"too badly into Czech .chrF 3."):
        open_translator(str(tmp_path), "en", "cs")
    with pytest.raises(DataError, match=r"vocabulary\.model"):
        CaptionTranslator(tmp_path, "en", "de").translate(["a"])


def test_a_language_without_held_out_captions_passes_the_check_or_is_refused(
    data: Path, tmp_path: Path
) -> None:
    changes = ("loop.steps=2", "min_round_trip=100")
    report = recipe(*changes).train(data, tmp_path)
    assert list(report["refused"]) == ["cs"]
    with pytest.raises(PolyglanceError, match="Czech"):
        CaptionTranslator(tmp_path / "translator", "en", "cs")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("languages=[en]", "leave it out"),
        ("languages=[xx1]", "there is no language"),
        ("corpora.0.held_out=0", "no corpus has held_out"),
        ("languages=[de, fr]", "no corpus has pairs of en and fr"),
        ("network.hidden_size=30", "multiple of twice num_heads"),
        ("corpora.1.path=none.tsv", "no such file"),
    ],
)
def test_mistakes_are_named(change: str, message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match=message):
        recipe(change).train(data, tmp_path)
