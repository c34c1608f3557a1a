"""Records that are read when they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.data.lazy_records import LazyRecords, select_records
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record, read_manifest, write_manifest

RECORDS = [Record(video=f"{n}", captions={"zh": ("长" * n,)}) for n in range(9)]


def test_selected_records_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, RECORDS)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\ufeff" + "\n\n".join(lines), encoding="utf-8")  # no end of line at the end
    found = select_records(path, lambda record: record.video not in ("0", "4"))
    assert isinstance(found, LazyRecords)
    assert len(found) == 7
    wanted = [record for record in read_manifest(path) if record.video not in ("0", "4")]
    assert list(found) == wanted
    assert found[-1] == RECORDS[8]
    assert found[2:4] == wanted[2:4]


def test_compressed_manifest_is_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl.gz"
    write_manifest(path, RECORDS)
    assert select_records(path, lambda record: True) == RECORDS


def test_unreadable_lines_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with pytest.raises(PolyglanceError, match="no such manifest"):
        select_records(path, lambda record: True)
    path.write_text('{"video": "a"}\n{"video": 3}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"m\.jsonl:2: expected 'video' to be text"):
        select_records(path, lambda record: True)
