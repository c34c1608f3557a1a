"""Learn word vectors from a corpus: skip-gram with sub-words (Bojanowski et al. 2017).

A word's vector is its own row plus the mean of the rows of its sub-words. It learns to
distinguish neighbouring words from words drawn at random. Here nothing is drawn: neighbours are
counted once, and a step compares some hundred words with all contexts, weighted by the counts
and by how often each context would have been drawn. That is negative sampling in expectation,
without its noise, and consists of matrix products: the captions of one language take under a
minute on one core.

fastText averages all rows alike. On small corpora that makes words of similar spelling the
same: *running* and *stunning*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.text.subwords import SubwordConfig, subword_buckets
from polyglance.utils.progress import progress

Numbers = NDArray[np.int64]
Vectors = NDArray[np.float32]
_Kind = TypeVar("_Kind", np.int64, np.float32)


@dataclass(frozen=True)
class SkipGramSettings:
    """Settings of skip-gram; the defaults suit corpora of some hundred thousand words."""

    width: int = 300
    window: int = 5
    """Neighbours to each side; the nearest has weight 1, the farthest 1 / ``window``."""
    negatives: float = 5
    """Negative samples per neighbour."""
    max_contexts: int = 2000
    """Only the most frequent words count as neighbours; rarer ones say little about a word."""
    negative_smoothing: float = 1.0
    """Weight of negative samples as positives, since some are neighbours that the corpus is too
    small to show. With 0, as published, the scores of unseen pairs fall without limit; with 1
    they tend to zero."""
    subsampling: float = 1e-5
    """Words more frequent than this are down-weighted (subsampling in expectation)."""
    epochs: int = 6
    batch: int = 256
    """Words of the vocabulary in a step."""
    learning_rate: float = 0.03
    subwords: SubwordConfig = field(default_factory=SubwordConfig)
    seed: int = 0


class SkipGram(nn.Module):
    """Embeddings of words, of their sub-words, and of contexts."""

    def __init__(self, words: Sequence[str], contexts: int, settings: SkipGramSettings) -> None:
        super().__init__()
        buckets, counts = subword_buckets(words, settings.subwords)
        # Only buckets in use have a row.
        used, subword_rows = np.unique(buckets, return_inverse=True)
        word_of = np.concatenate([np.arange(len(words)), np.repeat(np.arange(len(words)), counts)])
        rows = np.concatenate([np.arange(len(words)), subword_rows.reshape(-1) + len(words)])
        self._rows = rows[np.argsort(word_of, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(counts + 1)])
        generator = torch.Generator().manual_seed(settings.seed)
        std = settings.width**-0.5
        self.embeddings = nn.EmbeddingBag.from_pretrained(
            torch.randn(len(words) + len(used), settings.width, generator=generator) * std,
            freeze=False,
            mode="sum",
            sparse=True,
        )
        self.contexts = nn.Parameter(
            torch.randn(contexts, settings.width, generator=generator) * std
        )

    def forward(self, words: Numbers) -> Tensor:
        """Return the vectors of words, ``(n, width)``."""
        rows, lengths = self.rows_of(words)
        offsets = np.cumsum(lengths) - lengths
        weights = np.repeat(1 / np.maximum(1, lengths - 1), lengths).astype(np.float32)
        weights[offsets] = 1.0  # the first row is the word's own
        vectors: Tensor = self.embeddings(*map(torch.from_numpy, (rows, offsets, weights)))
        return vectors

    def rows_of(self, words: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows of words end to end, each word's own first, and their numbers."""
        return _gather(self._rows, self._starts, words)


@dataclass(frozen=True)
class Neighbours:
    """Weighted counts of each word with each context, as a sparse matrix in CSR form."""

    starts: Numbers
    """Where each word's pairs begin, ``(words + 1,)``."""
    context: Numbers
    count: NDArray[np.float32]
    num_contexts: int

    @classmethod
    def count_in(
        cls, sentences: Sequence[Sequence[int]], words: int, settings: SkipGramSettings
    ) -> Neighbours:
        """Count neighbours in sentences of word ids, weighted by distance and word frequency.

        Args:
            sentences: Word ids.
            words: Size of the vocabulary.
            settings: Window, contexts and subsampling.
        """
        lengths = [len(sentence) for sentence in sentences]
        text = np.fromiter((n for one in sentences for n in one), np.int64, count=sum(lengths))
        sentence_of = np.repeat(np.arange(len(lengths)), lengths)
        frequency = np.bincount(text, minlength=words)
        contexts = min(settings.max_contexts, words)
        context_of = np.full(words, -1)
        context_of[np.argsort(-frequency, kind="stable")[:contexts]] = np.arange(contexts)
        weight_of = _subsampling_weights(frequency, settings.subsampling)
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for distance in range(1, settings.window + 1):
            same_sentence = sentence_of[distance:] == sentence_of[:-distance]
            left, right = text[:-distance][same_sentence], text[distance:][same_sentence]
            weight = weight_of[left] * weight_of[right] * (1 - (distance - 1) / settings.window)
            for word, other in ((left, right), (right, left)):
                is_context = context_of[other] >= 0
                keys.append(word[is_context] * contexts + context_of[other[is_context]])
                weights.append(weight[is_context])
        pairs, index = np.unique(np.concatenate(keys), return_inverse=True)
        count = np.bincount(index.reshape(-1), np.concatenate(weights), minlength=len(pairs))
        starts = np.searchsorted(pairs, np.arange(words + 1) * contexts)
        return cls(starts, pairs % max(1, contexts), count.astype(np.float32), contexts)

    def rows(self, words: Numbers) -> Vectors:
        """Return the counts of these words with every context, ``(n, contexts)``."""
        contexts, lengths = _gather(self.context, self.starts, words)
        counts, _ = _gather(self.count, self.starts, words)
        dense = np.zeros((len(words), self.num_contexts), np.float32)
        dense[np.repeat(np.arange(len(words)), lengths), contexts] = counts
        return dense


def skipgram_loss(
    scores: Tensor, counts: Tensor, noise: Tensor, negatives: float, smoothing: float
) -> Tensor:
    """Return negative sampling in expectation, averaged over a word's neighbours, then over words.

    Args:
        scores: Of words with contexts, ``(words, contexts)``.
        counts: Of neighbours, ``(words, contexts)``.
        noise: Probability of each context as a negative sample, ``(contexts,)``.
        negatives: Negative samples per neighbour.
        smoothing: Weight of negative samples as positives.
    """
    total = counts.sum(1, keepdim=True)
    negative = negatives * total * noise
    positive = counts + smoothing * negative
    losses = positive * F.softplus(-scores) + negative * F.softplus(scores)
    return (losses.sum(1) / total.squeeze(1)).mean()


def learn_word_vectors(
    sentences: Sequence[Sequence[int]],
    words: Sequence[str],
    settings: SkipGramSettings | None = None,
    *,
    quiet: bool = True,
) -> Vectors:
    """Learn a vector for each word, ``(words, width)``.

    Words that no sentence has get the vectors of their sub-words, as learned from other words.

    Args:
        sentences: Word ids.
        words: Spelling of each word.
        settings: Of skip-gram.
        quiet: Show no progress.
    """
    settings = settings or SkipGramSettings()
    if not len(words):
        return np.zeros((0, settings.width), np.float32)
    neighbours = Neighbours.count_in(sentences, len(words), settings)
    model = SkipGram(words, neighbours.num_contexts, settings)
    trained = np.flatnonzero(np.diff(neighbours.starts))  # words that have neighbours
    noise = np.bincount(neighbours.context, neighbours.count, neighbours.num_contexts) ** 0.75
    noise_shares = torch.from_numpy((noise / max(1e-12, noise.sum())).astype(np.float32))
    optimisers = [
        torch.optim.SparseAdam(list(model.embeddings.parameters()), lr=settings.learning_rate),
        torch.optim.Adam([model.contexts], lr=settings.learning_rate),
    ]
    generator = np.random.default_rng(settings.seed)
    steps_per_epoch = -(-len(trained) // settings.batch)
    steps = settings.epochs * steps_per_epoch
    with progress("learning word vectors", steps, quiet=quiet) as advance:
        for step in range(steps):
            number = step % steps_per_epoch
            if number == 0:
                order = generator.permutation(trained)
            batch = order[number * settings.batch : (number + 1) * settings.batch]
            for optimiser in optimisers:
                optimiser.param_groups[0]["lr"] = settings.learning_rate * (1 - step / steps)
                optimiser.zero_grad()
            scores = model(batch) @ model.contexts.T
            counts = torch.from_numpy(neighbours.rows(batch))
            loss = skipgram_loss(
                scores, counts, noise_shares, settings.negatives, settings.negative_smoothing
            )
            loss.backward()  # type: ignore[no-untyped-call]
            for optimiser in optimisers:
                optimiser.step()
            advance(1)
    with torch.inference_mode():
        is_trained = torch.zeros(len(model.embeddings.weight), dtype=torch.bool)
        is_trained[torch.from_numpy(model.rows_of(trained)[0])] = True
        model.embeddings.weight[~is_trained] = 0  # rows that kept their random initialisation
        blocks = np.array_split(np.arange(len(words)), 1 + len(words) // 1024)
        return np.concatenate([model(block).numpy() for block in blocks])


def _gather(
    values: NDArray[_Kind], starts: Numbers, rows: Numbers
) -> tuple[NDArray[_Kind], Numbers]:
    """Return the values of these rows end to end, and their numbers; row r begins at starts[r]."""
    lengths = starts[rows + 1] - starts[rows]
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts[rows] - before, lengths) + np.arange(lengths.sum())
    return values[places], lengths


def _subsampling_weights(counts: Numbers, subsampling: float) -> NDArray[np.float64]:
    """Return the weight of each word: 1 if it is rare, less the more frequent it is."""
    frequency = counts / max(1, counts.sum())
    ratio = subsampling / np.maximum(frequency, 1e-12)
    weights: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return weights
