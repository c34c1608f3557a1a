"""`polyglance text vectors` in real processes with real files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.data.toy import ToyDataset
from polyglance.records import Record, write_manifest
from polyglance.text.lexicon import Lexicon
from polyglance.text.vector_space import WordSpace


def vectors(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polyglance", "text", "vectors", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy") / "train.jsonl"
    write_manifest(
        path,
        (
            Record(captions={code: (captions[0].text,) for code, captions in p.captions.items()})
            for p in ToyDataset(seed=1).pictures(40, "train")
        ),
    )
    return path


def test_vectors_learned_from_captions(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "words"
    # In this process, which has imported torch already.
    options = ["--out", str(out), "--width", "20", "--languages", "de,en"]
    made = CliRunner().invoke(app, ["text", "vectors", "make", str(manifest), *options])
    assert made.exit_code == 0, made.output
    space = WordSpace.open(out)
    assert space.lexicon.languages == ("de", "en")
    assert space.vectors.shape == (len(space.lexicon), 20)
    assert f"{len(space.lexicon):,} words of de, en" in made.stdout
    neighbours = vectors("neighbors", out, "red", "--count", 3)
    lines = [line.split() for line in neighbours.stdout.splitlines()]
    assert [len(line) for line in lines] == [3, 3, 3]
    assert all(line[1] == "en" and line[2] in space.lexicon.counts["en"] for line in lines)


def test_neighbors_across_languages_and_unknown_words(tmp_path: Path) -> None:
    lexicon = Lexicon({"en": {"red": 1, "dog": 1}, "de": {"rot": 1}})
    rows = np.array([[0, 0], [0, 0], [1, 0], [0, 1], [1, 0.1]], np.float32)
    WordSpace(lexicon, rows).save(tmp_path)
    neighbours = vectors("neighbors", tmp_path, "Red", "--among", "en,de")
    assert neighbours.stdout == "0.995  de  rot\n0.000  en  dog\n"
    unknown = vectors("neighbors", tmp_path, "zebra")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("polyglance: the lexicon has no word 'zebra'")
