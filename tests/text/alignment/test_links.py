from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.data.toy import format_pharaoh as toy_pharaoh
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.text.alignment.links import (
    Link,
    format_pharaoh,
    grow_diag_final_and,
    parse_symmetry,
    read_links,
    read_pharaoh,
    symmetrise,
    write_pharaoh,
)


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        # both agree
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}, {(0, 0), (1, 1)}),
        # (0, 1) touches (0, 0) and word 1 of the target is free
        ({(0, 0), (0, 1)}, {(0, 0)}, {(0, 0), (0, 1)}),
        # a diagonal neighbour; then (2, 2) touches what was just taken
        ({(0, 0), (1, 1), (2, 2)}, {(0, 0)}, {(0, 0), (1, 1), (2, 2)}),
        # (0, 1) touches, but both of its words have links already
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}),
        # (3, 3) touches nothing: taken at the end, for both of its words are free
        ({(0, 0), (3, 3)}, {(0, 0)}, {(0, 0), (3, 3)}),
        # (3, 0) touches nothing and word 0 of the target has a link: left
        ({(0, 0)}, {(0, 0), (3, 0)}, {(0, 0)}),
        # no intersection to grow from: the forward link goes first and shuts the other out
        ({(0, 1)}, {(0, 0)}, {(0, 1)}),
        (set(), set(), set()),
    ],
)
def test_grow_diag_final_and_by_hand(
    forward: set[Link], backward: set[Link], expected: set[Link]
) -> None:
    assert grow_diag_final_and(forward, backward) == expected
    assert symmetrise([forward], [backward], "grow-diag-final-and") == [sorted(expected)]
    assert forward & backward <= expected <= forward | backward


def test_intersection_and_union() -> None:
    forward, backward = [[(0, 0), (1, 0)], []], [[(0, 0), (2, 1)], [(0, 0)]]
    assert symmetrise(forward, backward, "intersection") == [[(0, 0)], []]
    assert symmetrise(forward, backward, "union") == [[(0, 0), (1, 0), (2, 1)], [(0, 0)]]
    with pytest.raises(PolyglanceError, match="unknown symmetrisation 'grow'"):
        parse_symmetry("grow")


def test_links_written_and_read_back(tmp_path: Path) -> None:
    links = [[(0, 0), (1, 2)], [], [(10, 3)]]
    assert write_pharaoh(tmp_path / "links", links) == 3
    assert (tmp_path / "links").read_text() == "0-0 1-2\n\n10-3\n"
    assert list(read_pharaoh(tmp_path / "links")) == links
    assert format_pharaoh(links[0]) == toy_pharaoh(links[0])
    pairs = [(["a"] * 11, ["b"] * 4)] * 3
    assert read_links(tmp_path / "links", pairs) == links


def test_links_of_other_aligners(tmp_path: Path) -> None:
    path = tmp_path / "scored"
    path.write_text("0-0:0.93 1p2\nnonsense\n1-1 2\n0-0\n")
    with pytest.raises(DataError, match=r"scored:2: expected links"):
        list(read_pharaoh(path))
    problems = Problems()
    assert list(read_pharaoh(path, problems)) == [[(0, 0), (1, 2)], [], [], [(0, 0)]]
    assert [problem.line for problem in problems.items] == [2, 3]


def test_links_must_fit_their_sentences(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("0-0 1-0\n")
    with pytest.raises(DataError, match="1 lines for 2 sentence pairs"):
        read_links(path, [(["a"], ["b"])] * 2)
    with pytest.raises(DataError, match=r"links:1: links a word"):
        read_links(path, [(["a"], ["b"])])
