from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from polyglance.utils.fingerprint import digest, digest_model_folder, file_stats, fingerprint


@dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    path: Path = Path("data")


def test_fingerprint_depends_on_settings_arrays_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    before = fingerprint(Settings(), np.arange(3), tmp_path)
    assert before == fingerprint({"rate": 0.1, "path": "data"}, np.arange(3), tmp_path)
    assert before != fingerprint(Settings(rate=0.2), np.arange(3), tmp_path)
    assert before != fingerprint(Settings(), np.arange(3.0), tmp_path)
    (tmp_path / "a.txt").write_text("two")
    assert before != fingerprint(Settings(), np.arange(3), tmp_path)
    assert [(name, size) for name, size, _ in file_stats(tmp_path)] == [("a.txt", 3)]


def test_fingerprint_refuses_other_objects() -> None:
    with pytest.raises(TypeError, match="cannot fingerprint a set"):
        fingerprint({1, 2})


def test_fingerprints_are_those_of_version_0_1() -> None:
    """Caches that older versions wrote stay valid."""
    assert fingerprint({"x": (1, Path("/a"))}, None) == "273174afa28bd537"
    assert (
        digest("a", 3, None) == "c3f2ec8d939802672986430772b14bcba49705ab3d304350184d85413fc36f3e"
    )


def test_model_digest_ignores_notes_and_the_folder_name(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "other" / "README.txt").write_text("notes")
    assert digest_model_folder(tmp_path / "one") == digest_model_folder(tmp_path / "other")
