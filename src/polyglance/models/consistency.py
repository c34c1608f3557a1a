"""Cross-lingual consistency (SMALR, section 3.4): combine a query's scores with its translations'.

It works on the scores of any encoder, ``(languages, images, captions)``: cosines of images
with captions that are translations of each other, and NaN where a translation is missing.
`polyglance.encoders.translated_queries` computes them.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.encoders.translated_queries import average_scores
from polyglance.errors import PolyglanceError
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule, top_triplets

__all__ = [
    "LearnedConsistency",
    "Start",
    "average_scores",
    "learn_consistency",
    "ranking_loss",
]

Start = Literal["even", "random"]


class LearnedConsistency(nn.Module):
    """CLC-C: a small network that combines the scores of all languages.

    Two layers without biases: ``32 |L| + 32`` parameters, the paper's 352 for ten languages.
    "All parameters are initialized with uniform weight" is read as ``even``, the same weight
    for all, which starts as the average; ``random`` draws them from a uniform distribution.
    """

    def __init__(self, languages: int, *, hidden: int = 32, start: Start = "even") -> None:
        super().__init__()
        self.languages = nn.Linear(languages, hidden, bias=False)
        self.output = nn.Linear(hidden, 1, bias=False)
        if start == "even":
            nn.init.constant_(self.languages.weight, 1 / languages)
            nn.init.constant_(self.output.weight, 1 / hidden)

    def forward(self, scores: Tensor) -> Tensor:
        """Combine ``(languages, images, captions)`` into ``(images, captions)``."""
        # A missing score becomes the mean over languages; one that all lack becomes 0.
        scores = torch.where(scores.isnan(), scores.nanmean(0).nan_to_num(), scores)
        # From 0 to 1, so that ReLU cuts no pair off.
        combined: Tensor = self.output(self.languages((1 + scores.movedim(0, -1)) / 2).relu())
        return combined.squeeze(-1)

    @torch.no_grad()
    def combine(self, scores: NDArray[Any]) -> NDArray[np.float32]:
        """Return the same for numpy arrays."""
        weight = self.output.weight
        combined: NDArray[np.float32] = self(torch.from_numpy(scores).to(weight)).cpu().numpy()
        return combined


def learn_consistency(
    scores: NDArray[Any] | Tensor,
    image_ids: NDArray[np.int64] | Tensor,
    *,
    iterations: int = 30,
    learning_rate: float = 1e-2,
    rule: TripletRule = PAPER_RULE,
    sentence_weight: float = 1.5,
    start: Start = "even",
) -> LearnedConsistency:
    """Train CLC-C with equation 3 on all validation scores in every iteration.

    Args:
        scores: ``(languages, images, captions)``; training runs on their device.
        image_ids: ``(captions,)``: the image of each caption.
        iterations: training steps.
        learning_rate: of Adam.
        rule: margin and negatives.
        sentence_weight: lambda 1 of equation 3.
        start: the initialisation, see `LearnedConsistency`.

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
    scored = ~table.isnan().all(0).all(0)
    table, ids = table[..., scored], ids[scored]
    if not len(ids):
        raise PolyglanceError("consistency needs captions: no language has a score of any")
    model = LearnedConsistency(len(table), start=start).to(table.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(iterations):
        optimiser.zero_grad()
        ranking_loss(model(table), ids, rule, sentence_weight).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


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
