"""Cross-lingual consistency of a word model, measured: CLC-A and CLC-C (SMALR, section 3.4).

A query is asked in all languages, and the answers decide together. What it is in
the other languages comes from a ``dictionary``, word by word and without looking at
the picture, where the paper has machine translations of the query. Beside it stands
an upper bound, the ``dataset``: what other people wrote of the same picture, caption
by caption. That is no translation, since it asks with several descriptions of the
right picture, which a user does not have.
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
from polyglance.models.consistency import (
    LearnedConsistency,
    average_scores,
    learn_consistency,
    ranking_loss,
)
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule
from polyglance.recipes.measuring import Encode, Indices
from polyglance.recipes.smalr.texts import renumbered
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
    """mR by language of CLC-A and of CLC-C in two settings, which learn from validation scores.

    Both functions give a language's scores; ``owners`` the pictures of its validation
    and test captions. ``clc-c`` is one network for the queries of each language, as
    `best_consistency` finds it, ``clc-c-paper`` the paper's one for all.
    ``parameters`` are those of all networks of a setting.
    """
    known = {language: learned_from(language) for language in owners}
    of_validation = {language: both[0] for language, both in owners.items()}
    own = {code: best_consistency(scores, of_validation[code]) for code, scores in known.items()}
    shared = shared_consistency(known, of_validation)
    del known
    found: dict[str, dict[str, float]] = {"clc-a": {}, "clc-c": {}, "clc-c-paper": {}}
    for language, (_, of_test) in owners.items():
        scores = measured(language)
        together = {
            "clc-a": average_scores(scores.cpu().numpy()),
            "clc-c": _combined(own[language], scores),
            "clc-c-paper": _combined(shared, scores),
        }
        for way, answers in together.items():
            found[way][language] = _mean_recall(answers, of_test)
    return {
        **{way: {**by, "average": mean_over_languages(by)} for way, by in found.items()},
        "parameters": {
            "clc-a": 0,
            "clc-c": sum(map(_size, own.values())),
            "clc-c-paper": _size(shared),
        },
    }


def shared_consistency(
    scores: Mapping[str, Tensor],
    owners: Mapping[str, Indices],
    *,
    iterations: int = 30,
    learning_rate: float = 1e-2,
) -> LearnedConsistency:
    """CLC-C as the paper has it: one network for the queries of all languages.

    It learns for 30 iterations from the ten most violated constraints of all pairs
    at once. Candidates are captions of one language, as they are at test time.
    """
    told = {code: ~table.isnan().all(0).all(0) for code, table in scores.items()}
    first = next(iter(scores.values()))
    module = LearnedConsistency(len(first)).to(first.device)
    optimiser = torch.optim.Adam(module.parameters(), lr=learning_rate)
    for _ in range(iterations):
        optimiser.zero_grad()
        for language, table in scores.items():  # one after another: each fills the memory
            owner = torch.from_numpy(owners[language]).to(table.device)[told[language]]
            together = module(table[..., told[language]])
            loss = ranking_loss(together, owner, PAPER_RULE) / len(scores)
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return module.eval()


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


def _size(module: LearnedConsistency) -> int:
    return sum(p.numel() for p in module.parameters())


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
