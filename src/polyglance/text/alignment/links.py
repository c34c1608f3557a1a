"""Word links: two directions made one, and the Pharaoh format in which aligners write them.

A line a sentence pair, ``0-0 1-2`` for links of the first and the second word
of the source. eflomal and fast_align write it, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import atomic_write, read_lines

Link = tuple[int, int]
"""Place of a word in the source and of one in the target, from 0."""

Symmetry = Literal["intersection", "union", "grow-diag-final-and"]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(
    forward: Sequence[Iterable[Link]], backward: Sequence[Iterable[Link]], symmetry: Symmetry
) -> list[list[Link]]:
    """The links of two directions as one, sentence by sentence (Koehn, Och and Marcu 2003)."""
    join = _JOINING[as_symmetry(symmetry)]
    return [
        sorted(join(set(there), set(back))) for there, back in zip(forward, backward, strict=True)
    ]


def as_symmetry(name: str) -> Symmetry:
    """A way to make one of two directions, by its name."""
    for known in _JOINING:
        if name == known:
            return known
    raise PolyglanceError(f"links are made one by {', '.join(_JOINING)}, not {name!r}")


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """The intersection, what of the union touches it, and then what is far from everything.

    A link of the union beside one that is taken, diagonals included, is taken
    if one of its words has none yet; that is repeated while any is found. At
    the end come links of which both words have none, forward ones first.
    """
    taken = forward & backward
    if forward == backward:
        return taken
    union = forward | backward
    sources, targets = {i for i, _ in taken}, {j for _, j in taken}

    def take(link: Link) -> None:
        taken.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for i, j in sorted(taken):
            for down, right in _NEIGHBOURS:
                near = i + down, j + right
                is_free = near[0] not in sources or near[1] not in targets
                if is_free and near in union and near not in taken:
                    take(near)
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in sources and link[1] not in targets:
                take(link)
    return taken


def pharaoh(links: Iterable[Link]) -> str:
    """Links as a line of the Pharaoh format."""
    return " ".join(f"{i}-{j}" for i, j in links)


def write_pharaoh(path: str | Path, links: Iterable[Iterable[Link]]) -> int:
    """Write a line a sentence pair and return their number."""
    count = 0
    with atomic_write(path) as out:
        for line in links:
            out.write(pharaoh(line) + "\n")
            count += 1
    return count


def read_links(
    path: str | Path, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[list[Link]]:
    """The links that an aligner wrote for these sentences; an error if they do not fit."""
    found = list(read_pharaoh(path))
    if len(found) != len(pairs):
        raise DataError(f"{path}: has {len(found):,} lines for {len(pairs):,} pairs of sentences")
    for number, (links, (source, target)) in enumerate(zip(found, pairs, strict=True), start=1):
        if any(not (0 <= i < len(source) and 0 <= j < len(target)) for i, j in links):
            raise DataError(f"{path}:{number}: links a word that its sentence does not have")
    return found


def read_pharaoh(path: str | Path, problems: Problems | None = None) -> Iterator[list[Link]]:
    """Yield the links of each line, from eflomal or any other aligner.

    A line that is not links goes to ``problems`` and counts as a pair without
    any, so that lines still belong to their sentences; without ``problems`` it
    is an error. Marks after a link (``1-2:0.7``) are scores and left out, and a
    possible link, ``1p2``, is one.
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


_JOINING: dict[Symmetry, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag-final-and": grow_diag_final_and,
}
