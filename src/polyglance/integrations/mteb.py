"""MTEB: an encoder of texts and pictures, its `ModelMeta`, and your own captions as tasks.

    import mteb
    from polyglance.integrations.mteb import caption_tasks, model_meta

    model = model_meta().load_model()
    mteb.evaluate(model, mteb.get_tasks(["XM3600T2IRetrieval"]))       # data of the hub
    mteb.evaluate(model, caption_tasks("photos/test.jsonl", "de"))     # data of this disk

`caption_tasks` uses no network. MTEB's ``hit_rate_at_k`` is our recall at k; its ``recall_at_k`` is
too where a query has one right answer, which text to image always has. It rounds to five decimals.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import DataError, MissingExtraError
from polyglance.integrations.models import Model, open_model, stored_name
from polyglance.records import Record, read_manifest

try:
    from mteb import TaskMetadata
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.languages.iso_mappings import _hf_lang_to_iso_lang_script as iso_language
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    import datasets  # isort: skip (MTEB brings it)
except ImportError as error:
    raise MissingExtraError("MTEB", "mteb") from error

Direction = Literal["text-to-image", "image-to-text"]
_CATEGORIES = {"text-to-image": "t2i", "image-to-text": "i2t"}


class MTEBEncoder(AbsEncoder):
    """A dual encoder as MTEB's `EncoderProtocol`."""

    def __init__(
        self,
        model_name: str = "",
        revision: str | None = None,
        device: str | None = None,
        *,
        model: Model | Encoder = None,
        **kwargs: object,
    ) -> None:
        """Open a model; MTEB gives the first three arguments.

        Args:
            model_name: Its name in MTEB.
            revision: Its version in MTEB.
            device: Torch's device, for models that run on torch; None for the processor.
            model: An encoder, or a model's name or folder; None for the default model.
            **kwargs: Of other loaders; ignored.
        """
        self.encoder = open_model(model, device=device or "cpu")
        self.mteb_model_meta = model_meta(model)

    def encode(self, inputs: Any, **kwargs: object) -> NDArray[np.float32]:
        """Encode batches of ``text``, of ``image``, or of both, whose vectors are added.

        Args:
            inputs: MTEB's loader of batches, dicts of columns.
            **kwargs: Task, split, prompts and batch size of MTEB; ignored, as there are no prompts.

        Returns:
            Unit vectors, (items, width).
        """
        parts = []
        for batch in inputs:
            vectors: Any = 0.0
            if "text" in batch:
                vectors = vectors + self.encoder.encode_texts(batch["text"])
            if "image" in batch:
                vectors = vectors + self.encoder.encode_pictures(batch["image"])
            if "text" in batch and "image" in batch:
                vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
            parts.append(vectors)
        return np.concatenate(parts).astype(np.float32)


class PolyglanceMeta(ModelMeta):
    """MTEB's description of a model that prepares pictures itself."""

    def _resolve_extras_groups(self) -> list[str]:
        """Ask for no extra of MTEB, which would be torchvision for pictures: we never use it."""
        return list(self.extra_requirements_groups or [])


def model_meta(model: Model | Encoder = None, *, name: str | None = None) -> Any:
    """Return MTEB's description of a model, by which it loads it.

    Args:
        model: An encoder, or a model's name or folder; None for the default model.
        name: ``organisation/model``; None for ``polyglance/`` and the model's name.

    Returns:
        The `ModelMeta`; its revision is the model's fingerprint.
    """
    encoder = open_model(model)
    own = encoder.folder.description if isinstance(encoder, OnnxEncoder) else None
    codes = [] if own is None else [iso_language(code) for code in own.languages]
    stored = stored_name(model) if model is None or isinstance(model, str | Path) else model
    return PolyglanceMeta(
        loader=MTEBEncoder,
        loader_kwargs={"model": stored},
        name=name or f"polyglance/{encoder.name}",
        revision=encoder.fingerprint[:40],
        release_date=None,
        languages=[code for code in codes if code] or None,
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=None if own is None else own.max_length,
        embed_dim=encoder.width,
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch" if own is None else "ONNX"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=False,
        training_datasets=None,
        modalities=["text"] if own is not None and own.pictures is None else ["text", "image"],
    )


def caption_tasks(manifest: str | Path, language: str = "en", *, name: str | None = None) -> Any:
    """Return the captioned pictures of a manifest as two retrieval tasks of MTEB.

    Args:
        manifest: Of pictures with captions, as `polyglance data import` writes it.
        language: Of the captions.
        name: Of the tasks; None for that of the manifest.

    Returns:
        Text to image and image to text; pictures without captions remain candidates.
    """
    manifest = Path(manifest)
    records = [record for record in read_manifest(manifest) if record.image]
    if not any(record.captions.get(language) for record in records):
        raise DataError(f"{manifest}: no picture has a caption in {language!r}: name another")
    title = name or manifest.name.partition(".")[0]
    directions: tuple[Direction, ...] = ("text-to-image", "image-to-text")
    return [
        _task_class(records, manifest.parent, language, title, direction)()
        for direction in directions
    ]


def _task_class(
    records: list[Record], folder: Path, language: str, name: str, direction: Direction
) -> Any:
    """Return the class of a task: MTEB keeps what describes one in its class."""
    category = _CATEGORIES[direction]
    metadata = TaskMetadata(
        name=f"{name}-{language}-{category}",
        description=f"Captioned pictures of {name}, {direction}.",
        reference=None,
        dataset={"path": str(folder.resolve()), "revision": "local"},
        type="Any2AnyRetrieval",
        category=category,
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=[iso_language(language) or "und-Zyyy"],
        main_score="hit_rate_at_1",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
    )
    members = {"metadata": metadata, "records": records, "folder": folder, "language": language}
    return type(metadata.name, (_CaptionTask,), {**members, "direction": direction})


class _CaptionTask(AbsTaskRetrieval):
    """Pictures and captions of a manifest, one to find the other."""

    k_values = (1, 3, 5, 10, 20, 100)
    records: list[Record]
    folder: Path
    language: str
    direction: Direction

    def load_data(self, num_proc: int | None = None, **kwargs: object) -> None:
        """Build the tables of queries and candidates."""
        texts: list[str] = []
        images: list[str] = []
        pairs: list[tuple[str, str]] = []
        for number, record in enumerate(self.records):
            images.append(str(self.folder / str(record.image)))
            for text in record.captions.get(self.language, ()):
                pairs.append((f"text-{len(texts)}", f"image-{number}"))
                texts.append(text)
        captions = {"id": [f"text-{n}" for n in range(len(texts))], "text": texts}
        pictures = {"id": [f"image-{n}" for n in range(len(images))], "image": images}
        tables = [
            datasets.Dataset.from_dict(captions),
            datasets.Dataset.from_dict(pictures).cast_column("image", datasets.Image()),
        ]
        if self.direction == "image-to-text":
            tables.reverse()
            pairs = [(image, text) for text, image in pairs]
        relevant: dict[str, dict[str, int]] = {}
        for query, document in pairs:
            relevant.setdefault(query, {})[document] = 1
        queries, corpus = tables
        split = {"queries": queries, "corpus": corpus, "relevant_docs": relevant}
        self.dataset = {"default": {"test": {**split, "top_ranked": None}}}
        self.data_loaded = True
