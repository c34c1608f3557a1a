"""How well M3P or UC2 finds pictures and captions: reading all pairs, or some candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError
from polyglance.evaluation.pair_scores import PairScores, Precision, read_candidates
from polyglance.evaluation.retrieval import (
    Array,
    Integers,
    RetrievalResult,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.m3p import M3P
from polyglance.models.meeting import MeetingConfig, read_meeting
from polyglance.models.uc2 import UC2
from polyglance.recipes.common import not_there
from polyglance.recipes.measuring import by_language, checkpoint_score, figures
from polyglance.recipes.pairs.meeting_vectors import closer_vectors
from polyglance.recipes.pairs.region_splits import Eyes, Split, SplitReader, open_eyes
from polyglance.training.region_table import RegionTable

_TRUSTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True)
class Reranking:
    """A dual encoder's candidates, read again."""

    dual: str
    """A folder of its embeddings of the test, inside the data folder: ``pictures.npy`` and a file
    a language, as `polyglance evaluate` takes them."""
    validation: str | None = None
    """The same of the validation: there it is found out how far to trust the dual encoder."""
    candidates: int = 50
    """How many are read."""
    trust: float = 0.0
    """What its own score counts beside, where validation does not say: see
    `polyglance.evaluation.pair_scores.Candidates.trusting`."""
    meeting: str | None = None
    """Where the towers of the dual encoder meet, a folder such as `polyglance weights unpack`
    writes beside the eyes; like those not inside the data folder. With it candidates are also
    looked at more closely, in every size that the eyes have, and compared with the dual encoder's
    vector of the caption; None for not."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "candidates")

    def missing(self, data: Path) -> list[str]:
        """Say it of embeddings that are not there."""
        folders = [data / folder for folder in (self.dual, self.validation) if folder is not None]
        return not_there(
            [folder for folder in folders if not folder.is_dir()],
            "there are no embeddings of the dual encoder; make them by"
            " benchmarks/dual_embeddings.py, or set reranking to null",
        )

    def check_folders(self, data: Path, eyes: Eyes | None) -> None:
        """Refuse before training what could not be measured after it."""
        if self.meeting is not None and eyes is not None:
            opened = open_eyes(eyes)
            config = read_meeting(self.meeting).config
            config.check_fits(opened.width, opened.fingerprint)
            for folder in (self.dual, self.validation):
                if folder is not None and (data / folder).is_dir():
                    _check_same_model(data / folder, config, self.meeting)


def _check_same_model(folder: Path, config: MeetingConfig, meeting: str) -> None:
    """Refuse embeddings of another dual encoder than that whose towers meet."""
    width = _vectors(folder / "pictures.npy", 1).shape[1]
    told = folder / "model.txt"
    made_by = told.read_text(encoding="utf-8").strip() if told.is_file() else config.model
    if width != config.width or made_by != config.model:
        raise DataError(
            f"{folder}: these are embeddings of another dual encoder than {meeting} was taken"
            " from; make them again by benchmarks/dual_embeddings.py"
        )


def report_test(
    model: M3P | UC2,
    test: Split,
    validation: Split | None,
    data: Path,
    *,
    all_pairs: bool,
    reranking: Reranking | None,
    reader: SplitReader,
) -> dict[str, Any]:
    """What a run reports of its test, with as much trust in a dual encoder as validation says."""
    if reranking is None:
        return {"test": measure(model, test, all_pairs=all_pairs)}
    report: dict[str, Any] = {}
    trust, k = reranking.trust, reranking.candidates
    if reranking.validation is not None and validation is not None:
        dual = DualScores.read(data / reranking.validation, validation, reranking, reader)
        report["validation"] = trusted(model, validation, dual, k)
        trust = report["validation"]["trust"]
    dual = DualScores.read(data / reranking.dual, test, reranking, reader)
    report["test"] = measure(model, test, all_pairs=all_pairs, dual=dual, k=k, trust=trust)
    return report


@dataclass(frozen=True, eq=False)
class DualScores:
    """Cosines of a dual encoder, pictures x captions, by language."""

    cosines: Mapping[str, Array]
    closer: Mapping[str, Array] | None
    """Of pictures that were looked at more closely."""

    @classmethod
    def read(
        cls, folder: Path, split: Split, settings: Reranking, reader: SplitReader
    ) -> DualScores:
        """From embeddings, and from a closer look if there is one."""
        pictures = _vectors(folder / "pictures.npy", len(split.records))
        texts = {
            language: _vectors(folder / f"{language}.npy", len(rows))
            for language, rows in by_language(split.captions)
        }
        closer = None
        if settings.meeting is not None:
            meeting = read_meeting(settings.meeting).to(reader.device)
            eyes, looks = reader.opened_eyes, reader.eyes
            assert looks is not None
            seen = closer_vectors(meeting, split.files, eyes, looks)
            closer = {language: seen @ vectors.T for language, vectors in texts.items()}
        cosines = {language: pictures @ vectors.T for language, vectors in texts.items()}
        return cls(cosines, closer)

    def closer_of(self, language: str) -> Array | None:
        """Those of a closer look, if there was one."""
        return None if self.closer is None else self.closer[language]


def measure(
    model: M3P | UC2,
    split: Split,
    *,
    all_pairs: bool = True,
    dual: DualScores | None = None,
    k: int = 50,
    trust: float = 0.0,
) -> dict[str, Any]:
    """Figures of all pairs, and of a dual encoder before and after its candidates are read.

    Where it has looked more closely, also of its candidates sorted by that alone.
    """
    model.eval()
    found: dict[str, Any] = {}
    if all_pairs:
        found["all_pairs"] = figures(_by_all_pairs(_scores(model, split), split.captions))
    if dual is not None:
        scores = _scores(model, split, views=split.regions.views)
        before, closer, after = {}, {}, {}
        for language, rows in by_language(split.captions):
            owners, cosines = split.captions.owners[rows], dual.cosines[language]
            before[language] = summarise(ranks_from_scores(cosines, owners))
            read = read_candidates(cosines, scores, rows, k, closer=dual.closer_of(language))
            closer[language] = summarise(ranks_from_shortlists(*read.by_dual(), owners))
            after[language] = summarise(ranks_from_shortlists(*read.trusting(trust), owners))
        found["dual"] = figures(before)
        if dual.closer is not None:
            found["closer"] = figures(closer)
        found["reranked"] = figures(after)
    return found


def trusted(model: M3P | UC2, split: Split, dual: DualScores, k: int = 50) -> dict[str, Any]:
    """How far to trust the dual encoder beside the model, by mR on these pictures."""
    model.eval()
    scores = _scores(model, split, views=split.regions.views)
    recalls: dict[float, list[float]] = {trust: [] for trust in _TRUSTS}
    before = []
    for language, rows in by_language(split.captions):
        owners, table = split.captions.owners[rows], dual.cosines[language]
        before.append(float(summarise(ranks_from_scores(table, owners)).mean_recall))
        read = read_candidates(table, scores, rows, k, closer=dual.closer_of(language))
        for trust, found in recalls.items():
            ranks = ranks_from_shortlists(*read.trusting(trust), owners)
            found.append(float(summarise(ranks).mean_recall))
    means = {trust: float(np.mean(found)) for trust, found in recalls.items()}
    return {
        "dual": float(np.mean(before)),
        "by_trust": {str(trust): round(mean, 2) for trust, mean in means.items()},
        "trust": max(means, key=means.__getitem__),
    }


def validate(model: M3P | UC2, split: Split, languages: Iterable[str]) -> dict[str, float]:
    """mR among all pictures by one caption a language, and their mean, which chooses."""
    scores, chosen = _scores(model, split), set(languages)
    results = {}
    for language, rows in by_language(split.captions):
        owners, first = np.unique(split.captions.owners[rows], return_index=True)
        if language in chosen:
            results[language] = summarise(ranks_from_scores(scores.table(rows[first]), owners))
    return checkpoint_score(results)


def language_numbers(model: M3P | UC2, captions: CaptionTable) -> Integers | None:
    """How a model counts the languages of captions; UC2 is told none."""
    return model.config.language_numbers(captions.names) if isinstance(model, M3P) else None


def _scores(model: M3P | UC2, split: Split, *, views: int = 1) -> PairScores:
    numbers = language_numbers(model, split.captions)
    return pair_scores(model, split.regions, split.captions, languages=numbers, views=views)


def pair_scores(
    model: M3P | UC2,
    regions: RegionTable,
    captions: CaptionTable,
    *,
    languages: Integers | None,
    views: int = 1,
) -> PairScores:
    """The model before pictures and captions, in the precision that its device reads fastest."""
    cuda = next(model.parameters()).is_cuda  # where flash attention takes no other
    precision: Precision = "float16" if cuda else "float32"
    return PairScores(
        model, regions, captions, languages=languages, precision=precision, views=views
    )


def _by_all_pairs(scores: PairScores, captions: CaptionTable) -> dict[str, RetrievalResult]:
    return {
        language: summarise(ranks_from_scores(scores.table(rows), captions.owners[rows]))
        for language, rows in by_language(captions)
    }


def _vectors(path: Path, rows: int) -> Array:
    """The first so many of a dual encoder's embeddings, of unit length."""
    try:
        vectors = np.load(path, allow_pickle=False).astype(np.float32)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no embeddings of the dual encoder ({error})") from error
    if vectors.ndim != 2 or len(vectors) < rows:
        raise DataError(f"{path}: expected {rows} vectors, found shape {vectors.shape}")
    lengths = np.linalg.norm(vectors[:rows], axis=1, keepdims=True)
    return np.asarray(vectors[:rows] / lengths)
