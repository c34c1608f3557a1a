from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.colour_encoder import RGB, ColourEncoder, write_clip, write_image
from polyglance.errors import PolyglanceError
from polyglance.search.classification import (
    NONE_DEVIATIONS,
    SHARPNESS,
    label_probabilities,
    label_vectors,
    split_labels,
)
from polyglance.search.library import Library
from polyglance.search.sorted_folders import folder_name, sort_into_folders

COLOURS = ("red", "green", "blue")


class WordEncoder(ColourEncoder):
    """Encodes a text by the colour that it names, or else by a direction of its own."""

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            colour = next((RGB[name] for name in COLOURS if name in text), None)
            noise = np.random.default_rng(zlib.crc32(text.encode())).normal(size=12)
            rows.append(noise if colour is None else np.tile(colour, 4))
        vectors = np.array(rows, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def library(tmp_path: Path, photos: Path) -> Iterator[Library]:
    """A library of a picture of each colour, one of none, and a red clip."""
    for name in COLOURS:
        write_image(photos / f"{name}.png", name)
    write_image(photos / "other" / "grey.png", (90, 90, 90))
    write_clip(photos / "clip.mp4", [("red", 3), ("white", 1), ("red", 3)])
    with Library(tmp_path / "my.polyglance", model=WordEncoder()) as library:
        library.add(photos)
        yield library


def test_probabilities_agree_with_a_loop() -> None:
    cosines = np.random.default_rng(0).normal(0.1, 0.2, (5, 9))
    probabilities = label_probabilities(cosines, 3)
    for row, shares in zip(cosines.tolist(), probabilities.tolist(), strict=True):
        things = row[3:]
        mean = sum(things) / 6
        deviation = math.sqrt(sum((thing - mean) ** 2 for thing in things) / 6)
        odds = [math.exp(SHARPNESS * (cosine - mean) / deviation) for cosine in row[:3]]
        odds.append(math.exp(SHARPNESS * NONE_DEVIATIONS))
        assert shares == pytest.approx([one / sum(odds) for one in odds])
    # A model whose cosines are of another scale gives the same.
    np.testing.assert_allclose(label_probabilities(0.2 * cosines + 0.3, 3), probabilities)


def test_templates_are_averaged() -> None:
    encoder = WordEncoder()
    [vector] = label_vectors(encoder, ["thing"], ["{}", "the {} there"])
    parts = encoder.encode_texts(["thing", "the thing there"]).mean(0)
    np.testing.assert_allclose(vector, parts / np.linalg.norm(parts), rtol=1e-5)


@pytest.mark.parametrize("text", ["cat, dog,cat,", "cat、dog", "cat，dog", "cat،dog", "cat; dog"])
def test_labels_are_split_at_the_commas_of_any_script(text: str) -> None:
    assert split_labels(text) == ["cat", "dog"]


def test_items_get_the_label_that_fits_or_none(library: Library, photos: Path) -> None:
    results = library.classify(COLOURS)
    assert [result.item.path for result in results] == [item.path for item in library]
    labels = {result.item.path.name: result.label for result in results}
    assert labels == {
        "red.png": "red", "green.png": "green", "blue.png": "blue",
        "grey.png": None, "clip.mp4": "red",
    }  # fmt: skip
    for result in results:
        assert tuple(result.probabilities) == COLOURS
        none = 1 - sum(result.probabilities.values())
        expected = result.probabilities[result.label] if result.label else none
        assert result.probability == pytest.approx(expected)
    assert [one.label for one in library.classify(["red"], folder=photos / "other")] == [None]
    assert [one.label for one in library.classify(["red"], kind="clip")] == ["red"]
    assert all(one.label is None for one in library.classify(["red"], templates=["colour of x {}y"],
                                                             min_probability=1.0))  # fmt: skip
    assert library.classify(["red"], folder="/nowhere") == []


def test_wrong_labels_and_templates_are_refused(library: Library) -> None:
    for labels in ([], "cat", ["cat", " "]):
        with pytest.raises(PolyglanceError, match="at least one label"):
            library.classify(labels)
    with pytest.raises(PolyglanceError, match="where the label belongs"):
        library.classify(["cat"], templates=["a photo"])
    with pytest.raises(PolyglanceError, match="from 0 to 1"):
        library.classify(["cat"], min_probability=2)


@pytest.mark.parametrize("link", [False, True])
def test_files_are_copied_or_linked_and_never_overwritten(
    library: Library, photos: Path, tmp_path: Path, link: bool
) -> None:
    target = tmp_path / "sorted"
    (target / "red").mkdir(parents=True)
    (target / "red" / "red.png").write_bytes(b"somebody else's")
    results = library.classify(COLOURS)
    assert sort_into_folders(results, target, link=link) == (4, 0)
    assert (target / "red" / "red.png").read_bytes() == b"somebody else's"
    names = sorted(path.relative_to(target).as_posix() for path in target.rglob("*.*"))
    assert names == [
        "blue/blue.png", "green/green.png", "red/clip.mp4", "red/red (2).png", "red/red.png",
    ]  # fmt: skip
    assert (target / "red" / "red (2).png").read_bytes() == (photos / "red.png").read_bytes()
    assert (target / "blue" / "blue.png").is_symlink() == link
    assert sort_into_folders(results, target, link=link) == (0, 4)  # a second run adds nothing
    assert len(list(photos.rglob("*.*"))) == 5  # the originals stay


@pytest.mark.parametrize(
    ("label", "name"),
    [("cat", "cat"), ("a/b", "a_b"), ("..", "_"), ("a\nb", "a_b"), ("собака", "собака")],
)
def test_labels_as_names_of_folders(label: str, name: str) -> None:
    assert folder_name(label) == name
