"""Test stacks of copies, near-duplicates and bursts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from benchmarks.postgres_server import Server
from helpers.colour_encoder import ColourEncoder, write_image
from polyglance.cli import app
from polyglance.search import duplicates
from polyglance.search.duplicates import NEAR, burst_pairs, group, near_pairs
from polyglance.search.library import Library
from polyglance.search.store import Entry, FileSignature, Item, VectorRows


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def rows_of(vectors: NDArray[np.float32]) -> VectorRows:
    ids = np.arange(1, len(vectors) + 1)
    return VectorRows(ids, ids, unit(vectors))


@pytest.mark.parametrize("direct", [0, 256])
def test_near_pairs_are_those_of_all_comparisons(
    monkeypatch: pytest.MonkeyPatch, direct: int
) -> None:
    monkeypatch.setattr(duplicates, "MAX_DIRECT", direct)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((600, 64), np.float32)
    copies = rng.integers(0, 600, 80)
    noise = rng.uniform(0.05, 0.3, (80, 1)).astype(np.float32)
    vectors = np.concatenate([vectors, vectors[copies] + noise * vectors[:80]])
    rows = rows_of(vectors)
    similar = np.triu(rows.vectors @ rows.vectors.T >= NEAR, 1)
    expected = {(i + 1, j + 1) for i, j in zip(*np.nonzero(similar), strict=True)}
    found = {(i, j) for i, j, _ in near_pairs(rows).tolist()}
    assert 30 < len(expected) < 100
    assert found <= expected
    assert len(found) >= 0.97 * len(expected)
    new = {(i, j) for i, j, _ in near_pairs(rows, after=640).tolist()}
    assert {pair for pair in found if pair[1] > 640} <= new <= expected
    assert all(pair[1] > 640 for pair in new)


def test_the_copies_of_a_large_bucket_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_WINDOW", 3)
    monkeypatch.setattr(duplicates, "MAX_DIRECT", 0)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((90, 32), np.float32)
    scene = rng.standard_normal((1, 32), np.float32) + 0.2 * noise[:40]
    rows = rows_of(np.concatenate([scene, scene + 0.001, noise[40:]]))
    [(kind, ids)] = group(near_pairs(rows))
    assert kind == "near-duplicates"
    assert ids == list(range(1, 81))


def test_bursts_are_similar_and_close_in_time() -> None:
    one, other = np.eye(8, dtype=np.float32)[:2]
    vectors = np.array([one, one + 0.4 * other, other, one + 0.4 * other, one])
    seconds = np.array([100, 103, 104, 900, 106])
    pairs = burst_pairs(rows_of(vectors), seconds).tolist()
    assert [(first, second) for first, second, _ in pairs] == [(1, 2), (2, 5)]
    assert group(np.array(pairs)) == [("burst", [1, 2, 5])]
    assert burst_pairs(rows_of(vectors), seconds, after=4).tolist() == [[2, 5, 2]]


def test_hits_are_stacked_and_nothing_is_deleted(library: Library, photos: Path) -> None:
    for colour in ("green", "blue", "white", "yellow", "cyan", "magenta"):
        write_image(photos / f"{colour}.png", colour)
    write_image(photos / "red.png", "red")
    shutil.copyfile(photos / "red.png", photos / "red copy.png")
    write_image(photos / "pink.png", (255, 12, 10))
    for number, path in enumerate(sorted(photos.iterdir())):
        os.utime(path, (10**9 + 60 * number,) * 2)
    library.add(photos)
    stacks = library.duplicates()
    assert [stack.kind for stack in stacks] == ["near-duplicates"]
    members = {member.path.name for member in stacks[0].members}
    assert members == {"red.png", "red copy.png", "pink.png"}
    hits = library.search("red", k=9, off=["names"])
    stacked = library.search("red", k=9, off=["names"], stack=True)
    assert len(hits) == 9
    assert len(stacked) == 7
    assert stacked[0].path == hits[0].path
    assert {other.path.name for other in stacked[0].stack} == members - {stacked[0].path.name}
    assert all(not hit.stack for hit in stacked[1:])
    assert len(library.search("red", k=5, stack=True)) == 5
    assert [one.path.name for one in library.stack_of(stacked[3])] == [stacked[3].path.name]
    assert {one.path.name for one in library.stack_of(stacked[0])} == members
    library.remove(photos / "pink.png")
    assert [stack.kind for stack in library.duplicates()] == ["copies"]


def test_only_new_pictures_are_compared(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image(photos / "a.png", "red")
    write_image(photos / "b.png", (250, 2, 2))
    library.add(photos)
    assert len(library.duplicates()) == 1
    assert library.path is not None
    compared: list[int] = []
    monkeypatch.setattr(
        "polyglance.search.library_stacks.near_pairs",
        lambda rows, after: compared.append(after) or near_pairs(rows, after),  # type: ignore[func-returns-value]
    )
    with Library(library.path, model=ColourEncoder()) as again:
        assert len(again.duplicates()[0].members) == 2
        assert compared == []
        write_image(photos / "c.png", (252, 1, 3))
        again.update()
        assert len(again.duplicates()[0].members) == 3
        assert compared == [2]


def test_a_library_on_a_server_has_stacks_too(postgres: Server) -> None:
    with Library(postgres.database(), model=ColourEncoder()) as library:
        store = library._store(create=True)
        for number, colour in enumerate(("red", "red", "blue")):
            [vector] = ColourEncoder().encode_texts([colour])
            taken = f"2020-01-0{number + 1}T00:00:00"
            item = Item(f"/{number}", "picture", FileSignature(1, 1), str(number), taken, 4, 4)
            store.put([Entry(item, vector[None])])
        [stack] = library.duplicates()
        assert [str(member.path) for member in stack.members] == ["/0", "/1"]
        assert [str(hit.path) for hit in library.search("red", stack=True)] == ["/0", "/2"]


def test_the_terminal_lists_stacks(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    shutil.copyfile(photos / "a.png", photos / "b.png")
    library.add(photos)

    def run(*options: str) -> str:
        place = ["library", "duplicates", "-l", str(library.path)]
        result = CliRunner().invoke(app, [*place, *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run().splitlines()[0] == "copies"
    assert run("--paths").splitlines() == [str(photos / "b.png")]
    assert '"kind": "copies"' in run("--json")
    assert run("--kind", "burst", "--paths") == ""
