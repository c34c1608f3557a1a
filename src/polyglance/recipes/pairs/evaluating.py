"""Measuring a trained UC2 or M3P on any manifest: every pair read, or what an encoder found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.embeddings import chosen_languages, read_layout, split_title
from polyglance.evaluation.encoders import encoded_captions, encoded_pictures, picture_files
from polyglance.evaluation.pair_scores import PairScores, read_candidates
from polyglance.evaluation.results import Evaluation, stamp
from polyglance.evaluation.retrieval import (
    RECALL_AT,
    Integers,
    Ranks,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.recipes.measuring import by_language
from polyglance.recipes.pairs.folder import PairModel
from polyglance.recipes.pairs.measuring import pair_scores
from polyglance.recipes.pairs.meeting_vectors import closer_vectors
from polyglance.recipes.pairs.region_splits import look_again, look_at


def evaluate_reader(
    reader: PairModel,
    manifest: str | Path,
    *,
    encoder: Encoder | None = None,
    candidates: int = 50,
    pictures: str | Path | None = None,
    split: str | None = None,
    languages: Collection[str] | None = None,
    human: Collection[str] = (),
    model: str = "reader",
    split_name: str | None = None,
    ks: Sequence[int] = RECALL_AT,
    people_only: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Measure retrieval by a model that reads captions beside pictures.

    It reads every pair; with an ``encoder`` only the best ``candidates`` of that, which are
    then sorted as `polyglance.search.reranking` sorts hits, but read in every look. The rest
    is as of `polyglance.evaluation.encoders.evaluate_encoder`. A language that M3P has no
    embedding of is read without.
    """
    manifest = Path(manifest)
    layout = read_layout(manifest, split, people_only=people_only)
    wanted, people = chosen_languages(layout, manifest, languages, human)
    files, told = picture_files(layout, manifest, pictures), reader.told
    captions = CaptionTable.build(
        layout.pictures, reader.tokenizer, languages=wanted, longest=told.longest_text
    )
    if len(captions) != sum(len(layout.captions[language]) for language in wanted):
        raise PolyglanceError(f"{manifest}: the model knows no word of some captions")
    look = look_at if encoder is None else look_again
    regions = look(files, reader.eyes, told.eyes)

    @cache
    def scores(*, told_language: bool) -> PairScores:
        numbers = _numbers(reader.model, wanted) if told_language else None
        return pair_scores(reader.model, regions, captions, languages=numbers, views=regions.views)

    if encoder is not None:
        seen, closer = encoded_pictures(encoder, files, quiet=quiet), None
        meeting = reader.meeting
        if meeting is not None and meeting.config.model == encoder.fingerprint:
            closer = closer_vectors(meeting, files, reader.eyes, told.eyes)

    def ranked(language: str, rows: Integers) -> Ranks:
        owners, model = captions.owners[rows], reader.model
        known = isinstance(model, M3P) and language in model.config.languages
        pairs = scores(told_language=known)
        if encoder is None:
            return ranks_from_scores(pairs.table(rows), owners)
        said = encoded_captions(encoder, layout, language, quiet=quiet)
        near = None if closer is None else closer @ said.T
        read = read_candidates(seen @ said.T, pairs, rows, candidates, closer=near)
        return ranks_from_shortlists(*read.trusting(told.trust), owners)

    return Evaluation(
        model=model,
        split=split_name or split_title(manifest, split),
        languages={
            language: summarise(ranked(language, rows), ks)
            for language, rows in by_language(captions)
        },
        human=tuple(people),
        similarity="pairs read" if encoder is None else "candidates read",
        **stamp(),
    )


def _numbers(model: M3P | UC2, languages: Sequence[str]) -> Integers:
    """How M3P counts languages; one that it does not know has any number, and is not told."""
    known = model.config.languages if isinstance(model, M3P) else ()
    return np.array([known.index(code) if code in known else 0 for code in languages], np.int64)
