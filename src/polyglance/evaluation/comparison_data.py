"""The captioned pictures that models are compared on, in any layout that a user may have.

| layout | found by |
|---|---|
| manifest | a ``.jsonl`` file, or a folder with one |
| imagefolder of Hugging Face's datasets | ``metadata.jsonl``, ``.csv`` or ``.parquet`` |
| pictures with text files beside them | ``dog.jpg`` with ``dog.txt``, ``dog.de.txt`` |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from polyglance.data.machine_captions import count_machine_captions, read_human_captions
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import DataError, Problems, printable
from polyglance.evaluation.embeddings import EmbeddingLayout, build_layout, select_languages
from polyglance.evaluation.encoders import image_paths
from polyglance.records import Record, read_manifest
from polyglance.utils.progress import progress
from polyglance.vision.pictures import PictureError, read_picture

_MANIFESTS = (".jsonl", ".jsonl.gz", ".jsonl.xz")
_IMAGEFOLDER = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_MACHINE_MARKS = ".machine.jsonl"
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
        source: A manifest, or a folder in one of the layouts above.
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
    options = ReadOptions(language=language)
    if source.is_file():
        if source.name in _IMAGEFOLDER:
            return None, _dataset("imagefolder", source.parent, options), source.parent
        if not source.name.endswith(_MANIFESTS):
            raise DataError(
                f"{source} is no manifest: give a .jsonl file, or a folder of captioned pictures"
            )
        reader = read_human_captions if human_only else read_manifest
        return source, reader(source), source.parent
    if not source.is_dir():
        raise DataError(
            f"{printable(str(source))}: no such file or folder; give a manifest, or a folder of"
            " captioned pictures"
        )
    if any(next(source.glob(f"**/{name}"), None) for name in _IMAGEFOLDER):
        return None, _dataset("imagefolder", source, options), source
    manifests = sorted(
        file
        for file in source.iterdir()
        if file.name.endswith(_MANIFESTS) and not file.name.endswith(_MACHINE_MARKS)
    )
    if len(manifests) > 1:
        names = ", ".join(file.name for file in manifests[:6])
        raise DataError(f"{source} has several manifests ({names}): give one of them as --data")
    if manifests:
        return _read(manifests[0], language, human_only)
    try:
        records = list(_dataset("captioned-folder", source, options))
    except DataError as error:
        if "expected pictures" not in str(error):
            raise
        raise DataError(
            f"{printable(str(source))} has no captions: put them in a manifest (.jsonl), in"
            " metadata.jsonl, or in a text file beside each picture (dog.jpg, dog.txt);"
            " 'polyglance data import' converts other formats"
        ) from None
    return None, records, source


def _dataset(format: str, source: Path, options: ReadOptions) -> Iterator[Record]:
    return read_dataset(format, source, options, Problems(strict=True))


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
