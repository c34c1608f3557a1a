"""Evaluate a trained cross-encoder on any manifest: all pairs, or a dual encoder's candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from polyglance.cross_encoders.model_folder import LoadedCrossEncoder
from polyglance.cross_encoders.regions import (
    encode_regions,
    encode_regions_tta,
    tta_image_vectors,
)
from polyglance.data.captions import CaptionTable
from polyglance.encoders import Encoder
from polyglance.encoders.protocol import picture_models_of
from polyglance.errors import PolyglanceError
from polyglance.evaluation.embeddings import (
    EmbeddingLayout,
    default_split_name,
    read_layout,
    select_languages,
)
from polyglance.evaluation.encoders import EncodedTestSet, image_paths
from polyglance.evaluation.pair_scores import PairScores, pair_scores, read_candidates
from polyglance.evaluation.results import Evaluation, provenance
from polyglance.evaluation.retrieval import (
    RECALL_AT,
    Array,
    Integers,
    Ranks,
    Shortlists,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)


@dataclass(frozen=True, eq=False)
class LanguageScores:
    """A cross-encoder's scores in one language: of all pairs, or of candidates."""

    image_ids: Integers
    """Number of each caption's image."""
    table: Array | None = None
    """``(images, captions)``, where every pair was scored."""
    shortlists: tuple[Shortlists, Shortlists] | None = None
    """Captions for each image and images for each caption, where candidates were re-ranked."""

    def ranks(self) -> Ranks:
        """Rank the right answer of each query."""
        if self.table is not None:
            return ranks_from_scores(self.table, self.image_ids)
        assert self.shortlists is not None
        return ranks_from_shortlists(*self.shortlists, self.image_ids)


def evaluate_cross_encoder(
    loaded: LoadedCrossEncoder,
    manifest: str | Path,
    *,
    encoder: Encoder | None = None,
    candidates: int = 50,
    pictures: str | Path | None = None,
    split: str | None = None,
    languages: Collection[str] | None = None,
    human: Collection[str] = (),
    model: str = "cross-encoder",
    split_name: str | None = None,
    ks: Sequence[int] = RECALL_AT,
    human_only: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Evaluate retrieval with a cross-encoder.

    Languages that the model has no embedding of are encoded without one. Arguments that are
    not listed are those of `polyglance.evaluation.encoders.evaluate_encoder`.

    Args:
        loaded: the cross-encoder.
        manifest: captioned images.
        encoder: a dual encoder; None to score every pair.
        candidates: how many of its best candidates are re-ranked, as
            `polyglance.search.reranking` does, with test-time augmentation.

    Returns:
        Recalls by language.
    """
    manifest = Path(manifest)
    layout = read_layout(manifest, split, human_only=human_only)
    wanted, people = select_languages(layout, manifest, languages, human)
    files = image_paths(layout, manifest, pictures)
    first_stage = None if encoder is None else EncodedTestSet(encoder, layout, files, quiet=quiet)
    scored = score_languages(loaded, layout, files, wanted, first_stage, candidates=candidates)
    return Evaluation(
        model=model,
        split=split_name or default_split_name(manifest, split),
        languages={code: summarise(scores.ranks(), ks) for code, scores in scored},
        human=tuple(people),
        similarity="all pairs" if encoder is None else "re-ranked candidates",
        **provenance(),
    )


def score_languages(
    loaded: LoadedCrossEncoder,
    layout: EmbeddingLayout,
    files: Sequence[Path],
    languages: Sequence[str],
    first_stage: EncodedTestSet | None = None,
    *,
    candidates: int = 50,
) -> Iterator[tuple[str, LanguageScores]]:
    """Yield a cross-encoder's scores, one language after the other.

    Args:
        loaded: the cross-encoder.
        layout: images and captions.
        files: the images.
        languages: those to score.
        first_stage: vectors of a dual encoder; None to score every pair.
        candidates: how many of its best candidates are re-ranked.

    Yields:
        A language, and the scores of its captions in the order of ``layout``.
    """
    config = loaded.config
    captions = CaptionTable.build(
        layout.records, loaded.tokenizer, languages=languages, max_tokens=config.max_text_tokens
    )
    if len(captions) != sum(len(layout.captions[language]) for language in languages):
        raise PolyglanceError("the cross-encoder's tokenizer has no token for some captions")
    encode = encode_regions if first_stage is None else encode_regions_tta
    regions = encode(files, loaded.backbone, loaded.image_backbone)
    embedded = loaded.model.embedded_languages

    @cache
    def pairs_of(*, with_language: bool) -> PairScores:
        # Rows of languages without an embedding are never used.
        ids = [embedded.index(code) if code in embedded else 0 for code in languages]
        language_ids = np.array(ids, np.int64) if with_language else None
        return pair_scores(
            loaded.model, regions, captions, language_ids=language_ids, views=regions.views
        )

    tta_vectors, heads = None, loaded.projection_heads
    models: frozenset[str] = (
        frozenset() if first_stage is None else picture_models_of(first_stage.encoder)
    )
    if heads is not None and heads.config.model in models:
        tta_vectors = tta_image_vectors(heads, files, loaded.backbone, loaded.image_backbone)
    for language in captions.language_codes:
        rows = captions.rows_in_language(language)
        if not len(rows):
            continue
        images, pairs = captions.record_ids[rows], pairs_of(with_language=language in embedded)
        if first_stage is None:
            yield language, LanguageScores(images, table=pairs.table(rows))
            continue
        texts = first_stage.texts(language)
        tta = None if tta_vectors is None else tta_vectors @ texts.T
        lists = read_candidates(first_stage.images @ texts.T, pairs, rows, candidates, tta=tta)
        shortlists = lists.reranked(config.dual_weight or 0.0)
        yield language, LanguageScores(images, shortlists=shortlists)
