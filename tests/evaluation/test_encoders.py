"""An encoder measured at work, beside its embeddings measured from disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import polyglance
from helpers.clip_models import pictures, save_clip
from helpers.sentences import SENTENCES
from polyglance.cli import app
from polyglance.data.machine_captions import MachineCaptions, update_machine_captions
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.embeddings import evaluate_files
from polyglance.evaluation.encoders import evaluate_encoder
from polyglance.evaluation.results import Evaluation, read_results
from polyglance.records import read_manifest, write_manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Ten pictures; in English two captions each, in German one for all but the last."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    lines = []
    for number, picture in enumerate(pictures()):
        picture.save(folder / "images" / f"{number}.png")
        english = [SENTENCES["en"][number], SENTENCES["en"][number][::-1]]
        captions = {"en": english} | ({"de": [SENTENCES["de"][number]]} if number < 9 else {})
        lines.append({"image": f"images/{number}.png", "captions": captions, "split": "test"})
    (folder / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "m.jsonl"


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return save_clip(tmp_path / "tiny-clip")


@pytest.fixture
def expected(manifest: Path, clip: Path, tmp_path: Path) -> Evaluation:
    """The same from embeddings that were written and read again."""
    encoder = polyglance.load(clip)
    np.save(tmp_path / "images.npy", encoder.encode_pictures(pictures()))
    english = [text for one in SENTENCES["en"][:10] for text in (one, one[::-1])]
    np.savez(
        tmp_path / "texts.npz",
        en=encoder.encode_texts(english),
        de=encoder.encode_texts(SENTENCES["de"][:9]),
    )
    return evaluate_files(tmp_path / "images.npy", tmp_path / "texts.npz", manifest, human=["de"])


def test_encoder_results_equal_those_of_its_embeddings(
    manifest: Path, clip: Path, expected: Evaluation
) -> None:
    found = evaluate_encoder(polyglance.load(clip), manifest, human=["de"])
    assert found.languages == expected.languages
    assert (found.model, found.split) == ("tiny-clip", "photos/m")
    assert found.human_average == expected.human_average
    assert list(found.languages) == ["en", "de"]
    assert found.languages["de"].text_to_image.queries == 9
    assert 0 < found.average < 100


def test_from_the_command_line(
    manifest: Path, clip: Path, expected: Evaluation, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere.jsonl"
    manifest.rename(moved)
    out = tmp_path / "results.json"
    arguments = ["evaluate", moved, "--encoder", clip, "--pictures", manifest.parent]
    done = CliRunner().invoke(app, [*map(str, arguments), "--languages", "de", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "tiny-clip, cosine" in " ".join(done.output.split())
    assert read_results(out).languages == {"de": expected.languages["de"]}


def test_machine_captions_are_counted_and_can_be_excluded(
    manifest: Path, clip: Path, tmp_path: Path
) -> None:
    """Of nine German captions a machine made three; a language all of its making is not there."""
    with_machine = tmp_path / "photos" / "many.jsonl"
    marks: list[MachineCaptions] = [{"de": (0,)} if number < 3 else {} for number in range(10)]
    records = list(read_manifest(manifest))
    write_manifest(with_machine, records)
    update_machine_captions(with_machine, records, marks)
    command = ["evaluate", str(with_machine), "--encoder", str(clip)]
    done = CliRunner().invoke(app, command)
    assert "some of these captions are machine translations: de 3 of 9; --human-only" in done.stderr
    done = CliRunner().invoke(app, [*command, "--human-only", "--json", str(tmp_path / "r.json")])
    assert done.exit_code == 0, done.output
    assert "machine" not in done.stderr
    found = read_results(tmp_path / "r.json").languages
    assert {code: one.text_to_image.queries for code, one in found.items()} == {"en": 20, "de": 6}
    assert "machine" not in CliRunner().invoke(app, ["evaluate", str(manifest)]).stderr
    with_machine.write_text(manifest.read_text().replace("0.png", "other.png"))
    done = CliRunner().invoke(app, command)  # the file beside it is of another manifest
    assert isinstance(done.exception, DataError)
    assert done.stdout == ""


def test_word_models_get_the_language(manifest: Path) -> None:
    languages: list[str | None] = []

    class Reader:
        name, width, fingerprint = "reader", 2, ""

        def encode_texts(self, texts: list[str], *, language: str | None = None) -> np.ndarray:
            languages.append(language)
            return np.eye(2, dtype=np.float32)[np.arange(len(texts)) % 2]

        def encode_pictures(self, files: list[Path]) -> np.ndarray:
            assert all(file.is_file() for file in files)
            return np.eye(2, dtype=np.float32)[np.arange(len(files)) % 2]

    evaluate_encoder(Reader(), manifest, split="test")
    assert languages == ["en", "de"]


def test_invalid_input_is_rejected(manifest: Path, clip: Path) -> None:
    encoder = polyglance.load(clip)
    with pytest.raises(PolyglanceError, match="no captions in fr, only in en, de"):
        evaluate_encoder(encoder, manifest, languages=["fr"])
    with pytest.raises(PolyglanceError, match=r"0\.png"):
        evaluate_encoder(encoder, manifest, pictures=manifest.parent / "nowhere")
    clips = manifest.with_name("clips.jsonl")
    clips.write_text('{"video": "a.mp4", "captions": {"en": ["a dog"]}}')
    with pytest.raises(PolyglanceError, match=r"a\.mp4 is a clip"):
        evaluate_encoder(encoder, clips)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npy", "m.jsonl"], "a manifest alone"),
        (["a.npy", "b.npz", "m.jsonl", "--encoder", "clip"], "give the manifest alone"),
        (["m.jsonl", "--inner-product"], "for stored embeddings"),
    ],
)
def test_conflicting_arguments_are_rejected(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["evaluate", *arguments])
    assert isinstance(done.exception, PolyglanceError)
    assert message in str(done.exception)
