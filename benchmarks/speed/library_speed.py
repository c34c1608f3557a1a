"""How fast is a library indexed and searched, and does it find what the evaluation finds?

The test pictures of a folder of research data are indexed from their files; recall through
`Library.search` is compared with that of the evaluation. Then a library of a million made-up
vectors, drawn from the distribution of the real ones, is asked the real captions, beside
FAISS, hnswlib and pgvector on the same vectors, the last also as a library on PostgreSQL.

    python -m benchmarks.speed.library_speed --data FOLDER                  # a folder with test.jsonl
    python -m benchmarks.speed.library_speed --data FOLDER --keep SCRATCH   # and use what is there
    python -m benchmarks.speed.library_speed --data FOLDER --beside none    # else faiss,hnswlib,pgvector
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

BLOCK = 10_000
QUERIES = 300
Matrix = NDArray[np.float32]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--count", type=int, default=1_000_000)
    options.add_argument("--recall", default="de,zh", help="languages to measure recall in")
    options.add_argument("--beside", default="faiss,hnswlib,pgvector")
    options.add_argument("--beside-count", type=int, help="vectors there; all by default")
    options.add_argument("--keep", type=Path, help="a folder for libraries, used again if there")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    scratch = chosen.keep or Path(tempfile.mkdtemp())
    records = list(read_manifest(chosen.data / "test.jsonl"))
    encoder = polyglance.load()
    figures: dict[str, Any] = {"model": encoder.name}
    figures["indexing"], library = indexed(scratch, chosen.data, records)
    languages = chosen.recall.split(",")
    figures["recall"] = recalls(library, encoder, chosen.data, records, languages)
    figures["few"] = asked(library, records)
    rows = ExactIndex(library._store()).refresh()
    figures["many"] = many(scratch / "many.polyglance", rows.vectors, records, chosen.count)
    figures["beside"] = beside(
        scratch / "many.polyglance",
        encoder.encode_texts(captions(records)),
        chosen.beside.split(","),
        chosen.beside_count or chosen.count,
    )
    write_results("library_speed", figures, chosen.out)
    if not chosen.keep:
        shutil.rmtree(scratch)


def indexed(scratch: Path, data: Path, records: Sequence[Record]) -> tuple[dict[str, Any], Library]:
    """The test pictures as files in a folder of their own, into a new library."""
    photos = scratch / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    for record in records:
        shutil.copyfile(data / str(record.image), photos / Path(str(record.image)).name)
    path = scratch / "few.polyglance"
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    library = Library(path)
    report = library.add(photos)
    again = library.update()
    figures = {
        "pictures": report.added,
        "bad": len(report.bad),
        "seconds": round(report.seconds, 2),
        "pictures_per_second": round(report.added / report.seconds, 1),
        "again_seconds": round(again.seconds, 3),
        "megabytes": round(library.info().size / 1e6, 2),
    }
    return told("indexing", figures), library


def recalls(
    library: Library, encoder: Any, data: Path, records: Sequence[Record], languages: list[str]
) -> dict[str, Any]:
    """Text to picture, one caption a picture: by the evaluation, and by what a search finds.

    The default model's networks round a text a little differently in company. So captions are
    evaluated one at a time, as they are searched for, and once more in batches.
    """
    pictures = encoder.encode_pictures([data / str(record.image) for record in records])
    names = [Path(str(record.image)).name for record in records]
    found: dict[str, Any] = {}
    for language in languages:
        texts = [
            (record.captions[language][0], row)
            for row, record in enumerate(records)
            if record.captions.get(language)
        ]
        owners = np.array([owner for _, owner in texts])
        alone = np.concatenate([encoder.encode_texts([text]) for text, _ in texts])
        together = encoder.encode_texts([text for text, _ in texts])
        expected, batched = (
            evaluate_retrieval(pictures, vectors, owners).text_to_image.recalls
            for vectors in (alone, together)
        )
        ranks = []
        for text, owner in texts:
            hits = [hit.path.name for hit in library.search(text, k=max(expected))]
            ranks.append(hits.index(names[owner]) if names[owner] in hits else max(expected))
        found[language] = {
            f"R@{k}": {
                "library": round(100 * float(np.mean(np.array(ranks) < k)), 2),
                "evaluation": round(float(expected[k]), 2),
                "evaluation_in_batches": round(float(batched[k]), 2),
            }
            for k in expected
        }
        told(f"recall {language}", found[language])
    return found


def asked(library: Library, records: Sequence[Record]) -> dict[str, Any]:
    """Captions of all languages, each once, to a running process and to new ones."""
    texts = captions(records)
    library.search(texts[0])
    return told(
        f"{len(library):,} files",
        {
            "vectors": library.info().counts.vectors,
            "query_ms": milliseconds(lambda text: library.search(text, k=10), texts[1:]),
            "cold_search_s": cold(library.path, texts),
        },
    )


def many(path: Path, real: Matrix, records: Sequence[Record], count: int) -> dict[str, Any]:
    """A library of made-up vectors, by its graph and against comparing all."""
    figures: dict[str, Any] = {}
    if not path.exists():
        began = perf_counter()
        fill(path, real, count)
        figures["filled_s"] = round(perf_counter() - began, 1)
    with Library(path) as library:
        store = library._store()
        if not graph_path(path).exists():
            began = perf_counter()
            build_graph(store, graph_path(path), quiet=False)
            figures["graph_built_s"] = round(perf_counter() - began, 1)
        figures["graph_megabytes"] = round(graph_path(path).stat().st_size / 1e6)
        figures |= asked(library, records)
        index = VectorIndex(store, graph_path(path), exact_limit=0)  # by the graph, however few
        exact = ExactIndex(store)
        vectors = library._encoder().encode_texts(captions(records))
        figures["recall@10"] = overlap(
            [index.search(vector, 10).ids for vector in vectors],
            [exact.search(vector, 10).ids for vector in vectors],
        )
        figures["graph_alone_ms"] = milliseconds(lambda v: index.search(v, 10), vectors)
        figures["exact_alone_ms"] = milliseconds(lambda v: exact.search(v, 10), vectors[:50])
        figures["kinds_of_filters_ms"] = {
            name: milliseconds(lambda text, f=wanted: library.search(text, k=10, **f), texts)
            for texts in [captions(records)[:20]]
            for name, wanted in (
                ("half by date", {"since": "2010"}),
                ("a thousandth by folder", {"folder": "/made-up/500"}),
            )
        }
    return told("many", figures)


def beside(path: Path, queries: Matrix, names: list[str], count: int) -> dict[str, Any]:
    """The same vectors and queries in other libraries, with the graph's settings."""
    store = SqliteStore(path)
    matrix = ExactIndex(store).refresh().vectors[:count]
    store.close()
    right = [np.argsort(-(matrix @ query))[:10] for query in queries]
    found: dict[str, Any] = {"vectors": len(matrix)}
    others = {"faiss": in_faiss, "hnswlib": in_hnswlib, "pgvector": in_pgvector}
    for name, make in others.items():
        if name not in names:
            continue
        for label, built, search in make(matrix):
            found[label] = {
                "built_s": round(built, 1),
                "query_ms": milliseconds(search, queries),
                "recall@10": overlap([search(query) for query in queries], right),
            }
            told(label, found[label])
    return found


Searched = Iterator[tuple[str, float, Callable[[Matrix], Any]]]


def in_faiss(matrix: Matrix) -> Searched:
    import faiss

    width = matrix.shape[1]
    graph = faiss.IndexHNSWSQ(
        width, faiss.ScalarQuantizer.QT_fp16, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction, graph.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
    for label, index in (("faiss flat", faiss.IndexFlatIP(width)), ("faiss hnsw fp16", graph)):
        began = perf_counter()
        index.train(matrix[:1])
        index.add(matrix)
        yield label, perf_counter() - began, lambda query, i=index: i.search(query[None], 10)[1][0]


def in_hnswlib(matrix: Matrix) -> Searched:
    try:
        import hnswlib
    except ModuleNotFoundError:
        print("hnswlib is not installed: left out", flush=True)
        return
    index = hnswlib.Index(space="ip", dim=matrix.shape[1])
    index.init_index(max_elements=len(matrix), ef_construction=EF_CONSTRUCTION, M=HNSW_LINKS)
    began = perf_counter()
    index.add_items(matrix)
    index.set_ef(EF_SEARCH)
    yield "hnswlib", perf_counter() - began, lambda query: index.knn_query(query, k=10)[0][0]


def in_pgvector(matrix: Matrix) -> Searched:
    """A statement of one's own, and the library's index, over the tables of a library."""
    from benchmarks.postgres_server import Server
    from polyglance.search.postgres.index import PostgresIndex
    from polyglance.search.postgres.store import PostgresStore
    from polyglance.search.postgres.tables import to_pgvector

    server = Server(maintenance_work_mem="'4GB'", shared_buffers="'4GB'")
    server.restart()
    try:
        manifest = ModelInfo("made up", "", "", matrix.shape[1], "beside")
        store = PostgresStore(server.database(), manifest)
        for start in range(0, len(matrix), BLOCK):
            block = matrix[start : start + BLOCK]
            store.put(made_up(start + i, vector) for i, vector in enumerate(block))
        index = PostgresIndex(store, exact_limit=0)
        began = perf_counter()
        index.build()
        built = perf_counter() - began
        nearest = "SELECT item - 1 FROM vectors ORDER BY vector <#> %s LIMIT 10"
        store.fetch_all(
            "SELECT set_config('enable_seqscan', 'off', false)"
        )  # as if there were many
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
    """Unit vectors with the mean and covariance of real ones, as pictures of a thousand folders."""
    model = polyglance.load()
    beside_it = path.with_name(f"filling-{path.name}")
    for ending in ("", "-wal", "-shm"):
        Path(f"{beside_it}{ending}").unlink(missing_ok=True)
    with Library(beside_it, model=model.name) as library:
        store = library._store(create=True)
        rng, mean = np.random.default_rng(0), real.mean(0)
        _, scales, axes = np.linalg.svd(real - mean, full_matrices=False)
        spread = (scales / np.sqrt(len(real)))[:, None] * axes
        for start in range(0, count, BLOCK):
            drawn = rng.standard_normal((BLOCK, len(spread)), np.float32) @ spread + mean
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            store.put(made_up(start + i, vector) for i, vector in enumerate(drawn))
    beside_it.rename(path)


def made_up(number: int, vector: Matrix) -> Entry:
    path, taken = f"/made-up/{number % 1000}/{number}.jpg", f"{2000 + number % 20}-01-01T00:00:00"
    item = Item(path, "picture", FileSignature(number, number), f"{number:032x}", taken, 640, 480)
    return Entry(item, vector[None])


def captions(records: Sequence[Record]) -> list[str]:
    """Captions in all languages, by turns."""
    texts = [
        record.captions[code][-1]
        for record in records[: 2 * QUERIES]
        for code in sorted(record.captions)
        if record.captions[code]
    ]
    return texts[:: max(1, len(texts) // QUERIES)][:QUERIES]


def cold(path: Path, texts: Sequence[str], times: int = 5) -> dict[str, float]:
    """Seconds of `polyglance search` from its start to its end."""
    command = [str(Path(sys.executable).with_name("polyglance")), "search", "-k", "10", "--json"]
    taken = []
    for text in texts[:times]:
        began = perf_counter()
        subprocess.run([*command, "-l", str(path), text], check=True, capture_output=True)
        taken.append(perf_counter() - began)
    return {"median": round(float(np.median(taken)), 2), "best": round(min(taken), 2)}


def milliseconds(call: Callable[[Any], object], inputs: Sequence[Any]) -> dict[str, float]:
    taken = []
    for one in inputs:
        began = perf_counter()
        call(one)
        taken.append(1000 * (perf_counter() - began))
    ordered = np.quantile(taken, [0.5, 0.9])
    return {
        name: round(float(value), 2) for name, value in zip(("median", "p90"), ordered, strict=True)
    }


def overlap(found: Sequence[Any], right: Sequence[Any]) -> float:
    """The mean part of the right ten that was found."""
    shares = [
        len(set(map(int, a)) & set(map(int, b))) / 10 for a, b in zip(found, right, strict=True)
    ]
    return round(float(np.mean(shares)), 4)


def told(what: str, figures: dict[str, Any]) -> dict[str, Any]:
    print(f"{what}: {figures}", flush=True)
    return figures


if __name__ == "__main__":
    main()
