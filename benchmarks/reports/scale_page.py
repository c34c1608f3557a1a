"""Fill the page of scale: what was measured on one machine, and the estimate for a billion images.

    python -m benchmarks.reports.scale_page

Reads results/bulk_encoding.json, latency.json, index_kill.json and, if there, library_speed.json;
fills docs/scale.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, RESULTS, read_results
from polyglance.search.approximate import HNSW_LINKS

PAGE = DOCS / "scale.md"
BILLION = 10**9
SHARD_SIZE = 16_384
"""Files per shard: some minutes of one core, and not too many shards."""
CORES = 64
"""Cores per machine."""
MEMORY = 512e9
"""Bytes of memory per machine; graphs may fill three quarters of it."""
GRAPH_SIZES = (10**6, 10**7, 10**8)
"""Vectors per graph."""
MAX_IDLE_LOAD = 0.5
"""The load average up to which a machine counts as idle."""
Figures = Mapping[str, Any]


def main() -> None:
    bulk, latency, kills = (
        read_results(name) for name in ("bulk_encoding", "latency", "index_kill")
    )
    has_speed = (RESULTS / "library_speed.json").exists()
    speed = read_results("library_speed") if has_speed else None
    pages.fill(
        PAGE,
        {
            "measured": measured(bulk, latency, kills, speed),
            "encoding": encoding(bulk),
            "bytes": sizes(bulk),
            "searching": searching(bulk["width"], speed),
        },
    )


def measured(bulk: Figures, latency: Figures, kills: Figures, speed: Figures | None) -> str:
    """Format the figures that all others are computed from."""
    per_image, index, synthetic = bulk["per_image"], bulk["index"], bulk["synthetic"]
    total = per_image["hash_ms"] + per_image["decode_ms"] + per_image["encode_ms"]
    one, two = bulk["encode_1"], bulk["encode_2"]
    rows = [
        ["a picture, on one core", f"{total:.0f} ms"],
        [
            "– of which reading and decoding",
            f"{per_image['hash_ms'] + per_image['decode_ms']:.1f} ms",
        ],
        ["– of which encode", f"{per_image['encode_ms']:.0f} ms"],
        ["`polyglance index`", f"{index['pictures_per_second']:.1f} pictures a second"],
        ["`polyglance encode`, one worker", f"{one['pictures_per_second']:.1f} pictures a second"],
        ["`polyglance encode`, two workers", f"{two['pictures_per_second']:.1f} pictures a second"],
        ["– before its first shard", f"{two['startup_s']:.0f} s"],
        ["files listed", f"{bulk['listing']['files_per_second']:,} a second"],
        ["`polyglance library import`", f"{synthetic['items_per_second']:,} pictures a second"],
        ["– of shards that are in it", f"{synthetic['reimported_per_second']:,} pictures a second"],
        ["a query's words into a vector", f"{latency['text_query_ms']['onnx']['median']:.0f} ms"],
    ]
    if "postgres" in bulk:
        rate = bulk["postgres"]["items_per_second"]
        rows.insert(-1, ["– into PostgreSQL", f"{rate:,} pictures a second"])
    if speed is not None:
        large = speed["large_library"]
        rows += [
            [f"a query to {large['vectors']:,} vectors", f"{large['query_ms']['median']:.0f} ms"],
            ["– of which the graph", f"{large['graph_ms']['median']:.0f} ms"],
            ["– recall@10 against comparing all", f"{large['recall@10']:.3f}"],
            ["– the same, compared one by one", f"{large['exact_ms']['median']:.0f} ms"],
        ]
        if "graph_built_s" in large:
            rows.append(["– building the graph", f"{large['graph_built_s']:,.0f} s"])
    killed = len(kills["kills"])
    same = "each time" if kills["all_identical"] else "not each time"
    machines = {
        (file["hardware"], file["date"]) for file in (bulk, latency, *([speed] if speed else []))
    }
    where = "; ".join(f"{hardware}, {date}" for hardware, date in sorted(machines))
    return (
        f"{pages.table(['', ''], rows)}\n\n"
        f"{where}; {index['pictures']:,} pictures of {size(per_image['file_bytes'])} in the mean,"
        f" with the model {bulk['model']}.{load_note(bulk['load_average_before'])} Killed"
        f" {killed} times at random moments, `polyglance index` ended with the same content {same}."
    )


def load_note(load: float) -> str:
    """Say so where the machine had other work."""
    if load < MAX_IDLE_LOAD:
        return ""
    return (
        f" The machine had other work when pictures were encoded (a load of {load:.1f} before):"
        " left alone it is faster."
    )


def encoding(bulk: Figures) -> str:
    """Estimate cores and hours, without any gain from working together."""
    per_image, synthetic = bulk["per_image"], bulk["synthetic"]
    per_core = bulk["encode_1"]["pictures_per_second"]
    hours = BILLION / per_core / 3600
    reading = BILLION * (per_image["hash_ms"] + per_image["decode_ms"]) / 1000 / 3600
    small = BILLION * per_image["thumbnail_ms"] / 1000 / 3600
    cores = hours / (7 * 24)
    machines = math.ceil(cores / CORES)
    listing = BILLION / bulk["listing"]["files_per_second"] / 3600
    importing = BILLION / synthetic["items_per_second"] / 3600
    read = cores * per_core * per_image["file_bytes"]
    rows = [
        ["encoding by workers of one core", f"{hours:,.0f} core hours"],
        ["– done in a week by", f"{cores:,.0f} cores, {machines:,} machines of {CORES}"],
        ["– reading from the disk meanwhile", f"{size(read)} a second"],
        ["– if computing cost nothing: reading and decoding", f"{reading:,.0f} core hours"],
        ["thumbnails besides", f"{small:,.0f} core hours"],
        [f"shards of {SHARD_SIZE:,}", f"{math.ceil(BILLION / SHARD_SIZE):,}"],
        ["– a killed worker loses at most", f"{SHARD_SIZE / per_core / 60:.0f} minutes"],
        ["listing the files, once, one process", f"{listing:,.0f} hours"],
        ["import into one SQLite library", f"{importing:,.0f} hours"],
    ]
    if "postgres" in bulk:
        hours = BILLION / bulk["postgres"]["items_per_second"] / 3600
        rows.append(["import into one PostgreSQL", f"{hours:,.0f} hours"])
    return pages.table(["of a billion pictures", ""], rows)


def sizes(bulk: Figures) -> str:
    """Format the bytes of each part of a library."""
    width, synthetic = bulk["width"], bulk["synthetic"]
    rows = [
        ["vectors, float32", 4 * width, "counted"],
        ["vectors, float16 (as libraries in files keep them)", 2 * width, "counted"],
        ["vectors, int8 and a scale", width + 4, "counted"],
        ["the graph: vectors in float16 and links", graph_bytes(width), "counted"],
        ["on PostgreSQL: vectors, float32", 4 * width + 8, "counted"],
        ["– the graph: vectors again and links", postgres_graph_bytes(width), "counted"],
        ["a library without thumbnails and graph", synthetic["library_bytes_per_item"], "measured"],
        ["shards without thumbnails", synthetic["shard_bytes_per_item"], "measured"],
        ["the list of files", synthetic["file_list_bytes_per_item"], "measured, made-up names"],
        ["thumbnails", bulk["per_image"]["thumbnail_bytes"], "measured"],
    ]
    return pages.table(
        ["", "a picture", "a billion", ""],
        [[name, size(each), size(each * BILLION), how] for name, each, how in rows],
    )


def searching(width: int, speed: Figures | None) -> str:
    """Estimate graphs, machines, and what a query costs all of them."""
    usable = 0.75 * MEMORY
    header = ["vectors of a graph", "graphs", "memory of a graph", "machines"]
    rows = []
    for count in GRAPH_SIZES:
        memory = count * graph_bytes(width)
        graphs = math.ceil(BILLION / count)
        machines = math.ceil(graphs / (usable // memory))
        rows.append([f"{count:,}", f"{graphs:,}", size(memory), f"{machines:,}"])
    on_servers = math.ceil(BILLION * postgres_graph_bytes(width) / usable)
    note = (
        f"Machines have {size(MEMORY)} of memory, three quarters of it for graphs. These are the"
        " graphs of libraries in files; those of libraries on PostgreSQL would fill"
        f" {on_servers:,} such machines."
    )
    if speed is not None:
        header += ["a query, in all graphs", "queries a second"]
        large = speed["large_library"]
        graph_ms = large["graph_ms"]["median"]
        for row, count in zip(rows, GRAPH_SIZES, strict=True):
            cost = (
                math.ceil(BILLION / count)
                * graph_ms
                * search_growth(count, large["vectors"])
                / 1000
            )
            served = int(row[3]) * CORES / cost
            row += [f"{cost:,.1f} core seconds", f"{served:,.0f}"]
        note += (
            f" A query takes {graph_ms:.0f} ms of a core in a graph of {large['vectors']:,} vectors"
            " as measured, and in larger ones more by the logarithm of their size, as is expected"
            f" of such graphs and was not measured; machines have {CORES} cores. Fewer and larger"
            " graphs cost less, and take longer to build."
        )
    return f"{pages.table(header, rows)}\n\n{note}"


def graph_bytes(width: int, links: int = HNSW_LINKS) -> int:
    """Return bytes per vector in a graph file: float16, links, level, offsets and id."""
    above = 4 * links / (links - 1)
    return round(2 * width + 4 * 2 * links + above + 4 + 8 + 8)


def postgres_graph_bytes(width: int, links: int = HNSW_LINKS) -> int:
    """Return bytes per vector in pgvector's graph: float32 and links, whole nodes per page.

    A node has a header of 72 bytes, and its links take 6 bytes each after a header of 4 (hnsw.h of
    pgvector); 4 bytes point to either. Pages have 8 KiB, of which 8,160 bytes are for nodes. One
    node in ``links`` has one more level of links: where a full page has no room for it, the page
    holds one node less.
    """
    node = 72 + 4 * width + 8 + 4 + 6 * 2 * links + 2 * 4
    per_page = 8160 // node
    tight = 8160 - per_page * node < 6 * links
    higher = 1 - (1 - 1 / links) ** per_page if tight else 0
    return round(8192 / (per_page - higher))


def search_growth(count: int, measured_count: int) -> float:
    """Return how much longer a search takes in a larger graph: by the logarithm of its size."""
    return math.log(count) / math.log(measured_count)


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


if __name__ == "__main__":
    main()
