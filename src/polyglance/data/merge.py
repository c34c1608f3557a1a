"""Merge manifests: a record for each picture or clip, with the captions and labels of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyglance.data.hold_out import picture_names
from polyglance.data.machine_captions import (
    HUMAN,
    MachineCaptions,
    read_translators,
    read_with_machine_captions,
    write_machine_captions,
)
from polyglance.errors import DataError
from polyglance.records import Record, rebase_paths, write_manifest


@dataclass
class _Merged:
    record: Record
    """The first of a picture's records."""
    captions: dict[str, list[str]] = field(default_factory=dict)
    sources: dict[str, list[str | None]] = field(default_factory=dict)
    """By language, the caption that each caption was translated from; None for people's own."""
    labels: dict[str, None] = field(default_factory=dict)

    def add(self, record: Record, machine: MachineCaptions, source: str) -> None:
        """Add captions and labels that are not there yet."""
        self.labels |= dict.fromkeys(record.labels)
        for language, texts in record.captions.items():
            own = self.captions.setdefault(language, [])
            sources = self.sources.setdefault(language, [])
            for number, text in enumerate(texts):
                if text not in own:
                    place = machine[language][number] if language in machine else HUMAN
                    own.append(text)
                    sources.append(None if place == HUMAN else record.captions[source][place])

    def finish(self, source: str) -> tuple[Record, MachineCaptions]:
        """Return the record, and the places of the captions that others were translated from."""
        places = {text: number for number, text in enumerate(self.captions.get(source, ()))}
        machine = {
            language: tuple(HUMAN if text is None else places[text] for text in sources)
            for language, sources in self.sources.items()
            if any(text is not None for text in sources)
        }
        captions = {language: tuple(texts) for language, texts in self.captions.items()}
        return replace(self.record, captions=captions, labels=tuple(self.labels)), machine


@dataclass(frozen=True)
class MergeResult:
    """The outcome of a merge."""

    records: int
    captions: dict[str, int]
    """By language."""
    machine: dict[str, int]
    """By language, how many of the captions are machine translations."""


def merge_manifests(
    manifests: Sequence[str | Path],
    out: str | Path,
    *,
    languages: Iterable[str] | None = None,
    source: str = "en",
    without: Iterable[str | Path] = (),
    require: Iterable[str] = (),
) -> MergeResult:
    """Write a manifest with the captions of several, and marks of what a machine translated.

    Pictures keep the order in which they first appear, and from there everything but captions and
    labels. What is there twice is kept once.

    Args:
        manifests: What to merge.
        out: The manifest to write; paths of pictures become relative to its folder.
        languages: Keep captions in these alone; None for all.
        source: The language that machine translations were made from.
        without: Manifests whose pictures are left out, such as held-out ones.
        require: Leave out pictures without a caption in each of these.
    """
    left_out = picture_names(without)
    kept = None if languages is None else {*languages, source}
    merged: dict[str, _Merged] = {}
    translators: dict[str, str] = {}
    target = Path(out).resolve()
    for path in (Path(manifest).resolve() for manifest in manifests):
        translators |= read_translators(path)
        for record, machine in read_with_machine_captions(path):
            if not (record.image or record.video):
                raise DataError(f"{path}: {record.key!r} has no picture or clip to merge by")
            if record.image and Path(record.image).name in left_out:
                continue
            record = rebase_paths(record, path.parent, target.parent)
            captions = {c: t for c, t in record.captions.items() if kept is None or c in kept}
            record = replace(record, captions=captions)
            merged.setdefault(record.key, _Merged(record)).add(record, machine, source)
    required = set(require)
    results = [
        entry.finish(source) for entry in merged.values() if required <= entry.captions.keys()
    ]
    if required and not results:
        raise DataError(f"{out}: no picture has captions in {', '.join(sorted(required))}")
    write_manifest(target, (record for record, _ in results))
    write_machine_captions(target, results, translators)
    captions_of, machine_of = dict[str, int](), dict[str, int]()
    for record, machine in results:
        for language, texts in record.captions.items():
            captions_of[language] = captions_of.get(language, 0) + len(texts)
        for language, places in machine.items():
            count = sum(place != HUMAN for place in places)
            machine_of[language] = machine_of.get(language, 0) + count
    return MergeResult(len(results), dict(sorted(captions_of.items())), machine_of)
