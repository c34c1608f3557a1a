"""How far logits of answers are from what answers are worth: soft targets from 0 to 1."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

AnswerLoss = Literal["binary", "categorical"]


def vqa_loss(logits: Tensor, targets: Tensor, loss: AnswerLoss = "binary") -> Tensor:
    """The mean over questions of the cross-entropy with soft targets, (questions, answers) both.

    ``binary`` asks of each answer how likely people are to accept it, and sums over
    answers (multi-label classification, as UC2 has it); ``categorical`` asks which of
    all answers is given, each as often as it is worth beside the others.
    """
    logits = logits.float()
    if loss == "binary":
        each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return each.sum(1).mean()
    shares = targets / targets.sum(1, keepdim=True).clamp(min=1e-6)
    return -(shares * logits.log_softmax(1)).sum(1).mean()


def answer_probabilities(logits: Tensor, loss: AnswerLoss = "binary") -> Tensor:
    """What logits mean to a model that was trained by this loss."""
    return logits.float().sigmoid() if loss == "binary" else logits.float().softmax(1)
