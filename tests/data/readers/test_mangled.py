"""Whatever is on disk, nothing but our own error comes out of a reader, and records stay whole."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyglance.data.readers import FORMATS, ReadOptions, read_dataset
from polyglance.errors import PolyglanceError, Problems
from polyglance.records import Record

Files = dict[str, bytes]

OPTIONS = (
    ReadOptions(),
    ReadOptions(images="pictures", language="de", split="x", untrimmed=True, flat=True),
)
few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mangled")


def write(folder: Path, files: Files, *, folders: tuple[str, ...] = ()) -> Path:
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for name, content in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name in folders else path.write_bytes(content)
    return source


def check(format: str, source: Path) -> int:
    """Read in both modes; return the number of records that the lenient one yields."""
    count = 0
    messages: list[str] = []
    for options in OPTIONS:
        for strict in (True, False):
            problems = Problems(strict=strict)
            try:
                for record in read_dataset(format, source, options, problems):
                    line = json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False)
                    assert Record.from_json(json.loads(line.encode("utf-8"))) == record
                    count += not strict
            except PolyglanceError as error:
                messages.append(str(error))
            messages += map(str, problems.items)
    for message in messages:
        assert message.encode("utf-8")
        assert "expected" in message or "cannot be read" in message
    return count


def test_there_is_a_sample_of_every_format(samples: dict[str, Files]) -> None:
    assert set(samples) == set(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_the_samples_are_valid(format: str, samples: dict[str, Files], folder: Path) -> None:
    source = write(folder, samples[format])
    problems = Problems(strict=True)
    assert list(read_dataset(format, source, ReadOptions(), problems))
    assert check(format, source) > 0


@pytest.mark.parametrize("format", FORMATS)
@few
@given(data=st.data())
def test_mangled_bytes(
    format: str, samples: dict[str, Files], folder: Path, data: st.DataObject
) -> None:
    files = dict(samples[format])
    name = data.draw(st.sampled_from(sorted(files)))
    files[name] = data.draw(mangled(files[name]))
    if data.draw(st.booleans()):
        # A zipped copy in place of the plain one, itself whole or damaged.
        zipped = gzip.compress(files.pop(name))
        files[f"{name}.gz"] = data.draw(mangled(zipped)) if data.draw(st.booleans()) else zipped
    check(format, write(folder, files))


@st.composite
def mangled(draw: st.DrawFn, content: bytes) -> bytes:
    """Content after some flips, cuts and insertions, or something else altogether."""
    kind = draw(st.sampled_from(["flip", "cut", "drop", "insert", "repeat", "garbage", "empty"]))
    if kind == "garbage":
        return draw(st.binary(max_size=200))
    if kind == "empty":
        return b""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        size = draw(st.integers(1, 12))
        match kind:
            case "flip":
                flipped = bytes(byte ^ draw(st.integers(1, 255)) for byte in content[at : at + 1])
                content = content[:at] + flipped + content[at + 1 :]
            case "cut":
                content = content[:at]
            case "drop":
                content = content[:at] + content[at + size :]
            case "repeat":
                content = content[:at] + content[at : at + size] * 3 + content[at + size :]
            case _:
                content = content[:at] + draw(st.sampled_from(INSERTIONS)) + content[at:]
    return content


INSERTIONS = (
    b"\n", b"\r", b"\t", b"\x00", b"\xff", b'"', b"{", b"]", b"\xed\xa0\x80", b"-->", b"#", b"<",
    b"\\ud800", b"\xef\xbb\xbf", b"9" * 5000, b"[" * 20_000, b"&#xd800;", b"\xe2\x80\xa8", b"NaN",
)  # fmt: skip

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 0.5, math.nan, math.inf, -math.inf, 10**400, "", " ", "7", "x", "\ud800",
    "\x00", "../..", [], {}, [None], [[]], {"": 1}, {"a": {"b": []}}, ["x", 1], "@deep@", "@huge@",
)  # fmt: skip


def dumped(document: Any) -> bytes:
    text = json.dumps(document)
    text = text.replace('"@deep@"', "[" * 50_000 + "]" * 50_000)
    return text.replace('"@huge@"', "9" * 6000).encode()


def positions(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON tree, as a container and a key of it."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    if not isinstance(value, dict | list):
        return []
    result = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            result += positions(value[key])
    return result


@pytest.mark.parametrize("format", FORMATS)
@few
@given(data=st.data())
def test_odd_values_anywhere_in_json(
    format: str, samples: dict[str, Files], folder: Path, data: st.DataObject
) -> None:
    files = dict(samples[format])
    whole = [name for name in files if ".json" in name and not name.endswith("jsonl")]
    lines = [name for name in files if files[name].startswith(b'{"') and name not in whole]
    if not whole and not lines:
        return
    name = data.draw(st.sampled_from(sorted(whole + lines)))
    documents = [files[name]] if name in whole else files[name].splitlines()
    at = data.draw(st.integers(0, len(documents) - 1))
    document = json.loads(documents[at])
    for _ in range(data.draw(st.integers(1, 3))):
        if not (places := positions(document)):
            break
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        match data.draw(st.sampled_from(["change", "change", "change", "remove", "rename"])):
            case "change":
                container[key] = json.loads(json.dumps(data.draw(st.sampled_from(ODD))))
            case "remove":
                del container[key]
            case _ if isinstance(container, dict):
                container[data.draw(st.sampled_from(["", "\ud800", "0", "en", "id"]))] = (
                    container.pop(key)
                )
    documents[at] = dumped(document)
    files[name] = b"\n".join(documents)
    check(format, write(folder, files))


@pytest.mark.parametrize("format", FORMATS)
def test_each_odd_value_in_each_place_of_json(
    format: str, samples: dict[str, Files], folder: Path
) -> None:
    """What chance may miss: one value replaced at a time, all combinations that matter."""
    files = samples[format]
    for name in files:
        if ".json" not in name or name.endswith("jsonl"):
            continue
        for place in range(len(positions(json.loads(files[name])))):
            for odd in (None, True, -1, math.inf, math.nan, 10**400, "", "\ud800", [], {}):
                document = json.loads(files[name])
                container, key = positions(document)[place]
                container[key] = odd
                check(format, write(folder, {**files, name: dumped(document)}))


@pytest.mark.parametrize("format", FORMATS)
def test_missing_files_and_folders_in_their_place(
    format: str, samples: dict[str, Files], folder: Path
) -> None:
    files = samples[format]
    for name in files:
        rest = {other: content for other, content in files.items() if other != name}
        check(format, write(folder, rest))
        check(format, write(folder, files, folders=(name,)))
        check(format, write(folder, {**files, name: b""}))
        check(format, write(folder, files) / name)
    source = write(folder, files)
    for missing in (source / "none", source / next(iter(files)) / "none"):
        with pytest.raises(PolyglanceError, match="no such file or folder"):
            read_dataset(format, missing, ReadOptions(), Problems())
