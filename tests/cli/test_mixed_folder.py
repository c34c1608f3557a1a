"""A newcomer's day in the terminal, with a folder of mixed files, from indexing to sorting."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from helpers.colour_encoder import ColourEncoder
from helpers.mixed_folder import MixedFolder, write_mixed_folder
from polyglance.cli import app
from polyglance.vision import heif, raw

NUM_FILES = int(os.environ.get("POLYGLANCE_MIXED_FILES", "240"))
"""Files in the folder; 2000 take about 20 seconds of CPU time."""
K = str(NUM_FILES // 7)

pytestmark = pytest.mark.skipif(
    not (heif.can_read_heif() and raw.can_read_raw()), reason="needs the extra photos"
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> MixedFolder:
    """The folder."""
    return write_mixed_folder(tmp_path_factory.mktemp("mixed") / "Pictures", NUM_FILES)


@pytest.fixture(scope="module", autouse=True)
def _default_library(mixed: MixedFolder) -> Iterator[None]:
    """The default library is beside it, and the default model knows colours."""
    encoder = ColourEncoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYGLANCE_LIBRARY", str(mixed.path.parent / "my.polyglance"))
        patch.setattr("polyglance.search.model_info.load", lambda *names, **options: encoder)
        yield


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def colours(paths: str) -> Counter[str]:
    """Count the folders of paths that a command printed, each ended by a null byte."""
    return Counter(Path(path).parent.name for path in paths.split("\0")[:-1])


def test_a_day_in_the_terminal(mixed: MixedFolder) -> None:
    total = mixed.pictures + mixed.clips

    # Index: what can be read is added, what cannot is summed up in a few lines.
    indexed = run("index", str(mixed.path), "--threads", "1")
    assert f"{total:,} added" in indexed.stdout
    assert indexed.stderr.startswith(f"skipped {len(mixed.bad)} files:\n")
    assert indexed.stderr.count("\n") <= 8
    assert f"{mixed.pictures:,} pictures and {mixed.clips} clips" in run("library", "info").stdout

    # What was skipped is listed whole.
    problems = json.loads(run("library", "problems", "--json").stdout)
    assert {Path(problem["path"]).name for problem in problems} == mixed.bad
    assert all(problem["reason"] for problem in problems)

    # Search by words, by a picture, among clips only; odd names are safe in a pipe.
    assert set(colours(run("search", "green", "-k", K, "-0").stdout)) == {"green"}
    picture = str(mixed.path / "blue" / "IMG_0002.HEIC")
    assert set(colours(run("search", "--picture", picture, "-k", K, "-0").stdout)) == {"blue"}
    clips = json.loads(run("search", "red", "--kind", "clip", "-k", "99", "--json").stdout)
    assert len(clips) == mixed.clips
    odd = run("search", "red", "--folder", str(mixed.path / "odd"), "-k", "99", "-0").stdout
    assert all(Path(path).is_file() for path in odd.split("\0")[:-1])
    assert colours(odd) == {"odd": 16}

    # Vectors for other programs.
    vectors = mixed.path.parent / "vectors.npy"
    run("library", "export", str(vectors))
    assert len(np.load(vectors)) >= total

    # Files move and go; the library follows.
    (mixed.path / "red" / "DSC00000.jpg").rename(mixed.path / "moved.jpg")
    (mixed.path / "green" / "DSC00001.jpg").unlink()
    again = run("index", "--quiet").stdout
    assert "1 moved, 1 removed" in again
    assert f"{total - 1:,} in all" in again
