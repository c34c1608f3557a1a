"""What everything is made of: a picture or clip and what was said about it.

Every dataset reader yields `Record`s; everything after that knows nothing of
datasets. A manifest is a file with one record a line, as JSON:

    {"image": "images/1.jpg", "captions": {"en": ["A dog."], "de": ["Ein Hund."]}}

Paths in a manifest are relative to the manifest's folder.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from polyglance.errors import DataError, Problems
from polyglance.languages import normalise_language

Captions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Region:
    """A box in a picture, in fractions of its width and height, and what is in it."""

    box: tuple[float, float, float, float]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a picture with the answers that people gave."""

    text: str
    language: str
    answers: tuple[str, ...] = ()
    answer_type: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle: what is said from ``start`` to ``end`` seconds of a clip."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """A picture or a clip (or, with neither, sentences alone) and its captions by language.

    Captions under several languages of a record without picture are
    translations of each other.
    """

    image: str | None = None
    video: str | None = None
    captions: Captions = field(default_factory=dict)
    split: str | None = None
    id: str | None = None
    span: tuple[float, float] | None = None
    """The part of the video that is meant, in seconds; None for all of it."""
    questions: tuple[Question, ...] = ()
    regions: tuple[Region, ...] = ()
    subtitles: Mapping[str, tuple[Cue, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What names this record: its id, else its picture or clip."""
        return self.id or self.image or self.video or ""

    def to_json(self) -> dict[str, Any]:
        """The record as a manifest line holds it; empty fields are left out."""
        line: dict[str, Any] = {}
        for name in ("id", "image", "video", "split"):
            if (value := getattr(self, name)) is not None:
                line[name] = value
        if self.span is not None:
            line["span"] = list(self.span)
        if self.captions:
            line["captions"] = {lang: list(texts) for lang, texts in self.captions.items()}
        if self.questions:
            line["questions"] = [_drop_empty(_fields(q)) for q in self.questions]
        if self.regions:
            line["regions"] = [_drop_empty(_fields(r)) for r in self.regions]
        if self.subtitles:
            line["subtitles"] = {
                lang: [[c.start, c.end, c.text] for c in cues]
                for lang, cues in self.subtitles.items()
            }
        return line

    @classmethod
    def from_json(cls, line: object) -> Record:
        """The record that a manifest line holds; a `ValueError` says what was expected."""
        return _parse_record(line)


def read_manifest(path: str | Path, problems: Problems | None = None) -> Iterator[Record]:
    """Yield the records of a manifest (``.jsonl`` or ``.jsonl.gz``).

    Malformed lines go to ``problems``; without it the first one is an error.
    """
    problems = Problems(strict=True) if problems is None else problems
    for number, line in read_lines(path, problems):
        if not line.strip():
            continue
        try:
            yield Record.from_json(json.loads(line))
        except (ValueError, RecursionError) as error:
            expected = "one JSON object a line" if _is_syntax(error) else str(error)
            problems.report(path, number, f"expected {expected}")


def write_manifest(path: str | Path, records: Iterable[Record]) -> int:
    """Write records one a line and return their number; the file appears whole or not at all."""
    count = 0
    with replacing(path) as out:
        for record in records:
            out.write(json.dumps(record.to_json(), ensure_ascii=False) + "\n")
            count += 1
    return count


def read_lines(path: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a text file, unzipping ``.gz``; lines that are not UTF-8 are reported."""
    path = Path(path)
    try:
        with (
            gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
        ) as raw:
            for number, data in enumerate(raw, start=1):
                try:
                    text = data.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    problems.report(path, number, "expected UTF-8 text")
                    continue
                yield number, text.rstrip("\r\n")
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({_reason(error)})") from error


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[str]]:
    """Write a text file (``.gz`` zipped) beside its place and move it there when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        stream = (
            gzip.open(name, "wt", encoding="utf-8")
            if path.suffix == ".gz"
            else open(name, "w", encoding="utf-8")  # noqa: SIM115
        )
        with cast("IO[str]", stream) as out:
            yield out
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _parse_record(line: object) -> Record:
    if not isinstance(line, dict):
        raise ValueError("a JSON object with captions, questions or subtitles")
    unknown = set(line) - {
        "id", "image", "video", "split", "span", "captions", "questions", "regions", "subtitles",
    }  # fmt: skip
    if unknown:
        raise ValueError(f"no field named {sorted(unknown)[0]!r}")
    names = {}
    for name in ("id", "image", "video", "split"):
        value = line.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(f"{name!r} to be text")
        names[name] = value
    if names["image"] and names["video"]:
        raise ValueError("an image or a video, not both")
    return Record(
        image=names["image"],
        video=names["video"],
        captions=parse_captions(line.get("captions", {})),
        split=names["split"],
        id=names["id"],
        span=_parse_span(line.get("span")),
        questions=tuple(_parse_question(q) for q in _list(line, "questions")),
        regions=tuple(_parse_region(r) for r in _list(line, "regions")),
        subtitles=_parse_subtitles(line.get("subtitles", {})),
    )


def parse_captions(value: object) -> dict[str, tuple[str, ...]]:
    """Captions by language as JSON holds them: ``{"en": ["...", ...]}``."""
    if not isinstance(value, dict):
        raise ValueError("'captions' to be an object of lists by language")
    captions: dict[str, tuple[str, ...]] = {}
    for language, texts in value.items():
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise ValueError(f"captions of {language!r} to be a list of sentences")
        captions[normalise_language(language)] = tuple(texts)
    return captions


def _parse_question(value: object) -> Question:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise ValueError("a question with 'text'")
    answers = value.get("answers", [])
    if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
        raise ValueError("'answers' to be a list of texts")
    language = value.get("language")
    if not isinstance(language, str):
        raise ValueError("a question with its 'language'")
    kind, ident = value.get("answer_type"), value.get("id")
    return Question(
        text=value["text"],
        language=normalise_language(language),
        answers=tuple(answers),
        answer_type=None if kind is None else str(kind),
        id=None if ident is None else str(ident),
    )


def _parse_region(value: object) -> Region:
    if not isinstance(value, dict):
        raise ValueError("a region with 'box' and perhaps 'label'")
    box = _numbers(value.get("box"), 4, "'box' to be four numbers")
    label = value.get("label")
    if label is not None and not isinstance(label, str):
        raise ValueError("'label' to be text")
    return Region(cast("tuple[float, float, float, float]", box), label)


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
    for language, cues in value.items():
        if not isinstance(cues, list):
            raise ValueError("'subtitles' to be lists of [start, end, text]")
        track = []
        for cue in cues:
            if not isinstance(cue, list) or len(cue) != 3 or not isinstance(cue[2], str):
                raise ValueError("'subtitles' to be lists of [start, end, text]")
            start, end = _numbers(cue[:2], 2, "a subtitle's start and end in seconds")
            track.append(Cue(start, end, cue[2]))
        tracks[normalise_language(language)] = tuple(track)
    return tracks


def _numbers(value: object, count: int, expected: str) -> tuple[float, ...]:
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    ):
        raise ValueError(expected)
    try:
        return tuple(float(v) for v in value)
    except OverflowError:
        raise ValueError(expected) from None


def _list(line: dict[str, Any], name: str) -> list[object]:
    value = line.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name!r} to be a list")
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _drop_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, ())}


def _is_syntax(error: Exception) -> bool:
    return isinstance(error, json.JSONDecodeError | RecursionError)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
