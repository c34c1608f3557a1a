"""MTEB and sentence-transformers, which MTEB imports: one module, as the import takes seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import polyglance
from helpers.noisy_encoder import NoisyEncoder
from polyglance.encoders import Encoder
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from polyglance.records import read_manifest

TEXTS = ["a dog", "ein Hund", "一只狗"]


def require_mteb() -> None:
    """Skip a test where MTEB cannot be imported: see tools/overrides.txt."""
    pytest.importorskip("pytrec_eval", reason="MTEB's metrics have no wheel for this processor")


@pytest.fixture(scope="module")
def ours_in_mteb() -> Any:
    require_mteb()
    import polyglance.integrations.mteb as integration

    return integration


@pytest.fixture(scope="module")
def ours_in_st() -> Any:
    import polyglance.integrations.sentence_transformers as integration

    return integration


def scores(model: Any, task: Any) -> dict[str, float]:
    import mteb

    [result] = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    [found] = result.scores["test"]
    return found


def test_mteb_finds_our_recalls(ours_in_mteb: Any, manifest: Path, ours: RetrievalResult) -> None:
    encoder = ours_in_mteb.MTEBEncoder(model=NoisyEncoder())
    to_image, to_text = ours_in_mteb.caption_tasks(manifest)
    assert (to_image.metadata.category, to_text.metadata.category) == ("t2i", "i2t")
    found = scores(encoder, to_image)
    for k, recall in ours.text_to_image.recalls.items():
        assert found[f"recall_at_{k}"] == pytest.approx(recall / 100, abs=1e-6)
        assert found[f"hit_rate_at_{k}"] == pytest.approx(recall / 100, abs=1e-6)
    found = scores(encoder, to_text)
    for k, recall in ours.image_to_text.recalls.items():
        assert found[f"hit_rate_at_{k}"] == pytest.approx(recall / 100, abs=1e-6)
    # Of an image's two captions the first k hold one at least more often than both.
    assert found["recall_at_1"] < found["hit_rate_at_1"]


def test_mteb_finds_our_recalls_between_languages(ours_in_mteb: Any, manifest: Path) -> None:
    """A task of texts only: captions of one language find those of the other."""
    import datasets
    import mteb
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    captions = [record.captions for record in read_manifest(manifest)]
    german = [text for own in captions for text in own["de"]]
    english = [text for own in captions for text in own["en"]]
    names = [str(number) for number in range(len(english))]

    class Translations(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = mteb.TaskMetadata(
            name="Translations", description="German finds English.", reference=None,
            dataset={"path": "none", "revision": "none"}, type="Retrieval", category="t2t",
            modalities=["text"], eval_splits=["test"], eval_langs=["deu-Latn", "eng-Latn"],
            main_score="recall_at_1", date=None, domains=None, task_subtypes=None, license=None,
            annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None,
        )  # fmt: skip

        def load_data(self, num_proc: int | None = None, **kwargs: object) -> None:
            split = {
                "queries": datasets.Dataset.from_dict({"id": names, "text": german}),
                "corpus": datasets.Dataset.from_dict({"id": names, "text": english}),
                "relevant_docs": {name: {name: 1} for name in names},
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    encoder = NoisyEncoder()
    result = evaluate_retrieval(
        encoder.encode_texts(english), encoder.encode_texts(german), np.arange(len(german))
    )
    found = scores(ours_in_mteb.MTEBEncoder(model=encoder), Translations())
    for k, recall in result.text_to_image.recalls.items():
        assert found[f"recall_at_{k}"] == pytest.approx(recall / 100, abs=1e-6)


def test_mteb_loads_a_model_by_its_description(
    ours_in_mteb: Any, encoder: Encoder, folder: Path, photos: list[Path]
) -> None:
    meta = ours_in_mteb.model_meta(folder)
    assert (meta.name, meta.embed_dim) == (f"polyglance/{encoder.name}", encoder.width)
    assert meta.modalities == ["text", "image"]
    assert encoder.fingerprint.startswith(meta.revision)
    model = meta.load_model()
    assert model.mteb_model_meta.revision == meta.revision
    pictures = [Image.open(path) for path in photos]
    texts = model.encode([{"text": TEXTS[:2]}, {"text": TEXTS[2:]}])
    # By the same batches: what is in one moves the default model's int8 vectors a little.
    expected = np.concatenate([encoder.encode_texts(TEXTS[:2]), encoder.encode_texts(TEXTS[2:])])
    np.testing.assert_allclose(texts, expected, atol=1e-6)
    images = model.encode([{"image": pictures}])
    np.testing.assert_allclose(images, encoder.encode_pictures(photos), atol=1e-6)
    both = model.encode([{"text": TEXTS, "image": pictures}])
    total = encoder.encode_texts(TEXTS) + encoder.encode_pictures(photos)
    expected = total / np.linalg.norm(total, axis=1, keepdims=True)
    np.testing.assert_allclose(both, expected, atol=1e-6)


def test_a_task_needs_captions_in_its_language(ours_in_mteb: Any, manifest: Path) -> None:
    with pytest.raises(DataError, match="no picture has a caption in 'fr'"):
        ours_in_mteb.caption_tasks(manifest, "fr")


def test_a_saved_sentence_transformer_opens_again(
    ours_in_st: Any, encoder: Encoder, folder: Path, photos: list[Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    texts, pictures = encoder.encode_texts(TEXTS), encoder.encode_pictures(photos)
    opened = [Image.open(path) for path in photos]
    saved = tmp_path / "saved"
    ours_in_st.open_sentence_transformer(folder).save(str(saved))
    assert json.loads((saved / "modules.json").read_text())[0]["type"].startswith("polyglance.")
    model = SentenceTransformer(str(saved), trust_remote_code=True, local_files_only=True)
    assert model.get_embedding_dimension() == encoder.width
    assert set(model.modalities) == {"text", "image"}
    np.testing.assert_allclose(model.encode(TEXTS), texts, atol=1e-6)
    np.testing.assert_allclose(model.encode(opened), pictures, atol=1e-6)
    np.testing.assert_allclose(model.encode([str(path) for path in photos]), pictures, atol=1e-6)
    similarity = model.similarity(model.encode(TEXTS), model.encode(opened)).numpy()
    np.testing.assert_allclose(similarity, texts @ pictures.T, atol=1e-6)
    np.testing.assert_allclose(
        model.encode(["dog"], prompt="a "), encoder.encode_texts(["a dog"]), atol=1e-6
    )
    # It is a model folder of ours, too.
    assert polyglance.load(saved).fingerprint == encoder.fingerprint


def test_sentence_transformers_takes_models_of_our_own_format(
    ours_in_st: Any, tmp_path: Path
) -> None:
    from helpers.clip_models import save_clip

    with pytest.raises(PolyglanceError, match="not in Polyglance's own format"):
        ours_in_st.DualEncoderModule(save_clip(tmp_path / "clip"))


@pytest.mark.parametrize("section", ["sentence-transformers", "MTEB"])
def test_the_example_of_the_page_runs(section: str, run_example: Callable[[str], None]) -> None:
    if section == "MTEB":
        require_mteb()
    run_example(section)
