"""Word links: symmetrisation of two directions, and the Pharaoh format.

A Pharaoh file has one line per sentence pair, ``0-0 1-2`` for the links of the first and
the second source word. eflomal and fast_align write it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import atomic_write, read_lines

Link = tuple[int, int]
"""Index of a source word and of a target word, from 0."""

Symmetry = Literal["intersection", "union", "grow-diag-final-and"]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(
    forward: Sequence[Iterable[Link]], backward: Sequence[Iterable[Link]], symmetry: Symmetry
) -> list[list[Link]]:
    """Combine the links of two directions (Koehn, Och and Marcu 2003).

    Args:
        forward: Links of each sentence pair in the forward direction.
        backward: Links of the same pairs in the backward direction, also (source, target).
        symmetry: The heuristic.

    Returns:
        The combined links of each pair, sorted.
    """
    combine = _HEURISTICS[parse_symmetry(symmetry)]
    return [
        sorted(combine(set(ours), set(theirs)))
        for ours, theirs in zip(forward, backward, strict=True)
    ]


def parse_symmetry(name: str) -> Symmetry:
    """Return the symmetrisation heuristic of this name."""
    for known in _HEURISTICS:
        if name == known:
            return known
    raise PolyglanceError(f"unknown symmetrisation {name!r}: give {', '.join(_HEURISTICS)}")


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """Grow the intersection by neighbouring links of the union, then add isolated links.

    A link of the union next to an accepted one, diagonals included, is accepted if
    either of its words has no link yet; this repeats until nothing changes. Finally
    links both of whose words have none are added, forward ones first.
    """
    accepted = forward & backward
    if forward == backward:
        return accepted
    union = forward | backward
    sources, targets = {i for i, _ in accepted}, {j for _, j in accepted}

    def accept(link: Link) -> None:
        accepted.add(link)
        sources.add(link[0])
        targets.add(link[1])

    changed = True
    while changed:
        changed = False
        for i, j in sorted(accepted):
            for down, right in _NEIGHBOURS:
                near = i + down, j + right
                is_free = near[0] not in sources or near[1] not in targets
                if is_free and near in union and near not in accepted:
                    accept(near)
                    changed = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in sources and link[1] not in targets:
                accept(link)
    return accepted


def format_pharaoh(links: Iterable[Link]) -> str:
    """Return links as a line of the Pharaoh format."""
    return " ".join(f"{i}-{j}" for i, j in links)


def write_pharaoh(path: str | Path, links: Iterable[Iterable[Link]]) -> int:
    """Write one line per sentence pair and return the number of lines."""
    count = 0
    with atomic_write(path) as out:
        for line in links:
            out.write(format_pharaoh(line) + "\n")
            count += 1
    return count


def read_links(
    path: str | Path, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[list[Link]]:
    """Read the links that an aligner wrote for these sentences; raise if they do not match."""
    links_by_pair = list(read_pharaoh(path))
    if len(links_by_pair) != len(pairs):
        raise DataError(
            f"{path}: has {len(links_by_pair):,} lines for {len(pairs):,} sentence pairs"
        )
    for number, (links, (source, target)) in enumerate(
        zip(links_by_pair, pairs, strict=True), start=1
    ):
        if any(not (0 <= i < len(source) and 0 <= j < len(target)) for i, j in links):
            raise DataError(f"{path}:{number}: links a word that its sentence does not have")
    return links_by_pair


def read_pharaoh(path: str | Path, problems: Problems | None = None) -> Iterator[list[Link]]:
    """Yield the links of each line, as eflomal or any other aligner wrote them.

    A malformed line goes to ``problems`` and counts as a pair without links, so that
    lines stay matched with their sentences; without ``problems`` it is an error. Scores
    after a link (``1-2:0.7``) are ignored, and a possible link, ``1p2``, counts as one.
    """
    problems = Problems(strict=True) if problems is None else problems
    for number, line in read_lines(path, problems):
        links = []
        try:
            for part in line.split():
                i, j = part.partition(":")[0].replace("p", "-").split("-")
                links.append((int(i), int(j)))
        except ValueError:
            problems.report(path, number, "expected links as 0-0 1-2")
            links = []
        yield links


_HEURISTICS: dict[Symmetry, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag-final-and": grow_diag_final_and,
}
