"""What the caption translator learns in one step: translations of about the same length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.recipes.caption_translator.data import Examples, Ids, Pair, TokenTable
from polyglance.text.translation.network import TranslationNetwork
from polyglance.text.translation.subword_vocabulary import END, SubwordVocabulary
from polyglance.training.mixture import rank_share

_MULTIPLE = 8
"""Lengths are padded to a multiple of it, which fast attention kernels need."""
_VALIDATION_BATCH = 256


@dataclass(frozen=True, eq=False)
class TranslationBatch(Batch):
    """Padded sources and targets."""

    source: Tensor
    """``(n, steps)``: the target's tag, sub-words, the end, zeros."""
    target: Tensor
    """``(n, steps)``: the target's tag, sub-words, zeros."""
    label_rows: Tensor
    """``(labels,)``: places in the flattened target that predict something."""
    labels: Tensor
    """``(labels,)``: the sub-word that follows each, or the end."""

    def counts(self) -> dict[str, int]:
        """Return the number of sub-words that the loss is a mean over."""
        return {"translation": len(self.labels)}


class TranslationTask:
    """Cross-entropy of the next sub-word with label smoothing (Vaswani et al. 2017, 5.4).

    A step's pairs have similar lengths, so that little is padded. A group of lengths is drawn as
    often as its share of all target tokens, then pairs by their probabilities.
    """

    def __init__(
        self,
        network: TranslationNetwork,
        table: TokenTable,
        examples: Examples,
        *,
        batch_tokens: int,
        label_smoothing: float = 0.1,
        plain_share: float = 0.0,
    ) -> None:
        """Group the examples by length.

        Args:
            network: The network.
            table: Tokenised texts.
            examples: Pairs of these.
            batch_tokens: Target tokens a step, padding counted.
            label_smoothing: Probability shared by all other sub-words.
            plain_share: How often a source is taken in its plain form.
        """
        self.network, self.table, self.examples = network, table, examples
        self.batch_tokens, self.label_smoothing = batch_tokens, label_smoothing
        self.plain_share = plain_share
        lengths = table.lengths
        # With tag and end; the source has both.
        longest = np.maximum(lengths[examples.sources] + 2, lengths[examples.targets] + 1)
        steps = -(-longest // _MULTIPLE) * _MULTIPLE
        self.groups = [np.flatnonzero(steps == size) for size in np.unique(steps)]
        self.sizes = [int(steps[group[0]]) for group in self.groups]
        cumulative: list[NDArray[np.float64]] = []
        tokens = []
        for group in self.groups:
            shares = examples.probabilities[group]
            cumulative.append(np.cumsum(shares) / shares.sum())
            tokens.append(float((shares * (lengths[examples.targets[group]] + 1)).sum()))
        self.cumulative, self.shares = cumulative, np.array(tokens) / sum(tokens)

    def sample(self, generator: np.random.Generator) -> TranslationBatch:
        """Draw pairs of one group of lengths."""
        group = int(generator.choice(len(self.groups), p=self.shares))
        count = max(2, self.batch_tokens // self.sizes[group])
        places = np.searchsorted(self.cumulative[group], generator.random(count), side="right")
        chosen = self.groups[group][places.clip(max=len(self.groups[group]) - 1)]
        is_plain = generator.random(count) < self.plain_share
        share = rank_share(count)
        return self.gather(chosen[share], is_plain[share])

    def gather(self, chosen: Ids, is_plain: NDArray[np.bool_]) -> TranslationBatch:
        """Return a batch of examples; some of their sources in plain form."""
        examples, table = self.examples, self.table
        sources = np.where(is_plain, examples.plain_sources[chosen], examples.sources[chosen])
        return make_batch(table, sources, examples.targets[chosen], examples.tags[chosen])

    def losses(self, batch: TranslationBatch) -> dict[str, Tensor]:
        """Return the mean over the sub-words of all targets."""
        batch = batch.to(next(self.network.parameters()).device)
        return {"translation": translation_loss(self.network, batch, self.label_smoothing)}


def make_batch(table: TokenTable, sources: Ids, targets: Ids, tags: Ids) -> TranslationBatch:
    """Pad pairs of texts.

    Args:
        table: Tokenised texts.
        sources: Numbers of texts.
        targets: Likewise.
        tags: The tag of each target's language.
    """
    source_lengths, target_lengths = table.lengths[sources], table.lengths[targets]
    source = table.padded(sources, _round_up(int(source_lengths.max()) + 2), tags)
    source[np.arange(len(source)), source_lengths + 1] = END
    steps = _round_up(int(target_lengths.max()) + 1)
    target = table.padded(targets, steps, tags)
    following = np.zeros_like(target)
    following[:, :-1] = target[:, 1:]
    following[np.arange(len(target)), target_lengths] = END
    rows = np.flatnonzero(following.ravel())
    return TranslationBatch(
        torch.from_numpy(source),
        torch.from_numpy(target),
        torch.from_numpy(rows),
        torch.from_numpy(following.ravel()[rows]),
    )


def translation_loss(
    network: TranslationNetwork, batch: TranslationBatch, label_smoothing: float = 0.0
) -> Tensor:
    """Return the mean cross-entropy of a batch on the network's device."""
    memory, mask = network.encode(batch.source)
    rows = network.decode(batch.target, memory, mask).flatten(0, 1)[batch.label_rows]
    return F.cross_entropy(
        network.logits(rows).float(), batch.labels, label_smoothing=label_smoothing
    )


def validation_losses(
    network: TranslationNetwork,
    vocabulary: SubwordVocabulary,
    pairs: Mapping[str, Sequence[Pair]],
) -> dict[str, float]:
    """Return the mean cross-entropy of held-out pairs by language."""
    device, limit = next(network.parameters()).device, network.config.max_tokens - 2
    losses: dict[str, float] = {}
    for language, own in pairs.items():
        tag = vocabulary.tag(language)
        sources = vocabulary.encode([pair.source for pair in own])
        targets = vocabulary.encode([pair.target for pair in own])
        table = TokenTable.of([text[:limit] for text in (*sources, *targets)])
        total = count = 0.0
        for start in range(0, len(own), _VALIDATION_BATCH):
            numbers = np.arange(start, min(len(own), start + _VALIDATION_BATCH))
            tags = np.full(len(numbers), tag)
            batch = make_batch(table, numbers, numbers + len(own), tags).to(device)
            total += float(translation_loss(network, batch)) * len(batch.labels)
            count += len(batch.labels)
        losses[language] = total / count
    return losses


def _round_up(steps: int) -> int:
    return -(-steps // _MULTIPLE) * _MULTIPLE
