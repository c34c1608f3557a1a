"""The command line with real files, in real processes where the process is what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polyglance import __version__
from polyglance.cli import main


def polyglance(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polyglance", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_in_process(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """Run `main` in this process, which saves all imports; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["polyglance", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def error_in_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> str:
    """Return the error of `main` in this process."""
    assert run_in_process(monkeypatch, *arguments) == 2
    return capsys.readouterr().err


def modules_imported_by(*arguments: str) -> set[str]:
    """Return the names of the modules that a Python process imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = [line for line in log.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


def test_help_lists_every_command_and_imports_no_library_but_typers() -> None:
    output = polyglance("--help").stdout
    for command in ("data", "demo", "evaluate", "features", "text", "train", "weights"):
        assert command in output
    of_typer = modules_imported_by("-c", "import typer.rich_utils, rich.markdown")
    more = modules_imported_by("-m", "polyglance", "--help") - of_typer
    assert "polyglance.cli.search" in more  # so imports are indeed seen
    packages = {name.partition(".")[0].lstrip("_") for name in more}
    libraries = packages - {"polyglance", "typer", "rich"} - set(sys.stdlib_module_names)
    assert libraries == set()
    light = ("polyglance.cli", "polyglance.errors", "polyglance.languages", "polyglance.version")
    own = {name for name in more if name.startswith("polyglance.")}
    assert {name for name in own if not name.startswith(light)} <= {"polyglance.__main__"}


def test_version() -> None:
    assert polyglance("--version").stdout.strip() == __version__


def test_import_show_and_strict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "lines.jsonl"
    good = {"image": "a.jpg", "captions": {"de": ["Ein Hund."], "ar": ["كلب"]}}
    source.write_text(json.dumps(good) + "\nnonsense\n", encoding="utf-8")
    read = ("data", "import", "jsonl", source, "--out")
    done = polyglance(*read, tmp_path / "m.jsonl")
    assert done.returncode == 0
    assert f"{source}:2: expected" in done.stderr
    assert "1 malformed" in done.stderr
    assert done.stdout.endswith(": 1 record\n")
    assert run_in_process(monkeypatch, "data", "show", tmp_path / "m.jsonl") in (0, None)
    assert "Ein Hund." in capsys.readouterr().out
    error = error_in_process(capsys, monkeypatch, *read, tmp_path / "s.jsonl", "--strict")
    assert error.startswith(f"polyglance: {source}:2: expected")
    assert not (tmp_path / "s.jsonl").exists()


def test_show_takes_folders_that_are_trained_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).touch()
    (tmp_path / "1.txt").write_text("a dog\n", encoding="utf-8")
    (tmp_path / "2.de.txt").write_text("eine Katze\n", encoding="utf-8")
    assert run_in_process(monkeypatch, "data", "show", tmp_path) in (0, None)
    shown = capsys.readouterr().out
    assert shown.startswith("2 records: 2 with a picture")
    assert "German" in shown
    line = {"file_name": "2.jpg", "text": "un chat", "language": "fr"}
    (tmp_path / "metadata.jsonl").write_text(json.dumps(line), encoding="utf-8")
    for source in (tmp_path, tmp_path / "metadata.jsonl"):
        assert run_in_process(monkeypatch, "data", "show", source) in (0, None)
        assert "un chat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "import", "multi30k", ".", "--out", "m.jsonl"], "did you mean 'multi30k-task1'"),
        (["data", "show", "nowhere.jsonl"], "nowhere.jsonl"),
        (["weights", "get", "e5-smal"], "did you mean 'e5-small'?"),
        (["features", "extract", "nowhere", "--out", "s"], "nowhere"),
        (["evaluate", "i.npy", "t.npy", "m.jsonl", "--recall-at", "one"], "whole numbers"),
    ],
)
def test_errors_are_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    error = error_in_process(capsys, monkeypatch, *arguments)
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "device"),
    [
        (("train", "mmp-flickr8k", "--data", "."), "meta"),
        (("features", "extract", "nowhere"), "foo"),
    ],
)
def test_unknown_device_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    command: tuple[str, ...], device: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    message = error_in_process(capsys, monkeypatch, *command, "--out", "r", "--device", device)
    assert f"device '{device}' cannot" in message
    assert len(message.strip().splitlines()) == 1


def test_toy_dataset_and_features(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy = ("data", "toy", tmp_path / "toy", "--pictures", 20, "--clips", 0)
    assert run_in_process(monkeypatch, *toy) in (0, None)
    assert "train.jsonl: 16" in capsys.readouterr().out
    for path in sorted((tmp_path / "toy" / "images").glob("*.png"))[3:]:
        path.unlink()  # three are enough
    (tmp_path / "toy" / "images" / "broken.png").write_bytes(b"")
    store = tmp_path / "store"
    extract = ("features", "extract", tmp_path / "toy" / "images", "--out", store, "--grid", 2)
    assert run_in_process(monkeypatch, *extract, "--backbone", "efficientnet-lite0") in (0, None)
    printed = capsys.readouterr()
    assert "broken.png" in printed.err
    assert "stored" in printed.out
    other = ("--backbone", "efficientnet-lite0", "--labels", 3)
    assert "made with labels 10, not 3" in error_in_process(capsys, monkeypatch, *extract, *other)


def test_evaluate_prints_and_writes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = [{"image": f"{i}.jpg", "captions": {"de": ["x"], "en": ["y"]}} for i in range(3)]
    manifest = tmp_path / "m.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    np.save(tmp_path / "i.npy", np.eye(3))
    np.savez(tmp_path / "t.npz", de=np.eye(3), en=np.roll(np.eye(3), 1, axis=0))
    inputs = (tmp_path / "i.npy", tmp_path / "t.npz", manifest)
    command = ("evaluate", *inputs, "--human", "de", "--json", tmp_path / "r.json")
    assert run_in_process(monkeypatch, *command) in (0, None)
    assert "100.0" in capsys.readouterr().out
    languages = json.loads((tmp_path / "r.json").read_text())["languages"]
    recalls = {code: languages[code]["text_to_image"]["recalls"]["1"] for code in ("de", "en")}
    assert recalls == {"de": 100, "en": 0}


def test_closed_pipe_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does
    command = [sys.executable, "-m", "polyglance", "data", "formats"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_characters_missing_in_the_terminal_are_escaped() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polyglance", "data", "formats"],
        capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_unwritable_folder_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = ("data", "toy", "/proc/nowhere", "--pictures", 1, "--clips", 0)
    assert len(error_in_process(capsys, monkeypatch, *toy).strip().splitlines()) == 1
