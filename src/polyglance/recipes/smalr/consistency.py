"""Evaluate cross-lingual consistency of a word model: CLC-A and CLC-C (SMALR, section 3.4).

A query is asked in all languages, and the scores are combined. Its translations are made by
machine (``translation``), as in the paper, or word by word (``dictionary``), both independent of
the image. As an upper bound, ``dataset`` uses other people's captions of the same image, paired
by position: these are not translations but several descriptions of the right image, which a
user does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.encoders.consistency import SHARED, ConsistencyNetworks
from polyglance.evaluation.retrieval import RetrievalResult, ranks_from_scores, summarise
from polyglance.models.consistency import ConsistencyTraining, LearnedConsistency, average_scores
from polyglance.models.smalr import SMALR
from polyglance.recipes.retrieval_report import retrieval_report, rows_by_language
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.smalr.consistency_choice import (
    choose_consistency,
    consistency_choices,
    describe,
)
from polyglance.recipes.smalr.data import SMALRData
from polyglance.recipes.smalr.evaluation import (
    EncodeCaptions,
    Indices,
    caption_encoder,
    encode_images,
    with_human_average,
)
from polyglance.recipes.smalr.lexicon_captions import remap_words
from polyglance.text.lexicon import PAD_ID

Translate = Callable[[str, str], Indices]
"""For two languages, returns for each word of the lexicon the id of its translation, or 0."""
Queries = Callable[[str], CaptionTable]
"""Returns the queries in a language, as many for each."""


def evaluate_consistency(
    model: SMALR, data: SMALRData, recipe: SMALRRecipe
) -> tuple[dict[str, Any], ConsistencyNetworks]:
    """Evaluate CLC with every source of translations that there is.

    Args:
        model: The trained model.
        data: Validation images train CLC-C, test images are evaluated.
        recipe: The settings.

    Returns:
        The report by source, and the networks of the first one, for search.
    """
    encode = caption_encoder(model)
    texts = replace(data.texts, lexicon=data.lexicon)
    images = {split: encode_images(model, data.visuals[split]) for split in ("validation", "test")}
    vectors = {split: encode(data.captions[split]) for split in ("validation", "test")}
    validation, test = data.captions["validation"], data.captions["test"]
    image_ids = {
        language: (
            validation.record_ids[validation.rows_in_language(language)],
            test.record_ids[rows],
        )
        for language, rows in rows_by_language(test)
    }

    def by_translation(split: str, language: str) -> Tensor:
        assert data.translator is not None
        own, translator = data.captions[split], data.translator

        def queries(other: str) -> CaptionTable:
            if other == language:
                return _own_queries(own, language)
            return translator.queries(data.records[split], language, other, data.lexicon)

        return scores_by_queries(queries, own.language_codes, encode, images[split])

    def by_dictionary(split: str, language: str) -> Tensor:
        assert data.dictionaries is not None
        dictionaries = data.dictionaries
        return scores_by_dictionary(
            data.captions[split],
            language,
            lambda source, target: dictionaries.mapping(texts, source, target),
            encode,
            images[split],
        )

    def by_dataset(split: str, language: str) -> Tensor:
        return scores_by_dataset(data.captions[split], language, vectors[split], images[split])

    sources: dict[str, Callable[[str, str], Tensor]] = {}
    if data.translator is not None:
        sources["translation"] = by_translation
    else:
        sources["dictionary"] = by_dictionary
    sources["dataset"] = by_dataset
    report, trained = {}, []
    for name, scores in sources.items():
        report[name], networks = consistency_recalls(
            lambda language, scores=scores: scores("validation", language),  # type: ignore[misc]
            lambda language, scores=scores: scores("test", language),  # type: ignore[misc]
            image_ids,
            ConsistencyTraining(
                initialisation=recipe.clc_initialisation, iterations=recipe.clc_iterations
            ),
            human_languages=recipe.human_languages,
        )
        trained.append(networks)
    saved = {
        name: module.network()
        for name, module in trained[0].items()
        if (name == SHARED) == (recipe.clc_networks == "shared")
    }
    return report, ConsistencyNetworks(tuple(validation.language_codes), saved)


def scores_by_dictionary(
    captions: CaptionTable,
    language: str,
    translate: Translate,
    encode: EncodeCaptions,
    images: Tensor,
) -> Tensor:
    """Return scores ``(languages, images, captions)`` of captions and word-by-word translations.

    NaN where no word of a caption has a translation.

    Args:
        captions: Captions in all languages.
        language: Language of the queries.
        translate: Translates words.
        encode: Encodes captions.
        images: Vectors of all images, ``(images, width)``.
    """
    own = _own_queries(captions, language)
    return scores_by_queries(
        lambda other: remap_words(own, translate(language, other)),
        captions.language_codes,
        encode,
        images,
    )


def scores_by_queries(
    queries: Queries, languages: tuple[str, ...], encode: EncodeCaptions, images: Tensor
) -> Tensor:
    """Return scores ``(languages, images, captions)`` of the same queries in several languages.

    NaN where a query has no word that the model knows.

    Args:
        queries: Returns the queries in a language.
        languages: Languages in the model's order.
        encode: Encodes captions.
        images: Vectors of all images, ``(images, width)``.
    """
    scores = []
    for language in languages:
        asked = _as_language(queries(language), languages, language)
        scores.append(_scores(images, encode(asked), empty=_is_empty(asked)))
    return torch.stack(scores)


def _own_queries(captions: CaptionTable, language: str) -> CaptionTable:
    words = np.arange(1 + int(captions.token_ids.max()))
    return remap_words(captions, words, [language])


def scores_by_dataset(
    captions: CaptionTable, language: str, vectors: Tensor, images: Tensor
) -> Tensor:
    """Return scores ``(languages, images, captions)`` with other captions of the same image.

    Captions are paired by position; a language with fewer captions of the image repeats some.

    Args:
        captions: Captions in all languages.
        language: Language of the queries.
        vectors: Of all captions, ``(captions, width)``.
        images: Vectors of all images, ``(images, width)``.
    """
    shape = (captions.num_records, len(captions.language_codes))
    size = np.zeros(shape, np.int64)
    np.add.at(size, (captions.record_ids, captions.language_ids), 1)
    start = (np.cumsum(size) - size.ravel()).reshape(shape)
    rows = captions.rows_in_language(language)
    image_ids = captions.record_ids[rows]
    position = rows - start[image_ids, captions.language_codes.index(language)]
    scores = []
    for other in range(len(captions.language_codes)):
        count = size[image_ids, other]
        paired = start[image_ids, other] + position % np.maximum(1, count)
        index = torch.from_numpy(np.minimum(paired, len(captions) - 1)).to(vectors.device)
        scores.append(_scores(images, vectors[index], empty=count == 0))
    return torch.stack(scores)


def consistency_recalls(
    validation_scores: Callable[[str], Tensor],
    test_scores: Callable[[str], Tensor],
    image_ids: Mapping[str, tuple[Indices, Indices]],
    training: ConsistencyTraining | None = None,
    *,
    human_languages: Sequence[str] = (),
) -> tuple[dict[str, Any], dict[str, LearnedConsistency]]:
    """Return recalls by language of CLC-A and of CLC-C in two settings, and the trained networks.

    ``clc-c`` is one network for the queries of each language, ``clc-c-paper`` the paper's single
    one; `choose_consistency` trains both. ``clc-c-search`` and ``clc-c-paper-search`` are the
    same networks as search uses them. ``parameters`` counts all networks of a setting,
    ``training`` says which optimisers were chosen.

    Args:
        validation_scores: Returns a language's scores that CLC-C is trained on.
        test_scores: Returns a language's scores to evaluate.
        image_ids: By language, the images of its validation and its test captions.
        training: Initialisation and iterations; the rest is chosen.
        human_languages: Languages of the column HA.

    Returns:
        The report, with recalls and ranks as of a test split, and the networks by the language
        of the query, `SHARED` for the paper's.
    """
    tables = {
        language: (scores, torch.from_numpy(ids[0]).to(scores.device))
        for language, ids in image_ids.items()
        for scores in [validation_scores(language)]
    }
    paper, more = consistency_choices(training)
    chosen = {code: choose_consistency([table], [*paper, *more]) for code, table in tables.items()}
    chosen[SHARED] = choose_consistency(list(tables.values()), paper)
    del tables
    results: dict[str, dict[str, RetrievalResult]] = {}
    for language, (_, test_ids) in image_ids.items():
        table = test_scores(language)
        combined = {"clc-a": average_scores(table.cpu().numpy())}
        for way, name in (("clc-c", language), ("clc-c-paper", SHARED)):
            combined[way] = _combine(chosen[name].module, table)
            combined[f"{way}-search"] = _combine_linearly(chosen[name].module, table)
        for way, answers in combined.items():
            ranks = ranks_from_scores(answers, test_ids)
            results.setdefault(way, {})[language] = summarise(ranks)
    own = {code: choice for code, choice in chosen.items() if code != SHARED}
    size = _num_parameters(chosen[SHARED].module)
    report = {
        **{
            way: with_human_average(retrieval_report(found), human_languages)
            for way, found in results.items()
        },
        "parameters": {"clc-a": 0, "clc-c": size * len(own), "clc-c-paper": size},
        "training": {
            name: {
                "chosen": describe(choice.training),
                "dead_units": choice.dead_units,
                **choice.recalls,
            }
            for name, choice in chosen.items()
        },
    }
    return report, {name: choice.module for name, choice in chosen.items()}


def _num_parameters(module: LearnedConsistency) -> int:
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def _combine_linearly(module: LearnedConsistency, scores: Tensor) -> NDArray[np.float32]:
    """Combine scores by the network's language weights, as search does."""
    weights = torch.from_numpy(module.network().language_weights()).to(scores)
    filled = torch.where(scores.isnan(), scores.nanmean(0).nan_to_num(), scores)
    combined: NDArray[np.float32] = torch.tensordot(weights, filled, dims=1).cpu().numpy()
    return combined


@torch.no_grad()
def _combine(module: LearnedConsistency, scores: Tensor) -> NDArray[np.float32]:
    """Apply CLC-C to blocks of images: its hidden layer is 32 times as large as the scores."""
    blocks = [module(part).cpu() for part in torch.split(scores, 128, dim=1)]
    return torch.cat(blocks).numpy()


def _scores(images: Tensor, sentences: Tensor, *, empty: NDArray[np.bool_]) -> Tensor:
    scores = images @ sentences.T
    scores[:, torch.from_numpy(np.flatnonzero(empty)).to(scores.device)] = torch.nan
    return scores


def _is_empty(captions: CaptionTable) -> NDArray[np.bool_]:
    first = captions.token_ids[captions.offsets[:-1]]
    is_empty: NDArray[np.bool_] = (np.diff(captions.offsets) == 1) & (first == PAD_ID)
    return is_empty


def _as_language(captions: CaptionTable, codes: tuple[str, ...], language: str) -> CaptionTable:
    """Return the same captions, marked as a language."""
    return replace(
        captions,
        language_ids=np.full(len(captions), codes.index(language), np.int64),
        language_codes=codes,
    )
