"""Captions of one picture in two languages, and which of their words mean the same.

VTLM reads two captions that are translations of each other. Where a corpus was
translated, the k-th caption of a language is that of the k-th in English; where people
wrote for themselves, or translated some captions without saying which, the aligner
tells: of all captions of the picture, the one that shares most words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import Record, read_lines, replacing
from polyglance.text.alignment import AlignerSettings, align
from polyglance.text.alignment.links import Link, pharaoh
from polyglance.text.alignment.parallel import ParallelText

Pairing = Literal["closest", "same-place"]
Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class LinkedPair:
    """Two captions of one picture, by their numbers, and the links of their words."""

    picture: int
    first: int
    second: int
    links: tuple[Link, ...]
    """Places of words, as `polyglance.text.segment.cut_words` cuts them."""


def link_captions(
    records: Sequence[Record],
    source: str,
    target: str,
    *,
    pairing: Pairing = "closest",
    texts: Iterable[Record] = (),
    settings: AlignerSettings | None = None,
    least_lift: float = 2.5,
) -> list[LinkedPair]:
    """Pairs of captions, a source one for each target one, with the links of their words.

    Links are those that both directions of the aligner have, between words that are
    linked ``least_lift`` times as often as chance would bring them together: articles are
    in every caption, and linked to whatever is left over. ``texts`` are more sentences
    with their translations, for the aligner to learn from.
    """
    places = [
        (number, first, second)
        for number, record in enumerate(records)
        for first, second in _candidates(record, source, target, pairing)
    ]
    if not places:
        raise PolyglanceError(
            f"no picture has captions in both {source} and {target}: choose languages that the"
            " corpus has, or leave VTLM out"
        )
    said = [
        (records[number].captions[source][i], records[number].captions[target][j])
        for number, i, j in places
    ]
    more = ParallelText.from_records(texts, source, target)
    pairs = [*ParallelText.of(said, source, target).plain(), *more.plain()]
    found = align(pairs, settings, symmetry="intersection").links
    best: dict[tuple[int, int], tuple[float, LinkedPair]] = {}
    telling = _telling(pairs, found, least_lift)
    for place, links, (ours, theirs), told in zip(places, found, pairs, telling, strict=False):
        shared = len(links) / max(1, len(ours) + len(theirs))
        pair = LinkedPair(*place, tuple(told))
        known = best.get((pair.picture, pair.second))
        if known is None or shared > known[0]:
            best[pair.picture, pair.second] = shared, pair
    return [pair for _, pair in best.values()]


def _telling(
    pairs: Sequence[tuple[Words, Words]], found: Sequence[Sequence[Link]], least_lift: float
) -> Iterator[list[Link]]:
    """The links of each pair whose words say something of each other."""
    ours, theirs = Counter[str](), Counter[str]()
    linked = Counter[tuple[str, str]]()
    for (words, others), links in zip(pairs, found, strict=True):
        ours.update(set(words))
        theirs.update(set(others))
        linked.update({(words[i], others[j]) for i, j in links})
    lift = {
        (word, other): count * len(pairs) / (ours[word] * theirs[other])
        for (word, other), count in linked.items()
    }
    for (words, others), links in zip(pairs, found, strict=True):
        yield [(i, j) for i, j in links if lift[words[i], others[j]] >= least_lift]


def _candidates(
    record: Record, source: str, target: str, pairing: Pairing
) -> Iterator[tuple[int, int]]:
    ours, theirs = (range(len(record.captions.get(code, ()))) for code in (source, target))
    return product(ours, theirs) if pairing == "closest" else zip(ours, theirs, strict=False)


def write_linked(path: str | Path, pairs: Iterable[LinkedPair], key: str) -> None:
    """A line a pair: picture, captions and links in the Pharaoh format; ``key`` heads the file."""
    with replacing(path) as out:
        out.write(f"# {key}\n")
        for pair in pairs:
            places = f"{pair.picture}\t{pair.first}\t{pair.second}"
            out.write(f"{places}\t{pharaoh(pair.links)}\n")


def read_linked(path: str | Path, key: str) -> list[LinkedPair] | None:
    """What `write_linked` wrote under the same key; None if there is nothing, or of another."""
    if not Path(path).is_file():
        return None
    pairs = []
    for number, line in read_lines(path, Problems(strict=True)):
        if number == 1:
            if line.strip() != f"# {key}":
                return None
            continue
        try:
            picture, first, second, links = line.rstrip("\n").split("\t")
            linked = (link.split("-") for link in links.split())
            pairs.append(
                LinkedPair(
                    int(picture),
                    int(first),
                    int(second),
                    tuple((int(i), int(j)) for i, j in linked),
                )
            )
        except ValueError as error:
            raise DataError(
                f"{path}:{number}: expected a picture, two captions and links; delete the file to"
                " have it made again"
            ) from error
    return pairs
