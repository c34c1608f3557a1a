"""The estimates of docs/scale.md, against figures worked out by hand."""

from __future__ import annotations

import math
import re
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from benchmarks.postgres_server import Server
from benchmarks.reports import scale_page as page
from helpers.store_entries import entry
from polyglance.search.postgres.index import PostgresIndex
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.store import ModelInfo

BULK: dict[str, Any] = {
    "model": "m", "width": 384, "hardware": "2 cores", "date": "2026-01-01",
    "load_average_before": 0.0,
    "per_image": {
        "hash_ms": 0.5, "decode_ms": 3.1, "encode_ms": 60.0, "thumbnail_ms": 3.6,
        "thumbnail_bytes": 10_000, "file_bytes": 200_000,
    },
    "index": {"pictures": 929, "pictures_per_second": 25.0},
    "encode_1": {"pictures_per_second": 10.0},
    "encode_2": {"pictures_per_second": 19.0, "startup_s": 9.0},
    "synthetic": {
        "items_per_second": 10_000, "reimported_per_second": 20_000, "library_bytes_per_item": 1300,
        "shard_bytes_per_item": 780, "file_list_bytes_per_item": 20,
    },
    "listing": {"files_per_second": 20_000},
}  # fmt: skip
SPEED = {"large_library": {"vectors": 1_000_000, "graph_ms": {"median": 6.4}}}


def cells(table: str) -> dict[str, list[str]]:
    """Return the rows of a table by their first cells."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def test_encoding_hours_and_cores() -> None:
    rows = cells(page.encoding(BULK))
    # 10^9 pictures at 10 a second are 10^8 s = 27,778 h; a week has 168.
    assert rows["encoding by workers of one core"] == ["27,778 core hours"]
    assert rows["– done in a week by"] == ["165 cores, 3 machines of 64"]
    # 10^9 in 604,800 s are 1,653 pictures of 200 kB a second.
    assert rows["– reading from the disk meanwhile"] == ["331 MB a second"]
    assert rows["– if computing cost nothing: reading and decoding"] == ["1,000 core hours"]
    assert rows["thumbnails besides"] == ["1,000 core hours"]
    assert rows["shards of 16,384"] == ["61,036"]
    assert rows["– a killed worker loses at most"] == ["27 minutes"]
    assert rows["listing the files, once, one process"] == ["14 hours"]
    assert rows["import into one SQLite library"] == ["28 hours"]


def test_bytes_per_image() -> None:
    rows = cells(page.sizes(BULK))
    assert rows["vectors, float32"][:2] == ["1.54 kB", "1.54 TB"]
    assert rows["vectors, float16 (as libraries in files keep them)"][:2] == ["768 B", "768 GB"]
    # pgvector's `vector`: 384 numbers of 4 bytes and 8 more. In the
    # graph again, with 64 links of 6 bytes and heads: 2,012 bytes, four of them to a page, or
    # three where one of four has a level more, as one in 32 has: 8,192 / 3.88.
    assert rows["on PostgreSQL: vectors, float32"][:2] == ["1.54 kB", "1.54 TB"]
    assert rows["– the graph: vectors again and links"][:2] == ["2.11 kB", "2.11 TB"]
    assert rows["vectors, int8 and a scale"][:2] == ["388 B", "388 GB"]
    assert rows["thumbnails"][:2] == ["10 kB", "10 TB"]


def test_the_estimated_size_of_a_graph_is_that_of_faiss() -> None:
    import faiss

    count, width, links = 4000, 48, 32
    graph = faiss.IndexHNSWSQ(
        width, faiss.ScalarQuantizer.QT_fp16, links, faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction = 4
    vectors = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    graph.train(vectors[:1])
    graph.add(vectors)
    id_bytes = 8  # the library's id of each vector, after what FAISS writes
    written = faiss.serialize_index(graph).nbytes / count + id_bytes
    assert page.graph_bytes(width, links) == pytest.approx(written, rel=0.01)


def test_the_estimated_size_of_a_graph_is_that_of_pgvector(postgres: Server) -> None:
    """With the tables of a library on PostgreSQL."""
    count, width = 800, 384
    vectors = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    manifest = ModelInfo("m", "m", "f", width, "l")
    with closing(PostgresStore(postgres.database(), manifest)) as store:
        store.put([entry(f"/p/{n}", str(n), tuple(vector)) for n, vector in enumerate(vectors)])
        assert PostgresIndex(store, exact_limit=count - 1).build()
        [[kind, vector, graph]] = store.fetch_all(
            "SELECT pg_typeof(vector)::text, pg_column_size(vector),"
            " pg_relation_size('vectors_near') FROM vectors LIMIT 1"
        )
    assert kind == "vector"
    assert vector == 4 * width + 8
    assert page.postgres_graph_bytes(width) == pytest.approx(graph / count, rel=0.05)


def test_machines_and_queries() -> None:
    rows = cells(page.searching(384, SPEED))
    # 1,048 bytes a vector: 366 graphs of a million, or 3 of 100 million, in 384 GB.
    assert rows["1,000,000"] == ["1,000", "1.05 GB", "3", "6.4 core seconds", "30"]
    assert rows["100,000,000"][:3] == ["10", "105 GB", "4"]
    cost = 10 * 6.4e-3 * math.log(1e8) / math.log(1e6)
    assert rows["100,000,000"][3:] == [f"{cost:.1f} core seconds", f"{4 * 64 / cost:,.0f}"]
    assert len(cells(page.searching(384, None))["1,000,000"]) == 3


def test_the_page_has_all_tables() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    for name in ("measured", "encoding", "bytes", "searching"):
        [between] = re.findall(rf"<!-- {name} -->(.*?)<!-- end of {name} -->", text, re.DOTALL)
        assert between.count("|") > 10
