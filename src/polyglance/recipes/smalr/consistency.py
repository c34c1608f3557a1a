"""Evaluate cross-lingual consistency of a word model: CLC-A and CLC-C (SMALR, section 3.4).

A query is asked in all languages, and the scores are combined. Its translations come from a
``dictionary``, word by word and independent of the image, where the paper uses machine
translation. As an upper bound, ``dataset`` uses other people's captions of the same image,
paired by position: these are not translations but several descriptions of the right image,
which a user does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import mean_over_languages, ranks_from_scores, summarise
from polyglance.models.consistency import (
    LearnedConsistency,
    average_scores,
    learn_consistency,
    ranking_loss,
)
from polyglance.models.smalr import SMALR
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule
from polyglance.recipes.retrieval_report import rows_by_language
from polyglance.recipes.smalr.data import SMALRData
from polyglance.recipes.smalr.evaluation import (
    EncodeCaptions,
    Indices,
    caption_encoder,
    encode_images,
)
from polyglance.recipes.smalr.lexicon_captions import remap_words
from polyglance.text.lexicon import PAD_ID

_LEARNING = ((1e-2, 10), (1e-2, 300), (1e-3, 300))
"""Learning rates and numbers of constraints to try for CLC-C."""

Translate = Callable[[str, str], Indices]
"""For two languages, returns for each word of the lexicon the id of its translation, or 0."""


def evaluate_consistency(model: SMALR, data: SMALRData) -> dict[str, Any]:
    """Return CLC results with word-by-word translations and with other captions of the image."""
    assert data.dictionaries is not None
    dictionaries, encode = data.dictionaries, caption_encoder(model)
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

    def translate(source: str, target: str) -> Indices:
        return dictionaries.mapping(texts, source, target)

    def by_dictionary(split: str, language: str) -> Tensor:
        captions = data.captions[split]
        return scores_by_dictionary(captions, language, translate, encode, images[split])

    def by_dataset(split: str, language: str) -> Tensor:
        return scores_by_dataset(data.captions[split], language, vectors[split], images[split])

    return {
        name: consistency_recalls(
            lambda language, scores=scores: scores("validation", language),  # type: ignore[misc]
            lambda language, scores=scores: scores("test", language),  # type: ignore[misc]
            image_ids,
        )
        for name, scores in (("dictionary", by_dictionary), ("dataset", by_dataset))
    }


def scores_by_dictionary(
    captions: CaptionTable,
    language: str,
    translate: Translate,
    encode: EncodeCaptions,
    images: Tensor,
) -> Tensor:
    """Return scores ``(languages, images, captions)`` of captions and their translations.

    NaN where no word of a caption has a translation.

    Args:
        captions: Captions in all languages.
        language: Language of the queries.
        translate: Translates words.
        encode: Encodes captions.
        images: Vectors of all images, ``(images, width)``.
    """
    words = np.arange(1 + int(captions.token_ids.max()))
    own = remap_words(captions, words, [language])
    scores = []
    for other in captions.language_codes:
        queries = remap_words(own, translate(language, other))
        queries = _as_language(queries, captions.language_codes, other)
        scores.append(_scores(images, encode(queries), empty=_is_empty(queries)))
    return torch.stack(scores)


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
) -> dict[str, Any]:
    """Return mR by language of CLC-A and of CLC-C in two settings.

    ``clc-c`` is one network for the queries of each language, selected by `best_consistency`,
    ``clc-c-paper`` the paper's single network. ``parameters`` counts all networks of a setting.

    Args:
        validation_scores: Returns a language's scores that CLC-C is trained on.
        test_scores: Returns a language's scores to evaluate.
        image_ids: By language, the images of its validation and its test captions.
    """
    scores = {language: validation_scores(language) for language in image_ids}
    targets = {language: ids[0] for language, ids in image_ids.items()}
    own = {code: best_consistency(table, targets[code]) for code, table in scores.items()}
    shared = shared_consistency(scores, targets)
    del scores
    recalls: dict[str, dict[str, float]] = {"clc-a": {}, "clc-c": {}, "clc-c-paper": {}}
    for language, (_, test_ids) in image_ids.items():
        table = test_scores(language)
        combined = {
            "clc-a": average_scores(table.cpu().numpy()),
            "clc-c": _combine(own[language], table),
            "clc-c-paper": _combine(shared, table),
        }
        for method, answers in combined.items():
            recalls[method][language] = _mean_recall(answers, test_ids)
    return {
        **{method: {**by, "average": mean_over_languages(by)} for method, by in recalls.items()},
        "parameters": {
            "clc-a": 0,
            "clc-c": sum(map(_num_parameters, own.values())),
            "clc-c-paper": _num_parameters(shared),
        },
    }


def shared_consistency(
    scores: Mapping[str, Tensor],
    image_ids: Mapping[str, Indices],
    *,
    iterations: int = 30,
    learning_rate: float = 1e-2,
) -> LearnedConsistency:
    """Train CLC-C as in the paper: one network for the queries of all languages.

    It learns for 30 iterations from the ten most violated constraints of all pairs at once.
    Candidates are captions of one language, as at test time.

    Args:
        scores: By language, ``(languages, images, captions)``.
        image_ids: By language, the images of its captions.
        iterations: Optimiser steps.
        learning_rate: Of Adam.
    """
    present = {code: ~table.isnan().all(0).all(0) for code, table in scores.items()}
    first = next(iter(scores.values()))
    module = LearnedConsistency(len(first)).to(first.device)
    optimiser = torch.optim.Adam(module.parameters(), lr=learning_rate)
    for _ in range(iterations):
        optimiser.zero_grad()
        for language, table in scores.items():  # one at a time: each fills the memory
            targets = torch.from_numpy(image_ids[language]).to(table.device)[present[language]]
            combined = module(table[..., present[language]])
            loss = ranking_loss(combined, targets, PAPER_RULE) / len(scores)
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return module.eval()


def best_consistency(scores: Tensor, image_ids: Indices) -> LearnedConsistency:
    """Train CLC-C in several ways and return the best on the scores that it learned from.

    The paper learns from the ten most violated constraints of each pair, among the few hundred
    candidates of a batch. Here there are thousands, and the ten hardest score higher than most
    right ones, so that equal scores everywhere have the smallest loss. Therefore more
    constraints are tried as well, and the plain average.

    Args:
        scores: ``(languages, images, captions)``.
        image_ids: Image of each caption.
    """
    modules = [
        learn_consistency(scores, image_ids, iterations=0),
        *(
            learn_consistency(
                scores, image_ids, learning_rate=rate, rule=TripletRule(negatives=negatives)
            )
            for rate, negatives in _LEARNING
        ),
    ]
    return max(modules, key=lambda module: _mean_recall(_combine(module, scores), image_ids))


def _num_parameters(module: LearnedConsistency) -> int:
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def _combine(module: LearnedConsistency, scores: Tensor) -> NDArray[np.float32]:
    """Apply CLC-C to blocks of images: its hidden layer is 32 times as large as the scores."""
    blocks = [module(part).cpu() for part in torch.split(scores, 128, dim=1)]
    return torch.cat(blocks).numpy()


def _mean_recall(scores: NDArray[Any], image_ids: Indices) -> float:
    return float(summarise(ranks_from_scores(scores, image_ids)).mean_recall)


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
