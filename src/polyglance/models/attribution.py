"""Which regions of an image each word of a sentence draws on.

Two methods. `attention_to_regions` is what UC2's Figure 3 draws: the attention of words to
regions, averaged over heads and layers. Attention shows where a model takes information from,
not whether it matters for the prediction. `word_attribution` and `answer_attribution` measure
the latter by integrated gradients (Sundararajan, Taly and Yan 2017, "Axiomatic attribution for
deep networks", equation 1): a word is masked, and each region is credited with its contribution
to the model's confidence in that word, along the path from masked regions to visible ones. The
credits sum to the effect of the whole image. In three small models that predict a word from one
of three regions, that region had the most credit in 97 to 100 % of images, and the most
attention in 47 to 97 % (`tests/models/test_attribution.py` trains such a model).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.vqa import VQAModel
from polyglance.nn.attention_weights import forward_with_attention
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

WordPositions = Sequence[Sequence[int]]
"""For each word, the positions of its sub-words in the sentence."""

STEPS = 16
"""Points of the path from masked regions to visible ones."""


def attention_to_regions(
    model: CrossEncoderModel,
    text: Text,
    regions: Regions,
    words: WordPositions,
    layers: Sequence[int] = (),
) -> Tensor:
    """Return the attention from words to regions, averaged over heads and layers.

    Args:
        model: a cross-encoder in evaluation mode.
        text: one sentence.
        regions: the regions of one image.
        words: the words to explain.
        layers: numbers of layers, from 1; none for all.

    Returns:
        ``(words, regions)``. Rows sum to the share of attention that falls on the image.
    """
    chosen = [number - 1 for number in layers] or list(range(model.config.encoder.num_layers))
    with torch.no_grad():
        images = model.embed_regions(regions)
        pair = model.join(model.embed_text(text, images), images)
        text_rows, region_rows = model.split(pair, images.packing)
        _, weights = forward_with_attention(model.encoder, pair.rows)
        mean = torch.stack([weights[number].mean(0) for number in chosen]).mean(0)
        rows = [mean[text_rows[list(positions)]].mean(0) for positions in words]
        return torch.stack(rows)[:, region_rows]


def word_attribution(
    model: CrossEncoderModel,
    text: Text,
    regions: Regions,
    words: WordPositions,
    mask: int,
    steps: int = STEPS,
) -> Tensor:
    """Return how much each region contributes to predicting each word when it is masked.

    Args:
        model: a cross-encoder trained to predict masked words.
        text: one sentence.
        regions: the regions of one image.
        words: the words to explain.
        mask: the tokenizer's mask id.
        steps: points of the path that gradients are taken at.

    Returns:
        ``(words, regions)``, in log odds, which keep growing where probabilities are near 1.
    """
    credit = []
    for positions in words:
        masked = torch.tensor(positions, device=text.ids.device)
        targets = text.ids[masked]
        masked_text = Text(text.ids.index_fill(0, masked, mask), text.packing, text.languages)

        def confidence(
            texts: Text, batch: Regions, masked: Tensor = masked, targets: Tensor = targets
        ) -> Tensor:
            out = model(texts, batch).text
            assert out is not None
            rows = out.view(len(texts.packing), -1, out.shape[1])[:, masked]
            logits = model.word_logits(rows.flatten(0, 1)).float()
            return _log_odds(logits, targets.repeat(len(rows)))

        credit.append(_integrated_gradients(model, confidence, masked_text, regions, steps))
    return torch.stack(credit)


def answer_attribution(
    model: VQAModel, text: Text, regions: Regions, answer: int, steps: int = STEPS
) -> Tensor:
    """Return how much each region contributes to an answer's logit.

    Args:
        model: a VQA model in evaluation mode.
        text: one question.
        regions: the regions of one image.
        answer: the class of the answer.
        steps: points of the path that gradients are taken at.

    Returns:
        ``(regions,)``.
    """

    def logits(texts: Text, batch: Regions) -> Tensor:
        of_answer: Tensor = model(texts, batch)[:, answer].float()
        return of_answer

    return _integrated_gradients(model.cross_encoder, logits, text, regions, steps)


def _integrated_gradients(
    model: CrossEncoderModel,
    output: Callable[[Text, Regions], Tensor],
    text: Text,
    regions: Regions,
    steps: int,
) -> Tensor:
    """Integrate the gradient of ``output`` by region features; sum over each region's features."""
    baseline = model.masked_region().expand_as(regions.features)
    difference = (regions.features - baseline).detach()
    # Midpoint rule: the k-th of n points lies at (k - 1/2) / n of the path.
    shares = (torch.arange(steps, device=difference.device) + 0.5) / steps
    path = baseline + shares[:, None, None] * difference
    features = path.flatten(0, 1).detach().requires_grad_()
    packing = Packing.of([len(difference)] * steps, difference.device)
    batch = Regions(features, regions.boxes.repeat(steps, 1), packing)
    languages = None if text.languages is None else text.languages.repeat(steps)
    texts = Text(
        text.ids.repeat(steps), Packing.of([len(text.ids)] * steps, difference.device), languages
    )
    with torch.enable_grad():
        total = output(texts, batch).sum()
        (gradients,) = torch.autograd.grad(total, features)
    return (gradients.view(steps, *difference.shape).mean(0) * difference).sum(1)


def _log_odds(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log odds of the target classes, ``(n,)``."""
    chosen = logits.gather(1, targets[:, None])[:, 0]
    others = logits.scatter(1, targets[:, None], -torch.inf).logsumexp(1)
    return chosen - others
