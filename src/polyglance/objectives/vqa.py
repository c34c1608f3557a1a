"""Visual question answering: cross-entropy with soft targets from 0 to 1 (UC2, section 4)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

AnswerLoss = Literal["binary", "categorical"]


def vqa_loss(logits: Tensor, targets: Tensor, loss: AnswerLoss = "binary") -> Tensor:
    """Return the cross-entropy with soft targets, averaged over questions.

    Args:
        logits: ``(questions, answers)``.
        targets: ``(questions, answers)``, from 0 to 1.
        loss: ``binary`` predicts for each answer whether people accept it, and sums over
            answers (multi-label classification, as in UC2); ``categorical`` predicts the one
            answer, with probabilities in proportion to the targets.
    """
    logits = logits.float()
    if loss == "binary":
        each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return each.sum(1).mean()
    shares = targets / targets.sum(1, keepdim=True).clamp(min=1e-6)
    return -(shares * logits.log_softmax(1)).sum(1).mean()


def answer_probabilities(logits: Tensor, loss: AnswerLoss = "binary") -> Tensor:
    """Return the probabilities of a model trained with this loss, ``(questions, answers)``."""
    return logits.float().sigmoid() if loss == "binary" else logits.float().softmax(1)
