"""Records, the common form of all datasets, and manifests, the files that hold them.

Every dataset reader yields `Record`s; nothing after that depends on a dataset's own format.
A manifest is a JSON Lines file with one record per line:

    {"image": "images/1.jpg", "captions": {"en": ["A dog."], "de": ["Ein Hund."]}}

Paths in a manifest are relative to the manifest's folder.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from polyglance.errors import DataError, PolyglanceError, Problems, error_reason, printable
from polyglance.languages import normalise_language

Captions = Mapping[str, tuple[str, ...]]

MAX_LINE_BYTES = 64 * 2**20
"""Longer lines are skipped: such a file is not text, and a line must fit into memory."""
_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True)
class Region:
    """A box (left, top, right, bottom), in fractions of the picture's sides, and its label."""

    box: tuple[float, float, float, float]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a picture, with the answers of annotators."""

    text: str
    language: str
    answers: tuple[str, ...] = ()
    answer_type: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle from ``start`` to ``end``, in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """A picture, a clip or, with neither, text alone, with captions by language.

    In a record of text alone, captions in different languages are translations of each
    other. Labels are the names of the classes that a picture shows.
    """

    image: str | None = None
    video: str | None = None
    captions: Captions = field(default_factory=dict)
    split: str | None = None
    id: str | None = None
    span: tuple[float, float] | None = None
    """The part of the video in seconds; None for all of it."""
    questions: tuple[Question, ...] = ()
    regions: tuple[Region, ...] = ()
    subtitles: Mapping[str, tuple[Cue, ...]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The record's id, else the path of its picture or clip."""
        return self.id or self.image or self.video or ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object of a manifest, without empty fields."""
        line: dict[str, Any] = {}
        for name in ("id", "image", "video", "split"):
            if (value := getattr(self, name)) is not None:
                line[name] = value
        if self.span is not None:
            line["span"] = list(self.span)
        if self.captions:
            line["captions"] = {lang: list(texts) for lang, texts in self.captions.items()}
        if self.questions:
            line["questions"] = [_nonempty_fields(q) for q in self.questions]
        if self.regions:
            line["regions"] = [_nonempty_fields(r) for r in self.regions]
        if self.subtitles:
            line["subtitles"] = {
                lang: [[c.start, c.end, c.text] for c in cues]
                for lang, cues in self.subtitles.items()
            }
        return line | ({"labels": list(self.labels)} if self.labels else {})

    @classmethod
    def from_json(cls, line: object) -> Record:
        """Parse a JSON object of a manifest; a `ValueError` says what was expected."""
        return _parse_record(line)


def read_manifest(path: str | Path, problems: Problems | None = None) -> Iterator[Record]:
    """Yield the records of a manifest (``.jsonl`` or ``.jsonl.gz``).

    Malformed lines are added to ``problems``; without it the first one is an error.
    """
    problems = Problems(strict=True) if problems is None else problems
    if not os.path.isfile(path):  # noqa: PTH113 (unlike Path.is_file it never raises)
        raise DataError(
            f"{printable(str(path))}: no such manifest; 'polyglance data import' writes one"
        )
    for number, line in read_lines(path, problems):
        if not line.strip():
            continue
        try:
            yield Record.from_json(parse_json(line))
        except ValueError as error:
            problems.report(path, number, f"expected {error}")


def write_manifest(path: str | Path, records: Iterable[Record]) -> int:
    """Write records, one per line, atomically; return their number."""
    count = 0
    with atomic_write(path) as out:
        for record in records:
            out.write(json.dumps(record.to_json(), ensure_ascii=False) + "\n")
            count += 1
    return count


def rebase_paths(record: Record, old: Path, new: Path) -> Record:
    """Return a record of a manifest in folder ``old`` for a manifest in folder ``new``.

    Relative paths are rewritten. A name that is no file in ``old``, such as a bare video id,
    stays as it is. Both folders must be resolved paths.
    """

    def rebase(name: str | None) -> str | None:
        if name is None or os.path.isabs(name) or not os.path.exists(old / name):  # noqa: PTH110, PTH117
            return name
        return Path(os.path.relpath(old / name, new)).as_posix()

    if old == new:
        return record
    return replace(record, image=rebase(record.image), video=rebase(record.video))


def read_lines(path: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, unpacking ``.gz`` and ``.xz``.

    Lines that are not UTF-8 are reported and skipped. A file that cannot be read (missing,
    forbidden, a damaged archive) is reported, and the lines end there.
    """
    path = Path(path)
    try:
        with _OPENERS.get(path.suffix, Path.open)(path, "rb") as raw:
            yield from decode_lines(cast("IO[bytes]", raw), path, problems)
    except OSError as error:
        problems.report(path, None, f"cannot be opened ({error_reason(error)})")


def decode_lines(raw: IO[bytes], name: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of an open stream; problems are reported under ``name``."""
    number = 0
    try:
        while data := raw.readline(MAX_LINE_BYTES):
            number += 1
            if len(data) == MAX_LINE_BYTES:
                while data and not data.endswith(b"\n"):
                    data = raw.readline(MAX_LINE_BYTES)
                problems.report(name, number, f"expected lines below {MAX_LINE_BYTES:,} bytes")
                continue
            try:
                text = data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                problems.report(name, number, "expected UTF-8 text")
                continue
            yield number, text.rstrip("\r\n")
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        problems.report(name, number or None, f"cannot be read further ({error_reason(error)})")


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file for writing (``.gz`` zipped) that replaces ``path`` when complete.

    A symbolic link stays; the file that it points to is replaced. Anything but a regular
    file, such as a pipe or a terminal, is written to directly.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="\n") as stream:
                yield stream
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with (
            open(handle, "wb") as file,
            # No name and no time in the archive, so that the same records give the same bytes.
            gzip.GzipFile("", "wb", fileobj=file, mtime=0)
            if path.suffix == ".gz"
            else nullcontext(file) as sink,
            io.TextIOWrapper(cast("IO[bytes]", sink), encoding="utf-8", newline="\n") as out,
        ):
            yield out
        temporary.chmod(mode)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: cannot be written ({error_reason(error)})"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def parse_json(text: str | bytes) -> object:
    """Parse JSON; a `ValueError` says what was expected.

    `json.loads` alone also raises on nesting that exhausts the stack and on numbers of
    thousands of digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"valid JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("JSON that is not nested thousands deep") from None
    except ValueError:
        raise ValueError("valid JSON in UTF-8 with numbers of sensible length") from None


def is_valid_text(value: object) -> bool:
    """Return whether a value is text that UTF-8 can encode; JSON's ``"\\ud800"`` is not."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_captions(value: object) -> dict[str, tuple[str, ...]]:
    """Parse captions by language: ``{"en": ["...", ...]}``."""
    if not isinstance(value, dict):
        raise ValueError("'captions' to be an object of lists by language")
    captions: dict[str, tuple[str, ...]] = {}
    for name, texts in value.items():
        if not isinstance(texts, list) or not all(is_valid_text(t) for t in texts):
            raise ValueError(f"captions of {name[:20]!r} to be a list of sentences")
        language = normalise_language(name)
        captions[language] = captions.get(language, ()) + tuple(texts)
    return captions


_FIELDS = tuple(Record.__dataclass_fields__)


def _parse_record(line: object) -> Record:
    if not isinstance(line, dict):
        raise ValueError("a JSON object with captions, questions or subtitles")
    for name in line:
        if name not in _FIELDS:
            raise ValueError(f"no field {name[:20]!r}, only {', '.join(_FIELDS)}")
    image, video = _text(line, "image"), _text(line, "video")
    if image and video:
        raise ValueError("an image or a video, not both")
    return Record(
        image=image,
        video=video,
        captions=parse_captions(line.get("captions", {})),
        split=_text(line, "split"),
        id=_text(line, "id"),
        span=_parse_span(line.get("span")),
        questions=tuple(_parse_question(q) for q in _list(line, "questions")),
        regions=tuple(_parse_region(r) for r in _list(line, "regions")),
        subtitles=_parse_subtitles(line.get("subtitles", {})),
        labels=_texts(line, "labels"),
    )


def _parse_question(value: object) -> Question:
    if not isinstance(value, dict) or not is_valid_text(value.get("text")):
        raise ValueError("a question with 'text'")
    if not is_valid_text(value.get("language")):
        raise ValueError("a question with its 'language'")
    return Question(
        text=value["text"],
        language=normalise_language(value["language"]),
        answers=_texts(value, "answers"),
        answer_type=_text(value, "answer_type"),
        id=_text(value, "id"),
    )


def _parse_region(value: object) -> Region:
    if not isinstance(value, dict):
        raise ValueError("a region with 'box' and perhaps 'label'")
    box = _numbers(value.get("box"), 4, "'box' to be four numbers")
    return Region(cast("tuple[float, float, float, float]", box), _text(value, "label"))


def _parse_span(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    start, end = _numbers(value, 2, "'span' to be a start and an end in seconds")
    if not 0 <= start <= end:
        raise ValueError("'span' to start before it ends")
    return start, end


def _parse_subtitles(value: object) -> dict[str, tuple[Cue, ...]]:
    if not isinstance(value, dict):
        raise ValueError("'subtitles' to be an object of lists by language")
    tracks: dict[str, tuple[Cue, ...]] = {}
    for name, cues in value.items():
        if not isinstance(cues, list):
            raise ValueError("'subtitles' to be lists of [start, end, text]")
        language = normalise_language(name)
        tracks[language] = tracks.get(language, ()) + tuple(_parse_cue(cue) for cue in cues)
    return tracks


def _parse_cue(value: object) -> Cue:
    if not isinstance(value, list) or len(value) != 3 or not is_valid_text(value[2]):
        raise ValueError("'subtitles' to be lists of [start, end, text]")
    start, end = _numbers(value[:2], 2, "a subtitle's start and end in seconds")
    if not 0 <= start <= end:
        raise ValueError("a subtitle to start before it ends")
    return Cue(start, end, value[2])


def _numbers(value: object, count: int, expected: str) -> tuple[float, ...]:
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    ):
        raise ValueError(expected)
    try:
        numbers = tuple(float(v) for v in value)
    except OverflowError:
        raise ValueError(expected) from None
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(expected)
    return numbers


def _text(line: dict[str, Any], name: str) -> str | None:
    value = line.get(name)
    if value is not None and (not value or not is_valid_text(value)):
        raise ValueError(f"{name!r} to be text")
    return cast("str | None", value)


def _list(line: dict[str, Any], name: str) -> list[object]:
    value = line.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name!r} to be a list")
    return value


def _texts(line: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = _list(line, name)
    if not all(is_valid_text(text) for text in texts):
        raise ValueError(f"{name!r} to be a list of texts")
    return tuple(cast("list[str]", texts))


def _nonempty_fields(value: Question | Region) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {
        name: list(content) if isinstance(content, tuple) else content
        for name, content in fields.items()
        if content not in (None, ())
    }
