"""Where each word looks in a picture: what regions are to each word of a sentence.

Two ways. `attended` is what UC2's Figure 3 draws: how far words attend to regions,
averaged over heads and layers. Attention says where a model takes something from, not
whether that matters for what it says. `told_from` and `answered_from` ask for the
latter: a word is hidden, and regions are credited with how sure the model is of it, by
integrated gradients (Sundararajan, Taly and Yan 2017, "Axiomatic attribution for deep
networks", equation 1) along the way from hidden regions to seen ones. Their credits sum
to what the whole picture does. In three small models that read a word off one of
three regions, that one had the most credit in 97 to 100 % of pictures, and the most
attention in 47 to 97 % (`tests/models/test_word_looks.py` trains such a model).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyglance.models.answering import Answering
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.nn.attention_weights import watched
from polyglance.nn.joint import Regions, Text
from polyglance.nn.packing import Packing

Places = Sequence[Sequence[int]]
"""Of each word the places of its sub-words in the sentence."""

STEPS = 16
"""Points on the way from hidden regions to seen ones."""


def attended(
    model: UC2 | M3P, text: Text, regions: Regions, words: Places, layers: Sequence[int] = ()
) -> Tensor:
    """(words, regions): attention from words to regions, the mean of heads and ``layers``.

    Layers count from 1; none for all. Rows sum to the share of attention that falls
    on the picture.
    """
    chosen = [number - 1 for number in layers] or list(range(model.config.encoder.layers))
    with torch.no_grad():
        pair = _joint(model, text, regions)
        _, weights = watched(model.encoder, pair.rows)
        mean = torch.stack([weights[number].mean(0) for number in chosen]).mean(0)
        rows = [mean[[pair.words + place for place in places]].mean(0) for places in words]
        return torch.stack(rows)[:, pair.regions]


def told_from(
    model: UC2 | M3P, text: Text, regions: Regions, words: Places, mask: int, steps: int = STEPS
) -> Tensor:
    """(words, regions): what each region does for a word to be told when it is hidden.

    In logarithms of odds, which go on growing where probabilities are near one.
    """
    found = []
    for places in words:
        at = torch.tensor(places, device=text.ids.device)
        wanted = text.ids[at]
        hidden = Text(text.ids.index_fill(0, at, mask), text.packing, text.languages)

        def sureness(
            texts: Text, seen: Regions, at: Tensor = at, wanted: Tensor = wanted
        ) -> Tensor:
            out = model(texts, seen).text
            assert out is not None
            rows = out.view(len(texts.packing), -1, out.shape[1])[:, at]
            return _odds(model.word_logits(rows.flatten(0, 1)).float(), wanted.repeat(len(rows)))

        found.append(_credits(model, sureness, hidden, regions, steps))
    return torch.stack(found)


def answered_from(
    model: Answering, text: Text, regions: Regions, answer: int, steps: int = STEPS
) -> Tensor:
    """What each region does for an answer, in its logit."""

    def logits(texts: Text, seen: Regions) -> Tensor:
        found: Tensor = model(texts, seen)[:, answer].float()
        return found

    return _credits(model.reader, logits, text, regions, steps)


def _credits(
    model: UC2 | M3P,
    figure: Callable[[Text, Regions], Tensor],
    text: Text,
    regions: Regions,
    steps: int,
) -> Tensor:
    """Integrated gradients of a figure by the features of regions, summed over each region."""
    hidden = hidden_region(model).expand_as(regions.features)
    away = (regions.features - hidden).detach()
    # The middle rule: the k-th of n points lies at (k - 1/2) / n of the way.
    shares = (torch.arange(steps, device=away.device) + 0.5) / steps
    features = (hidden + shares[:, None, None] * away).flatten(0, 1).detach().requires_grad_()
    seen = Regions(
        features, regions.boxes.repeat(steps, 1), Packing.of([len(away)] * steps, away.device)
    )
    told = None if text.languages is None else text.languages.repeat(steps)
    packing = Packing.of([len(text.ids)] * steps, away.device)
    with torch.enable_grad():
        total = figure(Text(text.ids.repeat(steps), packing, told), seen).sum()
        (slopes,) = torch.autograd.grad(total, features)
    return (slopes.view(steps, *away.shape).mean(0) * away).sum(1)


def hidden_region(model: UC2 | M3P) -> Tensor:
    """The feature of a region that is hidden, as the model was trained with."""
    if isinstance(model, UC2):
        return model.region_mask.detach()
    return torch.zeros(model.config.visual_width, device=model.word_bias.device)


def _odds(logits: Tensor, wanted: Tensor) -> Tensor:
    """The logarithm of the odds of the wanted classes."""
    chosen = logits.gather(1, wanted[:, None])[:, 0]
    others = logits.scatter(1, wanted[:, None], -torch.inf).logsumexp(1)
    return chosen - others


@dataclass(frozen=True, eq=False)
class _Joint:
    """A sentence and a picture as they enter the first layer, and where either lies."""

    rows: Tensor
    words: int
    """The place of the first sub-word."""
    regions: slice


def _joint(model: UC2 | M3P, text: Text, regions: Regions) -> _Joint:
    """One pair, in the order that the model has: [IMG] is neither word nor region."""
    seen = model.embed_regions(regions)
    said = model.embed_text(text) if isinstance(model, UC2) else model.embed_text(text, seen)
    words, shown, count = (
        said.packing.num_tokens,
        seen.packing.num_tokens,
        regions.packing.num_tokens,
    )
    if isinstance(model, M3P) and model.config.layout == "reference":
        return _Joint(torch.cat([seen.rows, said.rows]), shown, slice(0, count))
    first = words + shown - count
    return _Joint(torch.cat([said.rows, seen.rows]), 0, slice(first, first + count))
