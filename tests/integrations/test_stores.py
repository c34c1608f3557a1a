"""LangChain, Chroma and LanceDB: texts and pictures in their own stores."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError

TEXTS = ["a dog runs", "ein Hund läuft", "一只狗"]
QUERY = "the dog"


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Path:
    """The same model by another maximum length, hence another fingerprint."""
    copy = shutil.copytree(folder, tmp_path / "changed")
    description = json.loads((copy / "model.json").read_text())
    description["longest"] -= 1
    description.pop("same_vectors_as", None)
    (copy / "model.json").write_text(json.dumps(description))
    return copy


def test_langchain(encoder: Encoder, folder: Path, photos: list[Path]) -> None:
    from langchain_core.vectorstores import InMemoryVectorStore

    from polyglance.integrations.langchain import PolyglanceEmbeddings

    embeddings = PolyglanceEmbeddings(folder)
    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    cosines = encoder.encode_texts([QUERY]) @ encoder.encode_texts(TEXTS).T
    found = store.similarity_search_with_score(QUERY, k=3)
    assert [document.page_content for document, _ in found] == [
        TEXTS[n] for n in np.argsort(-cosines[0])
    ]
    np.testing.assert_allclose([score for _, score in found], sorted(cosines[0])[::-1], atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_image(photos), encoder.encode_pictures(photos))
    assert asyncio.run(embeddings.aembed_query(QUERY)) == embeddings.embed_query(QUERY)


def test_chroma(encoder: Encoder, folder: Path, photos: list[Path], tmp_path: Path) -> None:
    import chromadb
    from chromadb.config import Settings

    from polyglance.integrations.chroma import PictureLoader, PolyglanceEmbeddingFunction

    settings = Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path / "chroma"), settings)
    function = PolyglanceEmbeddingFunction(folder)
    made = client.create_collection(
        "photos", embedding_function=function, data_loader=PictureLoader()
    )
    made.add(ids=["0", "1", "2"], uris=[str(path) for path in photos])
    # Opened again without the function, by the configuration that Chroma has stored.
    photo_collection = client.get_collection("photos", data_loader=PictureLoader())
    found = photo_collection.query(query_texts=[QUERY], n_results=3)
    cosines = encoder.encode_texts([QUERY])[0] @ encoder.encode_pictures(photos).T
    assert found["ids"] == [[str(n) for n in np.argsort(-cosines)]]
    np.testing.assert_allclose(found["distances"][0], 1 - np.sort(cosines)[::-1], atol=1e-6)
    by_picture = photo_collection.query(query_uris=[str(photos[1])], n_results=1)
    assert by_picture["ids"] == [["1"]]

    texts = client.create_collection("texts", embedding_function=function)
    texts.add(ids=["0", "1", "2"], documents=TEXTS)
    stored = texts.get(include=["embeddings"])["embeddings"]
    np.testing.assert_allclose(stored, encoder.encode_texts(TEXTS), atol=1e-6)


def test_a_chroma_collection_of_another_model_is_refused(folder: Path, changed: Path) -> None:
    from polyglance.integrations.chroma import PolyglanceEmbeddingFunction

    config = PolyglanceEmbeddingFunction(folder).get_config()
    assert PolyglanceEmbeddingFunction.build_from_config(config).encoder.name
    with pytest.raises(PolyglanceError, match="embedded by another version"):
        PolyglanceEmbeddingFunction.build_from_config({**config, "model": str(changed)})


@pytest.fixture(scope="module")
def lance() -> Any:
    import lancedb

    import polyglance.integrations.lancedb  # noqa: F401 (registers the function)

    return lancedb


def test_lancedb(
    lance: Any, encoder: Encoder, folder: Path, photos: list[Path], tmp_path: Path
) -> None:
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    embed = get_registry().get("polyglance").create(model=str(folder), source="pictures")

    class Photo(LanceModel):  # type: ignore[misc]
        file: str = embed.SourceField()
        vector: Vector(embed.ndims()) = embed.VectorField()  # type: ignore[valid-type]

    lance.connect(tmp_path / "lance").create_table("photos", schema=Photo).add(
        [{"file": str(path)} for path in photos]
    )
    # Opened again: the table's metadata names the function, the model and its fingerprint.
    table = lance.connect(tmp_path / "lance").open_table("photos")
    found = table.search(QUERY).distance_type("cosine").limit(3).to_list()
    cosines = encoder.encode_texts([QUERY])[0] @ encoder.encode_pictures(photos).T
    assert [row["file"] for row in found] == [str(photos[n]) for n in np.argsort(-cosines)]
    distances = [row["_distance"] for row in found]
    np.testing.assert_allclose(distances, 1 - np.sort(cosines)[::-1], atol=1e-6)
    [nearest] = table.search(photos[1].read_bytes()).limit(1).to_list()
    assert nearest["file"] == str(photos[1])


def test_lancedb_embeds_texts_by_the_model_that_a_table_names(
    lance: Any, encoder: Encoder, folder: Path, changed: Path
) -> None:
    from polyglance.integrations.lancedb import PolyglanceEmbeddings

    embed = PolyglanceEmbeddings.create(model=folder)
    np.testing.assert_array_equal(
        embed.compute_source_embeddings(TEXTS), encoder.encode_texts(TEXTS)
    )
    stored = embed.safe_model_dump()
    assert stored["fingerprint"] == encoder.fingerprint
    with pytest.raises(PolyglanceError, match="embedded by another version"):
        PolyglanceEmbeddings.create(**{**stored, "model": str(changed)})


@pytest.mark.parametrize("section", ["LangChain", "Chroma", "LanceDB", "Hugging Face datasets"])
def test_the_example_of_the_page_runs(section: str, run_example: Callable[[str], None]) -> None:
    run_example(section)
