"""Fill docs/scale.md: what one machine was measured to do, and the arithmetic to a billion.

    python -m benchmarks.reports.scale_page

Reads results/bulk_encoding.json, latency.json and index_kill.json, and library_speed.json
where it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import RESULTS
from polyglance.search.approximate import LINKS

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
BILLION = 10**9
SHARD = 16_384
"""Files of a shard where there are so many: some minutes of one core, and not too many files."""
CORES = 64
"""Of a machine that encodes."""
MEMORY = 512e9
"""Bytes of a machine that searches; graphs may fill three quarters of it."""
PARTS = (10**6, 10**7, 10**8)
"""Vectors of one graph."""
QUIET = 0.5
"""The load below which a machine had nothing else to do."""
Figures = Mapping[str, Any]


def main() -> None:
    bulk, latency, kills = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("bulk_encoding", "latency", "index_kill")
    )
    at = RESULTS / "library_speed.json"
    speed = json.loads(at.read_text(encoding="utf-8")) if at.exists() else None
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
    """The figures that all others come from."""
    each, index, made_up = bulk["a_picture"], bulk["index"], bulk["made_up"]
    whole = each["hash_ms"] + each["decode_ms"] + each["encode_ms"]
    one, two = bulk["encode_1"], bulk["encode_2"]
    rows = [
        ["a picture, on one core", f"{whole:.0f} ms"],
        ["– of which reading and decoding", f"{each['hash_ms'] + each['decode_ms']:.1f} ms"],
        ["– of which encode", f"{each['encode_ms']:.0f} ms"],
        ["`polyglance index`", f"{index['pictures_per_second']:.1f} pictures a second"],
        ["`polyglance encode`, one worker", f"{one['pictures_per_second']:.1f} pictures a second"],
        ["`polyglance encode`, two workers", f"{two['pictures_per_second']:.1f} pictures a second"],
        ["– before its first shard", f"{two['before_the_first_shard_s']:.0f} s"],
        ["files listed", f"{bulk['listing']['files_per_second']:,} a second"],
        ["`polyglance library import`", f"{made_up['items_per_second']:,} pictures a second"],
        ["– of shards that are in it", f"{made_up['again_per_second']:,} pictures a second"],
        ["a query's words into a vector", f"{latency['text_query_ms']['onnx']['median']:.0f} ms"],
    ]
    if "postgres" in bulk:
        rate = bulk["postgres"]["items_per_second"]
        rows.insert(-1, ["– into PostgreSQL", f"{rate:,} pictures a second"])
    if speed is not None:
        many = speed["many"]
        rows += [
            [f"a query to {many['vectors']:,} vectors", f"{many['query_ms']['median']:.0f} ms"],
            ["– of which the graph", f"{many['graph_alone_ms']['median']:.0f} ms"],
            ["– recall@10 against comparing all", f"{many['recall@10']:.3f}"],
            ["– the same, compared one by one", f"{many['exact_alone_ms']['median']:.0f} ms"],
        ]
        if "graph_built_s" in many:
            rows.append(["– building the graph", f"{many['graph_built_s']:,.0f} s"])
    killed = len(kills["kills"])
    same = "each time" if kills["all_ended_the_same"] else "not each time"
    taken = {
        (file["hardware"], file["date"]) for file in (bulk, latency, *([speed] if speed else []))
    }
    where = "; ".join(f"{hardware}, {date}" for hardware, date in sorted(taken))
    return (
        f"{pages.table(['', ''], rows)}\n\n"
        f"{where}; {index['pictures']:,} pictures of {size(each['file_bytes'])} in the mean,"
        f" with the model {bulk['model']}.{busy(bulk['load_average_before'])} Killed {killed} times"
        f" at random moments, `polyglance index` ended with the same content {same}."
    )


def busy(load: float) -> str:
    """What has to be said where a machine had other work."""
    if load < QUIET:
        return ""
    return (
        f" The machine had other work when pictures were encoded (a load of {load:.1f} before):"
        " left alone it is faster."
    )


def encoding(bulk: Figures) -> str:
    """Cores and hours; nothing is assumed to be quicker together than alone."""
    each, made_up = bulk["a_picture"], bulk["made_up"]
    a_core = bulk["encode_1"]["pictures_per_second"]
    hours = BILLION / a_core / 3600
    reading = BILLION * (each["hash_ms"] + each["decode_ms"]) / 1000 / 3600
    small = BILLION * each["thumbnail_ms"] / 1000 / 3600
    cores = hours / (7 * 24)
    machines = math.ceil(cores / CORES)
    listing = BILLION / bulk["listing"]["files_per_second"] / 3600
    importing = BILLION / made_up["items_per_second"] / 3600
    read = cores * a_core * each["file_bytes"]
    rows = [
        ["encoding by workers of one core", f"{hours:,.0f} core hours"],
        ["– done in a week by", f"{cores:,.0f} cores, {machines:,} machines of {CORES}"],
        ["– reading from the disk meanwhile", f"{size(read)} a second"],
        ["– if computing cost nothing: reading and decoding", f"{reading:,.0f} core hours"],
        ["thumbnails besides", f"{small:,.0f} core hours"],
        [f"shards of {SHARD:,}", f"{math.ceil(BILLION / SHARD):,}"],
        ["– a killed worker loses at most", f"{SHARD / a_core / 60:.0f} minutes"],
        ["listing the files, once, one process", f"{listing:,.0f} hours"],
        ["import into one SQLite library", f"{importing:,.0f} hours"],
    ]
    if "postgres" in bulk:
        hours = BILLION / bulk["postgres"]["items_per_second"] / 3600
        rows.append(["import into one PostgreSQL", f"{hours:,.0f} hours"])
    return pages.table(["of a billion pictures", ""], rows)


def sizes(bulk: Figures) -> str:
    """What has to be kept, each by itself."""
    width, made_up = bulk["width"], bulk["made_up"]
    rows = [
        ["vectors, float32", 4 * width, "counted"],
        ["vectors, float16 (as libraries in files keep them)", 2 * width, "counted"],
        ["vectors, int8 and a scale", width + 4, "counted"],
        ["the graph: vectors in float16 and links", graph_bytes(width), "counted"],
        ["on PostgreSQL: vectors, float32", 4 * width + 8, "counted"],
        ["– the graph: vectors again and links", postgres_graph_bytes(width), "counted"],
        ["a library without thumbnails and graph", made_up["library_bytes_an_item"], "measured"],
        ["shards without thumbnails", made_up["shard_bytes_an_item"], "measured"],
        ["the list of files", made_up["list_bytes_an_item"], "measured, made-up names"],
        ["thumbnails", bulk["a_picture"]["thumbnail_bytes"], "measured"],
    ]
    return pages.table(
        ["", "a picture", "a billion", ""],
        [[name, size(each), size(each * BILLION), how] for name, each, how in rows],
    )


def searching(width: int, speed: Figures | None) -> str:
    """Graphs, machines, and what a query costs them together."""
    room = 0.75 * MEMORY
    header = ["vectors of a graph", "graphs", "memory of a graph", "machines"]
    rows = []
    for part in PARTS:
        memory = part * graph_bytes(width)
        graphs = math.ceil(BILLION / part)
        machines = math.ceil(graphs / (room // memory))
        rows.append([f"{part:,}", f"{graphs:,}", size(memory), f"{machines:,}"])
    on_servers = math.ceil(BILLION * postgres_graph_bytes(width) / room)
    note = (
        f"Machines have {size(MEMORY)} of memory, three quarters of it for graphs. These are the"
        " graphs of libraries in files; those of libraries on PostgreSQL would fill"
        f" {on_servers:,} such machines."
    )
    if speed is not None:
        header += ["a query, in all graphs", "queries a second"]
        many = speed["many"]
        alone = many["graph_alone_ms"]["median"]
        for row, part in zip(rows, PARTS, strict=True):
            cost = math.ceil(BILLION / part) * alone * grown(part, many["vectors"]) / 1000
            served = int(row[3]) * CORES / cost
            row += [f"{cost:,.1f} core seconds", f"{served:,.0f}"]
        note += (
            f" A query takes {alone:.0f} ms of a core in a graph of {many['vectors']:,} vectors as"
            " measured, and in larger ones more by the logarithm of their size, as is expected of"
            f" such graphs and was not measured; machines have {CORES} cores. Fewer and larger"
            " graphs cost less, and take longer to build."
        )
    return f"{pages.table(header, rows)}\n\n{note}"


def graph_bytes(width: int, links: int = LINKS) -> int:
    """Bytes of a vector in a graph file: float16, links below and above, level, places, number."""
    above = 4 * links / (links - 1)
    return round(2 * width + 4 * 2 * links + above + 4 + 8 + 8)


def postgres_graph_bytes(width: int, links: int = LINKS) -> int:
    """Bytes of a vector in pgvector's graph: float32 and links, a whole number to a page.

    Nodes have a head of 72 bytes, and their links 6 bytes each behind a head of 4 (hnsw.h of
    pgvector); 4 bytes point to either. Pages are of 8 KiB, all but 32 bytes for nodes. One node
    in ``links`` has a level of links more: where a full page has no room for that, the page
    holds a node less.
    """
    node = 72 + 4 * width + 8 + 4 + 6 * 2 * links + 2 * 4
    most = 8160 // node
    tight = 8160 - most * node < 6 * links
    higher = 1 - (1 - 1 / links) ** most if tight else 0
    return round(8192 / (most - higher))


def grown(part: int, from_count: int) -> float:
    """How much longer a graph is walked when it is larger."""
    return math.log(part) / math.log(from_count)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


if __name__ == "__main__":
    main()
