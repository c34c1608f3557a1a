"""Cross-lingual consistency of a word model, measured: CLC-A and CLC-C (SMALR, section 3.4).

A query is asked in all languages, and the answers decide together. What it is in
the other languages comes either from a ``dictionary``, word by word and
without looking at the picture, or from the ``dataset``: what other people wrote of
the same picture, caption by caption. The latter is how the paper measures on
captions that people translated; where captions were written independently it asks
with more descriptions of the picture than a user would give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import mean_over_languages, ranks_from_scores, summarise
from polyglance.models.consistency import LearnedConsistency, average_scores, learn_consistency
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.word_measuring import Encode, Indices
from polyglance.recipes.word_texts import renumbered
from polyglance.text.lexicon import PAD

_LEARNING = ((1e-2, 10), (1e-2, 300), (1e-3, 300))
"""Learning rates and numbers of constraints that CLC-C is learned with."""

Translate = Callable[[str, str], Indices]
"""For two languages, from each word of the lexicon to its translation or 0."""


def asked_word_by_word(
    captions: CaptionTable, language: str, translate: Translate, encode: Encode, pictures: Tensor
) -> Tensor:
    """Scores ``(languages, pictures, captions)`` of a language's captions and their translations.

    NaN where no word of a caption has a translation.
    """
    own = renumbered(captions, np.arange(1 + int(captions.ids.max())), [language])
    scores = []
    for other in captions.names:
        asked = renumbered(own, translate(language, other))
        asked = _as_language(asked, captions.names, other)
        scores.append(_scores(pictures, encode(asked), empty=_is_empty(asked)))
    return torch.stack(scores)


def asked_by_others(
    captions: CaptionTable, language: str, vectors: Tensor, pictures: Tensor
) -> Tensor:
    """The same with the captions of the same picture in other languages, paired by position.

    A language with fewer captions of the picture says some of them again.
    ``vectors`` are those of all captions.
    """
    shape = (captions.records, len(captions.names))
    size = np.zeros(shape, np.int64)
    np.add.at(size, (captions.owners, captions.languages), 1)
    start = (np.cumsum(size) - size.ravel()).reshape(shape)
    rows = captions.of_language(language)
    owners = captions.owners[rows]
    position = rows - start[owners, captions.names.index(language)]
    scores = []
    for other in range(len(captions.names)):
        there = size[owners, other]
        paired = start[owners, other] + position % np.maximum(1, there)
        found = vectors[torch.from_numpy(np.minimum(paired, len(captions) - 1)).to(vectors.device)]
        scores.append(_scores(pictures, found, empty=there == 0))
    return torch.stack(scores)


def consistency_figures(
    learned_from: Callable[[str], Tensor],
    measured: Callable[[str], Tensor],
    owners: Mapping[str, tuple[Indices, Indices]],
) -> dict[str, Any]:
    """mR by language of CLC-A and CLC-C; the latter learns from validation scores.

    Both functions give a language's scores; ``owners`` the pictures of its validation
    and test captions. There is one CLC-C for the queries of each language.
    """
    average: dict[str, float] = {}
    learned: dict[str, float] = {}
    parameters = 0
    for language, (of_validation, of_test) in owners.items():
        module = best_consistency(learned_from(language), of_validation)
        parameters = sum(p.numel() for p in module.parameters())
        scores = measured(language)
        average[language] = _mean_recall(average_scores(scores.cpu().numpy()), of_test)
        learned[language] = _mean_recall(_combined(module, scores), of_test)
    return {
        "clc-a": {**average, "average": mean_over_languages(average)},
        "clc-c": {**learned, "average": mean_over_languages(learned)},
        "parameters": parameters,
    }


def best_consistency(scores: Tensor, owners: Indices) -> LearnedConsistency:
    """CLC-C as it does best on what it learns from, of several ways to learn.

    The paper learns from the ten most violated constraints of each pair. A batch has
    a few hundred candidates; here there are thousands, and the ten worst of them lie
    nearer than most right ones: then it pays to make all scores the same. So more
    constraints are tried as well, and to stay with the average.
    """
    modules = [
        learn_consistency(scores, owners, iterations=0),
        *(
            learn_consistency(
                scores, owners, learning_rate=rate, rule=TripletRule(negatives=negatives)
            )
            for rate, negatives in _LEARNING
        ),
    ]
    return max(modules, key=lambda module: _mean_recall(_combined(module, scores), owners))


@torch.no_grad()
def _combined(module: LearnedConsistency, scores: Tensor) -> NDArray[np.float32]:
    """CLC-C over all pictures, some at a time: its hidden layer is 32 times the scores."""
    blocks = [module(part).cpu() for part in torch.split(scores, 128, dim=1)]
    return torch.cat(blocks).numpy()


def _mean_recall(scores: NDArray[Any], owners: Indices) -> float:
    return float(summarise(ranks_from_scores(scores, owners)).mean_recall)


def _scores(pictures: Tensor, sentences: Tensor, *, empty: NDArray[np.bool_]) -> Tensor:
    scores = pictures @ sentences.T
    scores[:, torch.from_numpy(np.flatnonzero(empty)).to(scores.device)] = torch.nan
    return scores


def _is_empty(captions: CaptionTable) -> NDArray[np.bool_]:
    first = captions.ids[captions.offsets[:-1]]
    is_empty: NDArray[np.bool_] = (np.diff(captions.offsets) == 1) & (first == PAD)
    return is_empty


def _as_language(captions: CaptionTable, names: tuple[str, ...], language: str) -> CaptionTable:
    """The same captions, said to be in a language."""
    number = np.full(len(captions), names.index(language), np.int64)
    return CaptionTable(
        captions.ids, captions.offsets, captions.owners, number, names, captions.records
    )
