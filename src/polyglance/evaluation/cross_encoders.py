"""Evaluate a trained cross-encoder on any manifest: all pairs, or a dual encoder's candidates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from polyglance.errors import PolyglanceError
from polyglance.evaluation.embeddings import default_split_name, read_layout, select_languages
from polyglance.evaluation.encoders import encode_captions, encode_images, image_paths
from polyglance.evaluation.pair_scores import PairScores, pair_scores, read_candidates
from polyglance.evaluation.results import Evaluation, provenance
from polyglance.evaluation.retrieval import (
    RECALL_AT,
    Integers,
    Ranks,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)


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
    files, config = image_paths(layout, manifest, pictures), loaded.config
    captions = CaptionTable.build(
        layout.records, loaded.tokenizer, languages=wanted, max_tokens=config.max_text_tokens
    )
    if len(captions) != sum(len(layout.captions[language]) for language in wanted):
        raise PolyglanceError(f"{manifest}: the tokenizer has no token for some captions")
    encode = encode_regions if encoder is None else encode_regions_tta
    regions = encode(files, loaded.backbone, loaded.image_backbone)
    embedded = loaded.model.embedded_languages

    @cache
    def scores(*, with_language: bool) -> PairScores:
        # Rows of languages without an embedding are never used.
        ids = [embedded.index(code) if code in embedded else 0 for code in wanted]
        language_ids = np.array(ids, np.int64) if with_language else None
        return pair_scores(
            loaded.model, regions, captions, language_ids=language_ids, views=regions.views
        )

    if encoder is not None:
        vectors, tta_vectors = encode_images(encoder, files, quiet=quiet), None
        heads = loaded.projection_heads
        if heads is not None and heads.config.model == encoder.fingerprint:
            tta_vectors = tta_image_vectors(heads, files, loaded.backbone, loaded.image_backbone)

    def rank(language: str, rows: Integers) -> Ranks:
        images = captions.record_ids[rows]
        pairs = scores(with_language=language in embedded)
        if encoder is None:
            return ranks_from_scores(pairs.table(rows), images)
        texts = encode_captions(encoder, layout, language, quiet=quiet)
        tta = None if tta_vectors is None else tta_vectors @ texts.T
        shortlists = read_candidates(vectors @ texts.T, pairs, rows, candidates, tta=tta)
        return ranks_from_shortlists(*shortlists.reranked(config.dual_weight or 0.0), images)

    by_language = ((code, captions.rows_in_language(code)) for code in captions.language_codes)
    return Evaluation(
        model=model,
        split=split_name or default_split_name(manifest, split),
        languages={
            code: summarise(rank(code, rows), ks) for code, rows in by_language if len(rows)
        },
        human=tuple(people),
        similarity="all pairs" if encoder is None else "re-ranked candidates",
        **provenance(),
    )
