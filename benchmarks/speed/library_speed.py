"""How fast a library is indexed and searched, and whether its recall is that of the evaluation.

The test images of a folder of research data are indexed from their files; recall through
`Library.search` is compared with that of the evaluation. Then a library of a million synthetic
vectors, sampled from the distribution of the real ones, is searched with the real captions,
beside FAISS, hnswlib and pgvector on the same vectors, the last also as a library on PostgreSQL.

    python -m benchmarks.speed.library_speed --data FOLDER                # has test.jsonl
    python -m benchmarks.speed.library_speed --data FOLDER --keep FOLDER  # keep the libraries
    python -m benchmarks.speed.library_speed --data FOLDER --others none  # this library only

Writes results/library_speed.json.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyglance
from benchmarks.results_io import write_results
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import Record, read_manifest
from polyglance.search.approximate import (
    EF_CONSTRUCTION,
    EF_SEARCH,
    HNSW_LINKS,
    build_graph,
    graph_path,
)
from polyglance.search.exact import ExactIndex
from polyglance.search.library import Library
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Entry, FileSignature, Item, ModelInfo
from polyglance.search.vector_index import VectorIndex

BATCH = 10_000
NUM_QUERIES = 300
Matrix = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--recall", default="de,zh", help="languages to measure recall in")
    parser.add_argument("--others", default="faiss,hnswlib,pgvector")
    parser.add_argument("--others-count", type=int, help="vectors in these; by default all")
    parser.add_argument("--keep", type=Path, help="a folder for libraries, which are used again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    scratch = options.keep or Path(tempfile.mkdtemp())
    records = list(read_manifest(options.data / "test.jsonl"))
    encoder = polyglance.load()
    figures: dict[str, Any] = {"model": encoder.name}
    figures["indexing"], library = index_images(scratch, options.data, records)
    languages = options.recall.split(",")
    figures["recall"] = compare_recall(library, encoder, options.data, records, languages)
    figures["small_library"] = time_queries(library, records)
    rows = ExactIndex(library._store()).refresh()
    figures["large_library"] = measure_large_library(
        scratch / "large.polyglance", rows.vectors, records, options.count
    )
    figures["other_indexes"] = measure_other_indexes(
        scratch / "large.polyglance",
        encoder.encode_texts(captions(records)),
        options.others.split(","),
        options.others_count or options.count,
    )
    write_results("library_speed", figures, options.out)
    if not options.keep:
        shutil.rmtree(scratch)


def index_images(
    scratch: Path, data: Path, records: Sequence[Record]
) -> tuple[dict[str, Any], Library]:
    """Index the test images, copied into a folder of their own, into a new library."""
    photos = scratch / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    for record in records:
        shutil.copyfile(data / str(record.image), photos / Path(str(record.image)).name)
    path = scratch / "small.polyglance"
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    library = Library(path)
    report = library.add(photos)
    rescan = library.update()
    figures = {
        "pictures": report.added,
        "bad": len(report.bad),
        "seconds": round(report.seconds, 2),
        "pictures_per_second": round(report.added / report.seconds, 1),
        "rescan_seconds": round(rescan.seconds, 3),
        "megabytes": round(library.info().size / 1e6, 2),
    }
    return report_figures("indexing", figures), library


def compare_recall(
    library: Library, encoder: Any, data: Path, records: Sequence[Record], languages: list[str]
) -> dict[str, Any]:
    """Compare text-to-image recall of the evaluation and of searches, one caption per image.

    The default model's vectors of a text depend a little on its batch. So captions are evaluated
    one at a time, as they are searched for, and once more in batches.
    """
    pictures = encoder.encode_pictures([data / str(record.image) for record in records])
    names = [Path(str(record.image)).name for record in records]
    figures: dict[str, Any] = {}
    for language in languages:
        texts = [
            (record.captions[language][0], row)
            for row, record in enumerate(records)
            if record.captions.get(language)
        ]
        image_ids = np.array([image for _, image in texts])
        single = np.concatenate([encoder.encode_texts([text]) for text, _ in texts])
        batched = encoder.encode_texts([text for text, _ in texts])
        expected, expected_batched = (
            evaluate_retrieval(pictures, vectors, image_ids).text_to_image.recalls
            for vectors in (single, batched)
        )
        ranks = []
        for text, image in texts:
            hits = [hit.path.name for hit in library.search(text, k=max(expected))]
            ranks.append(hits.index(names[image]) if names[image] in hits else max(expected))
        figures[language] = {
            f"R@{k}": {
                "library": round(100 * float(np.mean(np.array(ranks) < k)), 2),
                "evaluation": round(float(expected[k]), 2),
                "evaluation_in_batches": round(float(expected_batched[k]), 2),
            }
            for k in expected
        }
        report_figures(f"recall {language}", figures[language])
    return figures


def time_queries(library: Library, records: Sequence[Record]) -> dict[str, Any]:
    """Time searches for captions of all languages, in this process and in new ones."""
    texts = captions(records)
    library.search(texts[0])
    return report_figures(
        f"{len(library):,} files",
        {
            "vectors": library.info().counts.vectors,
            "query_ms": milliseconds(lambda text: library.search(text, k=10), texts[1:]),
            "cold_search_s": time_cold_searches(library.path, texts),
        },
    )


def measure_large_library(
    path: Path, real: Matrix, records: Sequence[Record], count: int
) -> dict[str, Any]:
    """Measure a library of synthetic vectors, with its graph and with exact search."""
    figures: dict[str, Any] = {}
    if not path.exists():
        start = perf_counter()
        fill(path, real, count)
        figures["filled_s"] = round(perf_counter() - start, 1)
    with Library(path) as library:
        store = library._store()
        if not graph_path(path).exists():
            start = perf_counter()
            build_graph(store, graph_path(path), quiet=False)
            figures["graph_built_s"] = round(perf_counter() - start, 1)
        figures["graph_megabytes"] = round(graph_path(path).stat().st_size / 1e6)
        figures |= time_queries(library, records)
        index = VectorIndex(
            store, graph_path(path), exact_limit=0
        )  # by the graph, however small the library
        exact = ExactIndex(store)
        vectors = library._encoder().encode_texts(captions(records))
        figures["recall@10"] = overlap(
            [index.search(vector, 10).ids for vector in vectors],
            [exact.search(vector, 10).ids for vector in vectors],
        )
        figures["graph_ms"] = milliseconds(lambda v: index.search(v, 10), vectors)
        figures["exact_ms"] = milliseconds(lambda v: exact.search(v, 10), vectors[:50])
        figures["filtered_query_ms"] = {
            name: milliseconds(lambda text, f=filters: library.search(text, k=10, **f), texts)
            for texts in [captions(records)[:20]]
            for name, filters in (
                ("half by date", {"since": "2010"}),
                ("a thousandth by folder", {"folder": "/synthetic/500"}),
            )
        }
    return report_figures("large library", figures)


def measure_other_indexes(
    path: Path, queries: Matrix, names: list[str], count: int
) -> dict[str, Any]:
    """Measure other indexes with the same vectors, queries and settings of the graph."""
    store = SqliteStore(path)
    matrix = ExactIndex(store).refresh().vectors[:count]
    store.close()
    nearest = [np.argsort(-(matrix @ query))[:10] for query in queries]
    figures: dict[str, Any] = {"vectors": len(matrix)}
    builders = {"faiss": build_faiss, "hnswlib": build_hnswlib, "pgvector": build_pgvector}
    for name, build_indexes in builders.items():
        if name not in names:
            continue
        for label, built, search in build_indexes(matrix):
            figures[label] = {
                "built_s": round(built, 1),
                "query_ms": milliseconds(search, queries),
                "recall@10": overlap([search(query) for query in queries], nearest),
            }
            report_figures(label, figures[label])
    return figures


BuiltIndexes = Iterator[tuple[str, float, Callable[[Matrix], Any]]]


def build_faiss(matrix: Matrix) -> BuiltIndexes:
    import faiss

    width = matrix.shape[1]
    graph = faiss.IndexHNSWSQ(
        width, faiss.ScalarQuantizer.QT_fp16, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction, graph.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
    for label, index in (("faiss flat", faiss.IndexFlatIP(width)), ("faiss hnsw fp16", graph)):
        start = perf_counter()
        index.train(matrix[:1])
        index.add(matrix)
        yield label, perf_counter() - start, lambda query, i=index: i.search(query[None], 10)[1][0]


def build_hnswlib(matrix: Matrix) -> BuiltIndexes:
    try:
        import hnswlib
    except ModuleNotFoundError:
        print("hnswlib is not installed: left out", flush=True)
        return
    index = hnswlib.Index(space="ip", dim=matrix.shape[1])
    index.init_index(max_elements=len(matrix), ef_construction=EF_CONSTRUCTION, M=HNSW_LINKS)
    start = perf_counter()
    index.add_items(matrix)
    index.set_ef(EF_SEARCH)
    yield "hnswlib", perf_counter() - start, lambda query: index.knn_query(query, k=10)[0][0]


def build_pgvector(matrix: Matrix) -> BuiltIndexes:
    """Build a library's tables; search by a plain statement and by the library's index."""
    from benchmarks.postgres_server import Server
    from polyglance.search.postgres.index import PostgresIndex
    from polyglance.search.postgres.store import PostgresStore
    from polyglance.search.postgres.tables import to_pgvector

    server = Server(maintenance_work_mem="'4GB'", shared_buffers="'4GB'")
    server.restart()
    try:
        manifest = ModelInfo("synthetic", "", "", matrix.shape[1], "beside")
        store = PostgresStore(server.database(), manifest)
        for start in range(0, len(matrix), BATCH):
            block = matrix[start : start + BATCH]
            store.put(synthetic_entry(start + i, vector) for i, vector in enumerate(block))
        index = PostgresIndex(store, exact_limit=0)
        begin = perf_counter()
        index.build()
        built = perf_counter() - begin
        nearest = "SELECT item - 1 FROM vectors ORDER BY vector <#> %s LIMIT 10"
        store.fetch_all("SELECT set_config('enable_seqscan', 'off', false)")  # as in a larger table
        yield (
            "pgvector hnsw",
            built,
            lambda q: [row for (row,) in store.fetch_all(nearest, (to_pgvector(q),))],
        )
        store.fetch_all("SELECT set_config('enable_seqscan', 'on', false)")
        yield "library on PostgreSQL", built, lambda query: index.search(query, 10).ids - 1
        store.close()
    finally:
        server.close()


def fill(path: Path, real: Matrix, count: int) -> None:
    """Fill a library with unit vectors of the mean and covariance of real ones."""
    model = polyglance.load()
    partial = path.with_name(f"filling-{path.name}")
    for ending in ("", "-wal", "-shm"):
        Path(f"{partial}{ending}").unlink(missing_ok=True)
    with Library(partial, model=model.name) as library:
        store = library._store(create=True)
        rng, mean = np.random.default_rng(0), real.mean(0)
        _, scales, axes = np.linalg.svd(real - mean, full_matrices=False)
        spread = (scales / np.sqrt(len(real)))[:, None] * axes
        for start in range(0, count, BATCH):
            vectors = rng.standard_normal((BATCH, len(spread)), np.float32) @ spread + mean
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            store.put(synthetic_entry(start + i, vector) for i, vector in enumerate(vectors))
    partial.rename(path)


def synthetic_entry(number: int, vector: Matrix) -> Entry:
    """Build the entry of an image that does not exist, in one of a thousand folders."""
    path, taken = f"/synthetic/{number % 1000}/{number}.jpg", f"{2000 + number % 20}-01-01T00:00:00"
    item = Item(path, "picture", FileSignature(number, number), f"{number:032x}", taken, 640, 480)
    return Entry(item, vector[None])


def captions(records: Sequence[Record]) -> list[str]:
    """Return captions of all languages in turn."""
    texts = [
        record.captions[code][-1]
        for record in records[: 2 * NUM_QUERIES]
        for code in sorted(record.captions)
        if record.captions[code]
    ]
    return texts[:: max(1, len(texts) // NUM_QUERIES)][:NUM_QUERIES]


def time_cold_searches(path: Path, texts: Sequence[str], times: int = 5) -> dict[str, float]:
    """Return the seconds that `polyglance search` takes as a new process."""
    command = [str(Path(sys.executable).with_name("polyglance")), "search", "-k", "10", "--json"]
    seconds = []
    for text in texts[:times]:
        start = perf_counter()
        subprocess.run([*command, "-l", str(path), text], check=True, capture_output=True)
        seconds.append(perf_counter() - start)
    return {"median": round(float(np.median(seconds)), 2), "best": round(min(seconds), 2)}


def milliseconds(function: Callable[[Any], object], inputs: Sequence[Any]) -> dict[str, float]:
    """Return the median and 90th percentile of the time of a call."""
    times = []
    for argument in inputs:
        start = perf_counter()
        function(argument)
        times.append(1000 * (perf_counter() - start))
    quantiles = np.quantile(times, [0.5, 0.9])
    return {
        name: round(float(value), 2)
        for name, value in zip(("median", "p90"), quantiles, strict=True)
    }


def overlap(results: Sequence[Any], nearest: Sequence[Any]) -> float:
    """Return recall at 10: the mean share of the ten nearest in the results."""
    shares = [
        len(set(map(int, a)) & set(map(int, b))) / 10 for a, b in zip(results, nearest, strict=True)
    ]
    return round(float(np.mean(shares)), 4)


def report_figures(label: str, figures: dict[str, Any]) -> dict[str, Any]:
    """Print figures and return them."""
    print(f"{label}: {figures}", flush=True)
    return figures


if __name__ == "__main__":
    main()
