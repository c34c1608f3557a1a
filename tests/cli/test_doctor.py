"""`polyglance doctor` on this installation, and on broken ones."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from numpy.typing import NDArray
from typer.testing import CliRunner

from polyglance.cli import app, doctor_checks


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def checks(*arguments: object) -> dict[str, dict[str, str]]:
    plain = json.loads(invoke(*arguments, "--json").stdout)
    return {check["name"]: check for check in plain["checks"]}


def test_this_installation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = invoke()
    assert result.exit_code == 0, result.output
    for line in (
        "✓ Python: 3.",
        "✓ model: polyglance-small",
        "✓ cache folder: ",
        "✓ SQLite: 3.",
        "✓ decoders: ",
    ):
        assert line in result.output
    assert "All that is essential works." in result.output
    assert "✗" not in result.output
    assert not (tmp_path / "not").exists()  # a check leaves nothing behind


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the test above has run."""
    for slow in ("_model", "_accelerator"):
        monkeypatch.setattr(doctor_checks, slow, lambda: iter(()))


def test_a_model_that_gives_other_vectors_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        width = 384

        def encode_texts(self, texts: list[str]) -> NDArray[np.float32]:
            return np.eye(1, 384, dtype=np.float32)

        encode_pictures = encode_texts

    monkeypatch.setattr(doctor_checks, "_accelerator", lambda: iter(()))
    monkeypatch.setattr("polyglance.encoders.load", Other)
    result = invoke()
    assert result.exit_code == 1
    assert "✗ model: polyglance-small: the vector of a text is not the expected" in result.output
    assert "1 of" in result.output


@pytest.mark.usefixtures("quick")
def test_missing_and_old_packages_are_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [
        "numpy>=999", "typer>=0.1", "absent-package>=1",
        "another-one>=2; extra == 'ocr'", "numpy>=1; extra == 'train'",
    ]  # fmt: skip
    monkeypatch.setattr(metadata, "requires", lambda _: lines)
    found = checks()
    assert found["packages"]["status"] == "failed"
    assert "absent-package is not installed; numpy" in found["packages"]["detail"]
    assert "is older than 999" in found["packages"]["detail"]
    assert found["extra ocr"]["status"] == "missing"
    assert found["extra ocr"]["fix"] == "pip install 'polyglance[ocr]'"
    assert found["extras"]["detail"] == "train"
    assert invoke().exit_code == 1


@pytest.mark.usefixtures("quick")
def test_a_decoder_that_cannot_be_opened_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_module(name: str) -> None:
        if name == "rawpy":
            raise OSError("libraw.so: cannot open shared object file")

    monkeypatch.setattr(doctor_checks, "import_module", open_module)
    check = checks()["decoders"]
    assert check["status"] == "warning"
    assert "RAW: rawpy cannot be opened (libraw.so: cannot open shared" in check["detail"]
    assert "HEIC (pi-heif " in check["detail"]
    assert "polyglance[photos]" in check["fix"]


@pytest.mark.usefixtures("quick")
def test_folders_and_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "file" / "cache"))
    found = checks("--library", tmp_path / "nowhere.polyglance")
    assert found["cache folder"]["status"] == "failed"
    assert "POLYGLANCE_CACHE" in found["cache folder"]["fix"]
    assert found["library"]["detail"].endswith("nowhere.polyglance does not exist")
    damaged = tmp_path / "damaged.polyglance"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(5000))
    assert checks("--library", damaged)["library"]["status"] == "failed"
    whole = tmp_path / "whole.polyglance"
    source = Path(__file__).parent.parent / "fixtures" / "format_2" / "library.polyglance"
    whole.write_bytes(source.read_bytes())
    assert checks("--library", whole)["library"]["status"] == "ok"
    monkeypatch.setattr(doctor_checks, "MIN_FREE_MB", 2**50)
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path))
    assert "free some space" in checks()["cache folder"]["fix"]


@pytest.mark.usefixtures("quick")
def test_a_check_that_raises_has_failed_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> list[str]:
        raise RuntimeError("no\nidea")

    monkeypatch.setattr(metadata, "requires", lambda _: broken())
    found = checks()
    assert (found["packages"]["status"], found["packages"]["detail"]) == ("failed", "no idea")
    assert found["SQLite"]["status"] == "ok"
