"""Cross-lingual consistency (SMALR, section 3.4): combine a query's scores with its translations'.

It works on the scores of any encoder, ``(languages, images, captions)``: cosines of images
with captions that are translations of each other, and NaN where a translation is missing.
`polyglance.encoders.translated_queries` computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.config import validate_fields
from polyglance.encoders.consistency import Network
from polyglance.encoders.translated_queries import average_scores
from polyglance.errors import PolyglanceError
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule, top_triplets

__all__ = [
    "ConsistencyTraining",
    "Initialisation",
    "LearnedConsistency",
    "Optimiser",
    "as_average",
    "average_scores",
    "learn_consistency",
    "ranking_loss",
    "train_consistency",
]

Initialisation = Literal["random", "constant"]
"""Where the weights start: at random, or all equal."""
Optimiser = Literal["adam", "sgd"]
"""How the weights are updated."""


@dataclass(frozen=True)
class ConsistencyTraining:
    """How CLC-C is trained; the paper states iterations, triplets and full batches alone."""

    optimiser: Optimiser = "adam"
    learning_rate: float = 1e-3
    iterations: int = 30
    """Full-batch steps; 0 keeps the initial weights."""
    rule: TripletRule = PAPER_RULE
    sentence_weight: float = 1.5
    """Lambda 1 of equation 3."""
    initialisation: Initialisation = "random"
    """See `LearnedConsistency`."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")
        validate_fields(self, lambda value: value >= 0, "0 or more", "iterations")


class LearnedConsistency(nn.Module):
    """CLC-C: a small network that combines the scores of all languages.

    Two layers without biases: ``32 |L| + 32`` parameters, the paper's 352 for ten languages.
    "All parameters are initialized with uniform weight" has two readings:

    - ``random``: drawn from a uniform distribution, here from 0 to twice the mean that makes the
      network an average, so that hidden units differ and none is cut off by its ReLU;
    - ``constant``: the same weight everywhere, exactly the average. All hidden units then get the
      same gradient for ever and act as one: |L| + 1 parameters instead of 352.
    """

    def __init__(
        self,
        languages: int,
        *,
        hidden: int = 32,
        initialisation: Initialisation = "random",
        generator: torch.Generator | None = None,
    ) -> None:
        """Build the network.

        Args:
            languages: Number of languages whose scores are combined.
            hidden: Hidden units.
            initialisation: One of the two readings above.
            generator: Draws random weights, on the CPU; None for torch's default one.
        """
        super().__init__()
        self.initialisation: Initialisation = initialisation
        self.languages = nn.Linear(languages, hidden, bias=False)
        self.output = nn.Linear(hidden, 1, bias=False)
        self.reset_units(torch.ones(hidden, dtype=torch.bool), generator)

    @torch.no_grad()
    def reset_units(self, units: Tensor, generator: torch.Generator | None = None) -> None:
        """Give hidden units, ``(hidden,)`` where true, their initial weights, drawn anew."""
        hidden, languages = self.languages.weight.shape
        count = int(units.sum())
        first = self._initial_weights((count, languages), 1 / languages, generator)
        last = self._initial_weights((1, count), 1 / hidden, generator)
        self.languages.weight[units] = first.to(self.languages.weight)
        self.output.weight[:, units] = last.to(self.output.weight)

    def _initial_weights(
        self, shape: tuple[int, int], mean: float, generator: torch.Generator | None
    ) -> Tensor:
        if self.initialisation == "constant":
            return torch.full(shape, mean)
        return 2 * mean * torch.rand(shape, generator=generator)

    def hidden(self, scores: Tensor) -> Tensor:
        """Return the hidden units, ``(images, captions, hidden)``."""
        units: Tensor = self.languages(_inputs(scores)).relu()
        return units

    def forward(self, scores: Tensor) -> Tensor:
        """Combine ``(languages, images, captions)`` into ``(images, captions)``."""
        combined: Tensor = self.output(self.hidden(scores))
        return combined.squeeze(-1)

    @torch.no_grad()
    def dead_units(self, tables: Iterable[Tensor]) -> Tensor:
        """Return which hidden units are zero for every pair of all tables, ``(hidden,)``."""
        dead = torch.ones(len(self.languages.weight), dtype=torch.bool)
        for table in tables:
            for block in torch.split(table, 128, dim=1):  # the hidden layer is 32 times as large
                dead &= _are_dead(self.hidden(block)).cpu()
        return dead

    def network(self) -> Network:
        """Return the weights for `ConsistencyNetworks`, which search uses without torch."""
        layers = (self.languages.weight, self.output.weight[0])
        first, last = (weight.detach().float().cpu().numpy() for weight in layers)
        return Network(first, last)

    @classmethod
    def from_network(cls, network: Network) -> LearnedConsistency:
        """Build the network of saved weights, in evaluation mode."""
        units, languages = network.languages.shape
        model = cls(languages, hidden=units)
        with torch.no_grad():
            model.languages.weight.copy_(torch.from_numpy(network.languages))
            model.output.weight.copy_(torch.from_numpy(network.output)[None])
        return model.eval()

    @torch.no_grad()
    def combine(self, scores: NDArray[Any]) -> NDArray[np.float32]:
        """Return the same for numpy arrays."""
        weight = self.output.weight
        combined: NDArray[np.float32] = self(torch.from_numpy(scores).to(weight)).cpu().numpy()
        return combined


def learn_consistency(
    scores: NDArray[Any] | Tensor,
    image_ids: NDArray[np.int64] | Tensor,
    training: ConsistencyTraining | None = None,
    *,
    seed: int = 0,
) -> LearnedConsistency:
    """Train CLC-C with equation 3 on all validation scores in every iteration.

    Args:
        scores: ``(languages, images, captions)``; training runs on their device.
        image_ids: ``(captions,)``: the image of each caption.
        training: Optimiser, iterations and initialisation.
        seed: Of random weights.

    Returns:
        The trained network, in evaluation mode. Captions that no language has are ignored.
    """
    table = torch.as_tensor(scores).float()
    ids = torch.as_tensor(image_ids).to(table.device)
    if table.ndim != 3 or ids.shape != table.shape[2:]:
        raise PolyglanceError(
            "consistency is trained on scores of languages x images x captions and each caption's"
            f" image, not on shapes {tuple(table.shape)} and {tuple(ids.shape)}"
        )
    return train_consistency([(table, ids)], training, seed=seed)


def train_consistency(
    tables: Sequence[tuple[Tensor, Tensor]],
    training: ConsistencyTraining | None = None,
    *,
    seed: int = 0,
) -> LearnedConsistency:
    """Train one CLC-C on the queries of several languages.

    A hidden unit that is zero for every pair has no gradient and would stay so for ever: it gets
    new initial weights for the next iteration.

    Args:
        tables: For the queries of each language, scores ``(languages, images, captions)`` and the
            image of each caption, on one device. Candidates are captions of one language, as at
            test time.
        training: Optimiser, iterations and initialisation.
        seed: Of random weights.

    Returns:
        The trained network, in evaluation mode. Captions that no language has are ignored.
    """
    training = training or ConsistencyTraining()
    scored = [~scores.isnan().all(0).all(0) for scores, _ in tables]
    used = [
        (_inputs(scores[..., known]), ids[known])
        for (scores, ids), known in zip(tables, scored, strict=True)
        if known.any()
    ]
    if not used:
        raise PolyglanceError("consistency needs captions: no language has a score of any")
    generator = torch.Generator().manual_seed(seed)
    device = used[0][0].device
    model = LearnedConsistency(
        len(tables[0][0]), initialisation=training.initialisation, generator=generator
    ).to(device)
    optimiser = _optimiser(model, training)
    for _ in range(training.iterations):
        optimiser.zero_grad()
        dead = torch.ones(len(model.languages.weight), dtype=torch.bool, device=device)
        for inputs, ids in used:  # one at a time: each fills the memory
            hidden = model.languages(inputs).relu()
            dead &= _are_dead(hidden.detach())
            combined = model.output(hidden).squeeze(-1)
            loss = ranking_loss(combined, ids, training.rule, training.sentence_weight)
            (loss / len(used)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if dead.any():
            model.reset_units(dead.cpu(), generator)
            optimiser = _optimiser(model, training)  # the old moments would end them again
    dead = model.dead_units(
        scores[..., known] for (scores, _), known in zip(tables, scored, strict=True) if known.any()
    )
    if dead.any():  # ended by the last step
        model.reset_units(dead, generator)
    return model.eval()


def as_average(training: ConsistencyTraining) -> ConsistencyTraining:
    """Return the settings of a network that stays the plain average."""
    return replace(training, iterations=0, initialisation="constant")


def _inputs(scores: Tensor) -> Tensor:
    """Return what the network sees of scores, ``(images, captions, languages)``."""
    # A missing score becomes the mean over languages; one that all lack becomes 0.
    scores = torch.where(scores.isnan(), scores.nanmean(0).nan_to_num(), scores)
    # From 0 to 1, so that ReLU cuts no pair off.
    return ((1 + scores.movedim(0, -1)) / 2).contiguous()


def _are_dead(hidden: Tensor) -> Tensor:
    """Return which units are zero for every pair of ``(images, captions, hidden)``."""
    return hidden.flatten(0, 1).amax(0) <= 0


def _optimiser(model: nn.Module, training: ConsistencyTraining) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if training.optimiser == "adam" else torch.optim.SGD
    return kind(model.parameters(), lr=training.learning_rate)


def ranking_loss(
    scores: Tensor,
    image_ids: Tensor,
    rule: TripletRule = PAPER_RULE,
    sentence_weight: float = 1.5,
) -> Tensor:
    """Return equation 3 over a whole table of scores.

    Args:
        scores: ``(images, captions)``.
        image_ids: ``(captions,)``: the image of each caption.
        rule: margin and negatives.
        sentence_weight: lambda 1.
    """
    positive = image_ids == torch.arange(len(scores), device=scores.device)[:, None]
    distance = 1 - scores
    per_image = max(1, int(torch.bincount(image_ids).max()))
    by_image = top_triplets(distance, positive, ~positive, rule, positives=per_image)
    by_caption = top_triplets(distance.T, positive.T, ~positive.T, rule)
    return by_image + sentence_weight * by_caption
