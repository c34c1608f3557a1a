"""Trained consistency (CLC-C) without torch: in an exported model, and in search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.sentences import SENTENCES
from helpers.small_smalr import export, word_model
from polyglance.encoders import load
from polyglance.encoders.consistency import SHARED, ConsistencyNetworks, Network
from polyglance.encoders.model_folder import CONSISTENCY, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.translated_queries import consistency_scores
from polyglance.errors import DataError
from polyglance.search.query import query_vector

RANDOM = np.random.default_rng(0)
LANGUAGES = ("en", "de", "ar", "zh", "ja")


def network(*weights: float) -> Network:
    """Return a network of two units, each with these weights of languages."""
    rows = np.array([weights, weights], np.float32)
    return Network(rows, np.array([0.5, 0.5], np.float32))


NETWORKS = ConsistencyNetworks(
    LANGUAGES,
    {SHARED: network(0.1, 0.6, 0.1, 0.1, 0.1), "de": network(0.0, 0.9, 0.05, 0.05, 0.0)},
)


def test_the_network_of_the_query_s_language_is_used() -> None:
    assert NETWORKS.find("de") is NETWORKS.networks["de"]
    assert NETWORKS.find("en") is NETWORKS.networks[SHARED]
    assert NETWORKS.find(None) is NETWORKS.networks[SHARED]
    assert ConsistencyNetworks(LANGUAGES, {}).find("en") is None
    assert NETWORKS.combiner(["en", "fr"]) is None  # it never learned French


def test_language_weights_are_the_network_where_languages_agree() -> None:
    some = Network(
        RANDOM.normal(size=(32, 5)).astype(np.float32), RANDOM.normal(size=32).astype(np.float32)
    )
    weights = some.language_weights()
    base, step = np.zeros(5), 1e-3 * np.eye(5)
    slope = np.array([some.combine(base + one) - some.combine(base - one) for one in step])
    expected = slope / slope.sum() if slope.sum() > 0 else np.full(5, 0.2)
    np.testing.assert_allclose(weights, expected, rtol=1e-3, atol=1e-4)
    against = Network(-np.ones((2, 3), np.float32), np.ones(2, np.float32))
    np.testing.assert_allclose(against.language_weights(), [1 / 3] * 3)


def test_missing_languages_count_as_the_mean_of_the_others() -> None:
    scores = RANDOM.uniform(-0.2, 0.8, (2, 4, 3))
    scores[1, :, 2] = np.nan
    both = NETWORKS.combiner(["en", "de"])
    linear = NETWORKS.combiner(["en", "de"], linear=True)
    assert both is not None
    assert linear is not None
    shared = NETWORKS.networks[SHARED]
    for query in range(3):
        en, de = scores[0, :, query], scores[1, :, query]
        de = en if query == 2 else de
        rest = (en + de) / 2
        complete = np.stack([en, de, rest, rest, rest])
        np.testing.assert_allclose(both(scores)[:, query], shared.combine(complete), rtol=1e-5)
        mixed = 0.1 * en + 0.6 * de + 0.3 * rest
        np.testing.assert_allclose(linear(scores)[:, query], mixed, rtol=1e-5)
    scores[:] = np.nan
    assert np.isnan(linear(scores)).all()


def test_networks_survive_being_written() -> None:
    content = NETWORKS.to_bytes()
    assert content == NETWORKS.to_bytes()
    again = ConsistencyNetworks.from_bytes(content)
    assert again.languages == LANGUAGES
    np.testing.assert_array_equal(again.networks["de"].languages, NETWORKS.networks["de"].languages)
    for broken in (b"", content[:50]):
        with pytest.raises(DataError, match="cannot be read"):
            ConsistencyNetworks.from_bytes(broken)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> tuple[OnnxEncoder, OnnxEncoder]:
    """One model, exported without and with trained consistency."""
    folder = tmp_path_factory.mktemp("smalr")
    model = word_model(folder / "words")
    found = []
    for name, networks in (("plain", None), ("learned", NETWORKS)):
        export(replace(model, consistency=networks), folder / name)
        opened = load(folder / name, threads=1)
        assert isinstance(opened, OnnxEncoder)
        found.append(opened)
    return found[0], found[1]


def test_search_weights_languages_as_they_were_learned(
    encoders: tuple[OnnxEncoder, OnnxEncoder],
) -> None:
    plain, learned = encoders
    query = {code: SENTENCES[code][0] for code in ("de", "en")}
    vectors = {code: learned.encode_texts([text], language=code)[0] for code, text in query.items()}
    average = vectors["de"] + vectors["en"]
    np.testing.assert_allclose(
        query_vector(plain, [query]), average / np.linalg.norm(average), atol=1e-5
    )
    weighted = 0.9 * vectors["de"] + 0.1 * average / 2  # ar and zh are missing
    np.testing.assert_allclose(
        query_vector(learned, [query]), weighted / np.linalg.norm(weighted), atol=1e-5
    )
    pictures = RANDOM.normal(size=(6, learned.width)).astype(np.float32)
    pictures /= np.linalg.norm(pictures, axis=1, keepdims=True)
    exact = learned.consistency.combiner(list(query)) if learned.consistency else None
    assert exact is not None
    queries = {code: [text] for code, text in query.items()}
    by_network = consistency_scores(learned, queries, pictures, combine=exact)[:, 0]
    by_search = pictures @ query_vector(learned, [query])
    assert np.argsort(by_network).tolist() == np.argsort(by_search).tolist()
    alone = query_vector(learned, [query["de"]], language="de")
    np.testing.assert_allclose(alone, query_vector(plain, [query["de"]], language="de"))


def test_libraries_stay_valid_when_consistency_is_added(
    encoders: tuple[OnnxEncoder, OnnxEncoder],
) -> None:
    plain, learned = encoders
    assert plain.consistency is None
    assert learned.fingerprint == plain.fingerprint
    assert (learned.folder.path / CONSISTENCY).is_file()
    assert isinstance(ModelFolder.open(learned.folder.path), ModelFolder)
