"""Word vectors learned from a corpus: skip-gram with subwords (Bojanowski et al. 2017).

A word's vector is its own row and the mean of those of its parts; it is learned
by telling the words that stand near it from words drawn at random. Here nothing
is drawn: neighbours are counted once, and a step sets some hundred words against
all contexts at once, by the counts and by how often each context would have been
drawn. That is negative sampling in expectation, without its noise, and all of it
is matrix products: a language of captions takes under a minute on one core.

fastText takes the mean of all rows alike. On corpora this small that makes words
of similar spelling the same word: *running* and *stunning*.
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
    """How vectors are learned; the defaults suit corpora of some hundred thousand words."""

    width: int = 300
    window: int = 5
    """Neighbours to each side; the next counts fully, the last 1 / ``window``."""
    negatives: float = 5
    """How many words would be drawn at random for each neighbour."""
    contexts: int = 2000
    """Words that count as neighbours, the commonest; rarer ones tell little of a word."""
    doubt: float = 1.0
    """How many of the words drawn at random may be neighbours that the corpus was too small
    to show. With 0, as published, pairs never seen are driven apart without end; with 1
    they tend to be indifferent to each other."""
    sampling: float = 1e-5
    """Words commoner than this count less, the commoner the less."""
    epochs: int = 6
    batch: int = 256
    """Words of the vocabulary a step."""
    learning_rate: float = 0.03
    subwords: SubwordConfig = field(default_factory=SubwordConfig)
    seed: int = 0


class SkipGram(nn.Module):
    """A row for each word and each part that a word has, and one for each context."""

    def __init__(self, words: Sequence[str], contexts: int, settings: SkipGramSettings) -> None:
        super().__init__()
        buckets, counts = subword_buckets(words, settings.subwords)
        # Only buckets that are in use have a row.
        used, parts = np.unique(buckets, return_inverse=True)
        owners = np.concatenate([np.arange(len(words)), np.repeat(np.arange(len(words)), counts)])
        rows = np.concatenate([np.arange(len(words)), parts.reshape(-1) + len(words)])
        self._rows = rows[np.argsort(owners, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(counts + 1)])
        generator = torch.Generator().manual_seed(settings.seed)
        deviation = settings.width**-0.5
        self.parts = nn.EmbeddingBag.from_pretrained(
            torch.randn(len(words) + len(used), settings.width, generator=generator) * deviation,
            freeze=False,
            mode="sum",
            sparse=True,
        )
        self.contexts = nn.Parameter(
            torch.randn(contexts, settings.width, generator=generator) * deviation
        )

    def forward(self, words: Numbers) -> Tensor:
        """The vectors of words."""
        rows, lengths = self.rows_of(words)
        offsets = np.cumsum(lengths) - lengths
        weights = np.repeat(1 / np.maximum(1, lengths - 1), lengths).astype(np.float32)
        weights[offsets] = 1.0  # a word's own row comes first
        vectors: Tensor = self.parts(*map(torch.from_numpy, (rows, offsets, weights)))
        return vectors

    def rows_of(self, words: Numbers) -> tuple[Numbers, Numbers]:
        """The rows of words end to end, each word's own first, and how many each has."""
        return _gather(self._rows, self._starts, words)


@dataclass(frozen=True)
class Neighbours:
    """How often each word stands near each context, as rows of pairs that are not zero."""

    starts: Numbers
    """Where each word's pairs begin, and at last where the last one's end."""
    context: Numbers
    count: NDArray[np.float32]
    contexts: int

    @classmethod
    def count_in(
        cls, sentences: Sequence[Sequence[int]], words: int, settings: SkipGramSettings
    ) -> Neighbours:
        """Count over sentences of numbers of words; a neighbour counts less the farther it
        is, and a pair less the commoner its words are."""
        lengths = [len(sentence) for sentence in sentences]
        text = np.fromiter((n for one in sentences for n in one), np.int64, count=sum(lengths))
        sentence_of = np.repeat(np.arange(len(lengths)), lengths)
        seen = np.bincount(text, minlength=words)
        contexts = min(settings.contexts, words)
        context_of = np.full(words, -1)
        context_of[np.argsort(-seen, kind="stable")[:contexts]] = np.arange(contexts)
        kept = _share_kept(seen, settings.sampling)
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for distance in range(1, settings.window + 1):
            together = sentence_of[distance:] == sentence_of[:-distance]
            left, right = text[:-distance][together], text[distance:][together]
            weight = kept[left] * kept[right] * (1 - (distance - 1) / settings.window)
            for word, other in ((left, right), (right, left)):
                counted = context_of[other] >= 0
                keys.append(word[counted] * contexts + context_of[other[counted]])
                weights.append(weight[counted])
        pairs, place = np.unique(np.concatenate(keys), return_inverse=True)
        count = np.bincount(place.reshape(-1), np.concatenate(weights), minlength=len(pairs))
        starts = np.searchsorted(pairs, np.arange(words + 1) * contexts)
        return cls(starts, pairs % max(1, contexts), count.astype(np.float32), contexts)

    def rows(self, words: Numbers) -> Vectors:
        """The counts of these words with every context, (n, contexts)."""
        contexts, lengths = _gather(self.context, self.starts, words)
        counts, _ = _gather(self.count, self.starts, words)
        dense = np.zeros((len(words), self.contexts), np.float32)
        dense[np.repeat(np.arange(len(words)), lengths), contexts] = counts
        return dense


def skipgram_loss(
    scores: Tensor, counts: Tensor, drawn: Tensor, negatives: float, doubt: float
) -> Tensor:
    """Negative sampling in expectation, a mean over the neighbours of a word, then over words.

    ``scores`` and ``counts`` are (words, contexts). A word with n neighbours would
    have n x ``negatives`` contexts drawn for it, by the chances ``drawn``; of as many
    times ``doubt`` it is held possible that they are neighbours as well.
    """
    total = counts.sum(1, keepdim=True)
    far = negatives * total * drawn
    near = counts + doubt * far
    losses = near * F.softplus(-scores) + far * F.softplus(scores)
    return (losses.sum(1) / total.squeeze(1)).mean()


def learn_word_vectors(
    sentences: Sequence[Sequence[int]],
    words: Sequence[str],
    settings: SkipGramSettings | None = None,
    *,
    quiet: bool = True,
) -> Vectors:
    """A vector for each word, (n, width), from sentences of numbers of words.

    Words that no sentence has get what their parts have learned in others.
    """
    settings = settings or SkipGramSettings()
    if not len(words):
        return np.zeros((0, settings.width), np.float32)
    neighbours = Neighbours.count_in(sentences, len(words), settings)
    model = SkipGram(words, neighbours.contexts, settings)
    learned = np.flatnonzero(np.diff(neighbours.starts))  # words that have neighbours
    chances = np.bincount(neighbours.context, neighbours.count, neighbours.contexts) ** 0.75
    drawn = torch.from_numpy((chances / max(1e-12, chances.sum())).astype(np.float32))
    optimisers = [
        torch.optim.SparseAdam(list(model.parts.parameters()), lr=settings.learning_rate),
        torch.optim.Adam([model.contexts], lr=settings.learning_rate),
    ]
    generator = np.random.default_rng(settings.seed)
    steps_an_epoch = -(-len(learned) // settings.batch)
    steps = settings.epochs * steps_an_epoch
    with progress("learning word vectors", steps, quiet=quiet) as advance:
        for step in range(steps):
            place = step % steps_an_epoch
            if place == 0:
                order = generator.permutation(learned)
            batch = order[place * settings.batch : (place + 1) * settings.batch]
            for optimiser in optimisers:
                optimiser.param_groups[0]["lr"] = settings.learning_rate * (1 - step / steps)
                optimiser.zero_grad()
            scores = model(batch) @ model.contexts.T
            counts = torch.from_numpy(neighbours.rows(batch))
            loss = skipgram_loss(scores, counts, drawn, settings.negatives, settings.doubt)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimiser in optimisers:
                optimiser.step()
            advance(1)
    with torch.inference_mode():
        taught = torch.zeros(len(model.parts.weight), dtype=torch.bool)
        taught[torch.from_numpy(model.rows_of(learned)[0])] = True
        model.parts.weight[~taught] = 0  # rows that stayed as they were drawn
        blocks = np.array_split(np.arange(len(words)), 1 + len(words) // 1024)
        return np.concatenate([model(block).numpy() for block in blocks])


def _gather(
    values: NDArray[_Kind], starts: Numbers, rows: Numbers
) -> tuple[NDArray[_Kind], Numbers]:
    """The values of these rows end to end, and how many each has; row r's begin at starts[r]."""
    lengths = starts[rows + 1] - starts[rows]
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts[rows] - before, lengths) + np.arange(lengths.sum())
    return values[places], lengths


def _share_kept(counts: Numbers, sampling: float) -> NDArray[np.float64]:
    """How much each word counts: fully if it is rare, little if it is among the commonest."""
    frequency = counts / max(1, counts.sum())
    ratio = sampling / np.maximum(frequency, 1e-12)
    share: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return share
