"""The captioned pictures that models are compared on, in any layout that a user may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyglance.data.captioned_pictures import MANIFEST, find_captions, read_captioned_pictures
from polyglance.data.machine_captions import count_machine_captions, read_human_captions
from polyglance.errors import DataError, printable
from polyglance.evaluation.embeddings import EmbeddingLayout, build_layout, select_languages
from polyglance.evaluation.encoders import image_paths
from polyglance.records import Record, read_manifest
from polyglance.utils.progress import progress
from polyglance.vision.pictures import PictureError, read_picture

_CHECKED_SIDE = 64
"""Pictures are decoded at about this size to learn whether they can be."""


@dataclass(frozen=True, eq=False)
class TestSet:
    """Captioned pictures, in the order of every model's rows."""

    __test__ = False  # pytest: no class of tests

    name: str
    layout: EmbeddingLayout
    files: list[Path]
    languages: list[str]
    skipped: dict[str, str] = field(default_factory=dict)
    """Pictures that cannot be read, with the reason."""
    machine_captions: dict[str, int] = field(default_factory=dict)
    """Captions made by machine translation, by language."""


def open_test_set(
    source: str | Path,
    *,
    split: str | None = None,
    languages: Collection[str] | None = None,
    language: str | None = None,
    pictures: Path | None = None,
    human_only: bool = False,
    with_pictures: bool = True,
    quiet: bool = False,
) -> TestSet:
    """Read captioned pictures.

    Args:
        source: A manifest, or a folder in a layout of `polyglance.data.captioned_pictures`.
        split: Only records of this split.
        languages: Languages to compare in; None for all.
        language: Of captions whose files do not say it; None for English.
        pictures: Folder that a manifest's pictures are relative to; None for its own.
        human_only: Leave out captions that a manifest marks as machine-made.
        with_pictures: Whether pictures are opened; those that cannot be are left out. Models of
            features need none.
        quiet: Show no progress.
    """
    source = Path(source).expanduser()
    manifest, records, folder = _read(source, language, human_only)
    records = [_without_empty_captions(record) for record in records]
    layout = build_layout(records, source, split)
    skipped: dict[str, str] = {}
    if with_pictures:
        files = image_paths(layout, source, pictures or folder)
        skipped = _unreadable(files, quiet)
        if skipped:
            bad = {str(file) for file in files if str(file) in skipped}
            kept = [r for r, f in zip(layout.records, files, strict=True) if str(f) not in bad]
            layout = _layout_of_rest(kept, source, skipped)
            files = [file for file in files if str(file) not in bad]
    else:
        files = [(pictures or folder) / (r.image or r.video or "") for r in layout.records]
    if len(layout.records) < 2:
        raise DataError(f"{source}: one picture has nothing to be told from: give more of them")
    wanted, _ = select_languages(layout, source, languages, ())
    counts = {} if human_only or manifest is None else count_machine_captions(manifest, split)
    name = printable(source.resolve().name) + (f", {split}" if split else "")
    machine = {code: count for code, count in counts.items() if code in wanted}
    return TestSet(name, layout, files, wanted, skipped, machine)


def _read(
    source: Path, language: str | None, human_only: bool
) -> tuple[Path | None, Iterable[Record], Path]:
    """Return the manifest if there is one, the records, and the folder of their pictures."""
    format, place = find_captions(source)
    if format == MANIFEST:
        reader = read_human_captions if human_only else read_manifest
        return place, reader(place), place.parent
    return None, *read_captioned_pictures(place, language)


def _without_empty_captions(record: Record) -> Record:
    captions = {
        code: tuple(text for text in texts if text.strip())
        for code, texts in record.captions.items()
    }
    return replace(record, captions={code: texts for code, texts in captions.items() if texts})


def _unreadable(files: list[Path], quiet: bool) -> dict[str, str]:
    bad: dict[str, str] = {}
    with progress("Opening pictures", len(files), quiet=quiet) as advance:
        for file in files:
            try:
                read_picture(file, min_side=_CHECKED_SIDE)
            except PictureError as error:
                bad[str(file)] = str(error)
            advance(1)
    return bad


def _layout_of_rest(
    records: list[Record], source: Path, skipped: dict[str, str]
) -> EmbeddingLayout:
    try:
        return build_layout(records, source)
    except DataError:
        first = next(iter(skipped.values()))
        raise DataError(
            f"{source}: none of the captioned pictures can be read ({first}); --pictures names"
            " their folder"
        ) from None
