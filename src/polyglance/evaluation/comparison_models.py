"""Open the models of a comparison, whatever they are, and let each rank the same test set.

A model is the name of one that comes with Polyglance, a folder of `polyglance export`,
transformers, open_clip or sentence-transformers, a run of `polyglance train`, or a cross-encoder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from polyglance.encoders import Encoder, load
from polyglance.encoders.formats import detect_format
from polyglance.encoders.model_folder import (
    DEFAULT_MODEL,
    DESCRIPTION_FILE,
    ModelFolder,
    find_model,
    shipped_models,
)
from polyglance.encoders.protocol import FeatureEncoder
from polyglance.encoders.stored_features import with_features
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.evaluation.comparison import ModelRanks
from polyglance.evaluation.embeddings import EmbeddingLayout
from polyglance.evaluation.encoders import EncodedTestSet
from polyglance.evaluation.retrieval import Array, Integers, ranks_from_embeddings
from polyglance.utils.bounded import parse_json
from polyglance.utils.progress import progress

NUM_TOP = 3
"""Images kept of each caption, to be shown."""
_BLOCK = 1024


@dataclass(frozen=True)
class ModelSpec:
    """A model as the user names it, and its name in the report."""

    source: str
    name: str


def parse_specs(models: Sequence[str]) -> list[ModelSpec]:
    """Return models with different names.

    Args:
        models: Names and folders; ``NAME=FOLDER`` chooses the name in the report. Of one model
            alone, the included model is the baseline.

    Returns:
        The models, the baseline first. Folders of one name are told apart by their parents.
    """
    given = [*models] if len(models) > 1 else [DEFAULT_MODEL, *models]
    pairs = [_parse_spec(text) for text in given]
    for number, (source, name) in enumerate(pairs):
        if (source, name) in pairs[:number]:
            if len(models) == 1:
                raise PolyglanceError(f"{name} alone has nothing to differ from: name two models")
            raise PolyglanceError(f"{name} is named twice: compare different models")
    names = [name for _, name in pairs]
    specs: list[ModelSpec] = []
    for number, (source, name) in enumerate(pairs):
        shown = name
        if names.count(name) > 1 and Path(source).expanduser().is_dir():
            shown = "/".join(Path(source).expanduser().resolve().parts[-2:])
        while shown in {spec.name for spec in specs}:
            shown = f"{name} ({number + 1})"
        specs.append(ModelSpec(source, shown))
    return specs


def _parse_spec(text: str) -> tuple[str, str]:
    name, equals, source = text.partition("=")
    if equals and name and source and not Path(text).expanduser().exists():
        return source, name
    if text in shipped_models():
        return text, text
    return text, Path(text).expanduser().resolve().name or text


class ModelRanker:
    """Ranks one test set with any number of models; a dual encoder's vectors are made once."""

    def __init__(
        self,
        layout: EmbeddingLayout,
        files: Sequence[Path],
        languages: Sequence[str],
        *,
        first_stage: str | None = None,
        candidates: int | None = None,
        features: Sequence[Path] = (),
        device: str = "cpu",
        quiet: bool = False,
    ) -> None:
        """Take the test set.

        Args:
            layout: Images and captions.
            files: The images.
            languages: Those to rank.
            first_stage: Dual encoder whose candidates cross-encoders re-rank; None for the
                included model.
            candidates: How many; None to score every pair.
            features: Feature stores, for models of features.
            device: Torch's device.
            quiet: Show no progress.
        """
        self.layout, self.files, self.languages = layout, files, languages
        self.first_stage, self.candidates = first_stage, candidates
        self.features, self.device, self.quiet = features, device, quiet
        self._encoded: dict[str, EncodedTestSet] = {}

    def rank(self, spec: ModelSpec) -> ModelRanks:
        """Open a model and rank with it; it is closed afterwards."""
        folder = _folder(spec.source)
        with ExitStack() as stack:
            if folder is not None and _is_cross_encoder(folder):
                return self._rank_cross_encoder(spec, folder)
            encoder = self._open(spec.source, folder, stack)
            return self._rank_encoder(spec, self._encode(encoder))

    def _open(self, source: str, folder: Path | None, stack: ExitStack) -> Encoder:
        """Open a dual encoder; that of a run is exported first."""
        if folder is not None and folder.is_dir() and _is_run(folder):
            from polyglance.export.from_run import export_run

            exported = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
            export_run(folder, exported, name=folder.name)
            encoder = load(exported, device=self.device)
        else:
            encoder = load(folder or source, device=self.device)
        if isinstance(encoder, FeatureEncoder) and encoder.feature_input is not None:
            if not self.features:
                raise _missing_features(source)
            return with_features(encoder, self.features)
        return encoder

    def _encode(self, encoder: Encoder) -> EncodedTestSet:
        key = encoder.fingerprint
        if key not in self._encoded:
            self._encoded[key] = EncodedTestSet(encoder, self.layout, self.files, quiet=self.quiet)
        return self._encoded[key]

    def _rank_encoder(self, spec: ModelSpec, encoded: EncodedTestSet) -> ModelRanks:
        ranks, top = {}, {}
        for code in self.languages:
            texts = encoded.texts(code)
            ranks[code] = ranks_from_embeddings(encoded.images, texts, self.layout.image_ids[code])
            top[code] = _nearest(encoded.images, texts)
        return ModelRanks(spec.name, spec.source, "cosine", ranks, top)

    def _rank_cross_encoder(self, spec: ModelSpec, folder: Path) -> ModelRanks:
        if any(find_spec(package) is None for package in ("torch", "safetensors")):
            raise MissingExtraError("a cross-encoder", "train")
        from polyglance.cross_encoders.model_folder import load_cross_encoder
        from polyglance.evaluation.cross_encoders import score_languages

        loaded = load_cross_encoder(folder, device=self.device)
        encoded, ranks, top = None, {}, {}
        with ExitStack() as stack:
            if self.candidates is not None:
                source = self.first_stage or DEFAULT_MODEL
                encoded = self._encode(self._open(source, _folder(source), stack))
            scored = score_languages(
                loaded, self.layout, self.files, self.languages, encoded,
                candidates=self.candidates or 1,
            )  # fmt: skip
            with progress(f"Scoring with {spec.name}", len(self.languages), quiet=self.quiet) as go:
                for code, scores in scored:
                    ranks[code] = scores.ranks()
                    if scores.table is not None:
                        top[code] = _best(np.asarray(scores.table).T)
                    elif scores.shortlists is not None:
                        lists = scores.shortlists[1]
                        assert lists.scores is not None
                        places = _best(lists.scores)
                        top[code] = np.take_along_axis(lists.candidates, places, axis=1)
                    go(1)
        kind = "all pairs"
        if encoded is not None:
            kind = f"re-ranks the first {self.candidates} of {encoded.encoder.name}"
        in_order = {code: ranks[code] for code in self.languages}
        return ModelRanks(spec.name, spec.source, kind, in_order, top)


def check_models(sources: Sequence[str], features: Sequence[Path] = ()) -> None:
    """Raise an error for models that cannot be compared, before any of them has ranked."""
    for source in sources:
        if takes_features(source) and not features:
            raise _missing_features(source)
        folder = _folder(source)
        if folder is None or _is_cross_encoder(folder) or (folder.is_dir() and _is_run(folder)):
            continue
        detect_format(find_model(folder))


def takes_features(source: str) -> bool:
    """Return whether a model takes stored features in place of pictures."""
    folder = _folder(source)
    if folder is None:
        return False
    if (folder / DESCRIPTION_FILE).is_file():
        return ModelFolder.open(folder).description.features is not None
    return _system(folder / "model") == "mmp"  # of a run


def _missing_features(source: str) -> PolyglanceError:
    return PolyglanceError(
        f"{source} takes features in place of pictures: add --features STORE, with the features of"
        " these pictures"
    )


def _folder(source: str) -> Path | None:
    """Return a model's folder, which a run may have inside; None for an included model."""
    if source in shipped_models():
        return None
    folder = Path(source).expanduser()
    inner = folder / "model"
    return inner if (inner / DESCRIPTION_FILE).is_file() else folder


def _is_cross_encoder(folder: Path) -> bool:
    """Return whether a folder holds a cross-encoder; one that answers questions is an error."""
    if (folder / DESCRIPTION_FILE).is_file():
        return False
    system = _system(folder) or _system(folder / "model")
    if system == "vqa":
        raise PolyglanceError(
            f"{folder} answers questions and ranks no pictures: compare models that search"
        )
    if system is None and not (folder / "config.json").is_file():
        system = _system(folder.parent)  # of a run, if this is one of its stages
    return system is not None and system not in ("mmp", "smalr")


def _system(folder: Path) -> str | None:
    """Return the system that a cross-encoder's ``config.json`` names; None if it names none."""
    try:
        plain = parse_json((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    system = plain.get("system") if isinstance(plain, dict) else None
    return system if isinstance(system, str) else None


def _is_run(folder: Path) -> bool:
    """Return whether a folder is a run of a dual encoder, and no model folder."""
    try:
        detect_format(folder)
    except DataError:
        return any(
            (folder / name).exists() for name in ("recipe.yaml", "report.json", "compact", "words")
        )
    return False


def _nearest(images: Array, texts: Array) -> Integers:
    """Return the images with the highest cosines for each text, ``(texts, k)``."""
    vectors = _unit(images)
    blocks = [
        _best(_unit(texts[start : start + _BLOCK]) @ vectors.T)
        for start in range(0, len(texts), _BLOCK)
    ]
    return np.concatenate(blocks)


def _best(scores: Array) -> Integers:
    """Return the columns with the highest scores of each row, ``(rows, k)``, best first."""
    k = min(NUM_TOP, scores.shape[1])
    some = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    best: Integers = np.take_along_axis(some, order, axis=1).astype(np.int64)
    return best


def _unit(rows: Array) -> Array:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Array = rows / np.where(length > 0, length, 1.0)
    return unit
