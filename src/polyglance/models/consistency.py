"""Cross-lingual consistency (SMALR, section 3.4): a query and its translations decide together.

It works over the scores of any encoder: ``(languages, pictures, captions)``, where
captions are the same in every language, by translation, and a score says how well
picture and caption fit, as a cosine. NaN stands where a translation is missing.
`polyglance.encoders.translated_queries` asks an encoder for them.
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
    """CLC-C: a small network weighs what each language says.

    Two layers without biases: ``32 |L| + 32`` parameters, the paper's 352 for ten
    languages. "All parameters are initialized with uniform weight" is read as ``even``,
    the same weight for all, which begins as the average; ``random`` draws them evenly
    from an interval.
    """

    def __init__(self, languages: int, *, hidden: int = 32, start: Start = "even") -> None:
        super().__init__()
        self.languages = nn.Linear(languages, hidden, bias=False)
        self.opinion = nn.Linear(hidden, 1, bias=False)
        if start == "even":
            nn.init.constant_(self.languages.weight, 1 / languages)
            nn.init.constant_(self.opinion.weight, 1 / hidden)

    def forward(self, scores: Tensor) -> Tensor:
        """One score for each pair, ``(pictures, captions)``."""
        # A language that lacks a caption agrees with the others; one that all lack fits nothing
        # more than anything else.
        scores = torch.where(scores.isnan(), scores.nanmean(0).nan_to_num(), scores)
        # From 0 to 1, so that no pair is below what the hidden units take notice of.
        agreement: Tensor = self.opinion(self.languages((1 + scores.movedim(0, -1)) / 2).relu())
        return agreement.squeeze(-1)

    @torch.no_grad()
    def combine(self, scores: NDArray[Any]) -> NDArray[np.float32]:
        """The same for arrays."""
        weight = self.opinion.weight
        together: NDArray[np.float32] = self(torch.from_numpy(scores).to(weight)).cpu().numpy()
        return together


def learn_consistency(
    scores: NDArray[Any] | Tensor,
    owner: NDArray[np.int64] | Tensor,
    *,
    iterations: int = 30,
    learning_rate: float = 1e-2,
    rule: TripletRule = PAPER_RULE,
    sentence_weight: float = 1.5,
    start: Start = "even",
) -> LearnedConsistency:
    """Train CLC-C with equation 3 on validation scores, all of them in every iteration.

    ``owner[j]`` is the picture of caption ``j``. Captions that no language has teach
    nothing. It runs where the scores lie.
    """
    table = torch.as_tensor(scores).float()
    belongs = torch.as_tensor(owner).to(table.device)
    if table.ndim != 3 or belongs.shape != table.shape[2:]:
        raise PolyglanceError(
            "consistency learns from scores of languages x pictures x captions and each caption's"
            f" picture, not from {tuple(table.shape)} and {tuple(belongs.shape)}"
        )
    told = ~table.isnan().all(0).all(0)
    table, belongs = table[..., told], belongs[told]
    if not len(belongs):
        raise PolyglanceError("consistency learns from captions, and no language has any of these")
    model = LearnedConsistency(len(table), start=start).to(table.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(iterations):
        optimiser.zero_grad()
        ranking_loss(model(table), belongs, rule, sentence_weight).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def ranking_loss(
    scores: Tensor, owner: Tensor, rule: TripletRule = PAPER_RULE, sentence_weight: float = 1.5
) -> Tensor:
    """Equation 3 over a whole table of scores, ``(pictures, captions)``."""
    same = owner == torch.arange(len(scores), device=scores.device)[:, None]
    apart = 1 - scores
    most = max(1, int(torch.bincount(owner).max()))
    from_pictures = top_triplets(apart, same, ~same, rule, positives=most)
    return from_pictures + sentence_weight * top_triplets(apart.T, same.T, ~same.T, rule)
