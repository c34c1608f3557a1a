"""The command line as a user has it: real processes, real files."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polyglance import __version__
from polyglance.cli import main


def polyglance(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "polyglance", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def children_s_seconds() -> float:
    """Of the processor, which do not grow when other tests run beside."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_names_every_verb_in_half_a_second() -> None:
    def seconds() -> float:
        begin = children_s_seconds()
        shown = polyglance("--help")
        for verb in ("data", "demo", "evaluate", "features", "text", "train", "weights"):
            assert verb in shown.stdout
        return children_s_seconds() - begin

    assert any(seconds() < 0.5 for _ in range(3))


def test_version() -> None:
    assert polyglance("--version").stdout.strip() == __version__


def test_import_show_and_strict(tmp_path: Path) -> None:
    source = tmp_path / "lines.jsonl"
    good = {"image": "a.jpg", "captions": {"de": ["Ein Hund."], "ar": ["كلب"]}}
    source.write_text(json.dumps(good) + "\nnonsense\n", encoding="utf-8")
    done = polyglance("data", "import", "jsonl", source, "--out", tmp_path / "m.jsonl")
    assert done.returncode == 0
    assert f"{source}:2: expected" in done.stderr
    assert "1 malformed" in done.stderr
    assert done.stdout.endswith(": 1 record\n")
    shown = polyglance("data", "show", tmp_path / "m.jsonl")
    assert "Ein Hund." in shown.stdout
    strict = polyglance(
        "data", "import", "jsonl", source, "--out", tmp_path / "s.jsonl", "--strict"
    )
    assert strict.returncode == 2
    assert strict.stderr.startswith(f"polyglance: {source}:2: expected")
    assert not (tmp_path / "s.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "import", "multi30k", ".", "--out", "m.jsonl"], "did you mean 'multi30k-task1'"),
        (["data", "show", "nowhere.jsonl"], "nowhere.jsonl"),
        (["weights", "get", "e5-smal"], "did you mean 'e5-small'?"),
        (["features", "extract", "nowhere", "--out", "s"], "nowhere"),
        (["evaluate", "i.npy", "t.npy", "m.jsonl", "--recall-at", "one"], "whole numbers"),
        (
            ["features", "extract", "nowhere", "--out", "s", "--device", "foo"],
            "device 'foo' cannot",
        ),
    ],
)
def test_a_user_s_mistake_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = polyglance(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def refused_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> str:
    """What is said of a mistake by `main` in this process, which has imported torch already."""
    monkeypatch.setattr(sys, "argv", ["polyglance", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_device_that_cannot_train_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ("train", "mmp-flickr8k", "--data", tmp_path, "--out", tmp_path / "r")
    said = refused_here(capsys, monkeypatch, *arguments, "--device", "meta")
    assert "device 'meta' cannot" in said
    assert len(said.strip().splitlines()) == 1


def test_toy_world_features_and_evaluation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = polyglance("data", "toy", tmp_path / "toy", "--pictures", 20, "--clips", 0)
    assert "train.jsonl: 16" in made.stdout
    for path in (tmp_path / "toy" / "images").glob("hard*"):
        path.unlink()  # twenty are enough
    (tmp_path / "toy" / "images" / "broken.png").write_bytes(b"")
    store = tmp_path / "store"
    extract = ("features", "extract", tmp_path / "toy" / "images", "--out", store, "--grid", 2)
    done = polyglance(*extract, "--backbone", "efficientnet-lite0")
    assert "broken.png" in done.stderr
    assert "stored" in done.stdout
    other = ("--backbone", "efficientnet-lite0", "--labels", 3)
    assert "made with labels 10, not 3" in refused_here(capsys, monkeypatch, *extract, *other)


def test_evaluate_prints_and_writes(tmp_path: Path) -> None:
    lines = [{"image": f"{i}.jpg", "captions": {"de": ["x"], "en": ["y"]}} for i in range(3)]
    manifest = tmp_path / "m.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    np.save(tmp_path / "i.npy", np.eye(3))
    np.savez(tmp_path / "t.npz", de=np.eye(3), en=np.roll(np.eye(3), 1, axis=0))
    inputs = (tmp_path / "i.npy", tmp_path / "t.npz", manifest)
    done = polyglance("evaluate", *inputs, "--human", "de", "--json", tmp_path / "r.json")
    assert done.returncode == 0
    assert "100.0" in done.stdout
    languages = json.loads((tmp_path / "r.json").read_text())["languages"]
    recalls = {code: languages[code]["text_to_image"]["recalls"]["1"] for code in ("de", "en")}
    assert recalls == {"de": 100, "en": 0}


def test_a_reader_that_leaves_hears_no_complaint() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does when it has seen enough
    command = [sys.executable, "-m", "polyglance", "data", "formats"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_letters_that_a_terminal_lacks_are_spelled_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polyglance", "data", "formats"],
        capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    done = polyglance("data", "toy", "/proc/nowhere", "--pictures", 1, "--clips", 0)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
