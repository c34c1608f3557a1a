"""Beam search over many sentences at once, with cached keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyglance.text.translation.network import KeyValues, TranslationNetwork


@dataclass
class _Beams:
    """The hypotheses of some sentences while they grow; ``n`` sentences, ``k`` beams."""

    sentences: Tensor
    """``(n,)``: numbers in the batch."""
    limits: Tensor
    """``(n,)``: longest translation of each."""
    tokens: Tensor
    """``(n, k, steps)``."""
    scores: Tensor
    """``(n, k)``: sums of log probabilities."""
    finished: Tensor
    """``(n,)``: hypotheses that have ended."""
    best_scores: Tensor
    """``(n,)``: of the best that has ended, divided by its length."""
    best: Tensor
    """``(n, steps)``: its tokens, padded with 0."""
    caches: list[KeyValues]
    memory: list[KeyValues]
    mask: Tensor

    def keep(self, rows: Tensor) -> None:
        """Drop all sentences but some."""
        num_beams = self.tokens.shape[1]
        for name in ("sentences", "limits", "tokens", "scores", "finished", "best_scores", "best"):
            setattr(self, name, getattr(self, name)[rows])
        self.mask = self.mask[rows]
        beams = (rows[:, None] * num_beams + torch.arange(num_beams, device=rows.device)).flatten()
        self.caches = [(key[beams], value[beams]) for key, value in self.caches]
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]


@torch.inference_mode()
def beam_search(
    network: TranslationNetwork,
    source: Tensor,
    start: Tensor,
    *,
    end: int,
    num_beams: int = 5,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """Translate sources together.

    A sentence is complete once as many hypotheses have ended as there are beams, or at its
    longest length, twice that of its source and ten. One beam is greedy search.

    Args:
        network: in evaluation mode.
        source: ``(batch, steps)``, padded with 0.
        start: ``(batch,)``, the first token of each translation: the tag of its language.
        end: the token that ends a translation.
        num_beams: hypotheses kept for each sentence.
        length_penalty: scores are divided by the length to this power.

    Returns:
        The tokens of each translation, without start and end.
    """
    max_steps = network.config.max_tokens
    limits = ((source != 0).sum(1) * 2 + 10).clamp(max=max_steps)
    longest = int(limits.max())
    beams = _begin(network, source, start, limits, num_beams, longest)
    results: list[list[int]] = [[] for _ in range(len(source))]
    for step in range(longest):
        rows = network.decode_step(
            beams.tokens[:, :, -1], step, beams.caches, beams.memory, beams.mask
        )
        _extend(beams, network.logits(rows), step, end, length_penalty)
        done = (beams.finished >= num_beams) | (step + 1 >= beams.limits)
        num_left = len(done) - int(done.sum())
        # Completed sentences are dropped only now and then: that copies the others.
        if num_left == 0 or num_left <= len(done) // 2 or step + 1 == longest:
            _collect(beams, done, results, end)
            if num_left == 0:
                break
            beams.keep((~done).nonzero().flatten())
    return results


def _begin(
    network: TranslationNetwork,
    source: Tensor,
    start: Tensor,
    limits: Tensor,
    num_beams: int,
    longest: int,
) -> _Beams:
    memory, mask = network.encode(source)
    key_values = network.memory_key_values(memory)
    count, device = len(source), source.device
    heads, head_size = key_values[0][0].shape[1], key_values[0][0].shape[3]
    shape = (count * num_beams, heads, longest, head_size)
    scores = torch.full((count, num_beams), -torch.inf, device=device)
    scores[:, 0] = 0.0  # all beams begin alike: let one of them branch
    return _Beams(
        sentences=torch.arange(count, device=device),
        limits=limits,
        tokens=start[:, None, None].expand(count, num_beams, 1),
        scores=scores,
        finished=torch.zeros(count, dtype=torch.long, device=device),
        best_scores=torch.full((count,), -torch.inf, device=device),
        best=torch.zeros(count, longest, dtype=torch.long, device=device),
        caches=[(memory.new_empty(shape), memory.new_empty(shape)) for _ in network.decoder],
        memory=key_values,
        mask=mask,
    )


def _extend(beams: _Beams, logits: Tensor, step: int, end: int, length_penalty: float) -> None:
    """Take the best continuations of all hypotheses, in place."""
    count, num_beams, _ = logits.shape
    top, tokens = logits.topk(2 * num_beams, dim=-1)  # before the softmax, over fewer numbers
    log_probs = top.float() - torch.logsumexp(logits.float(), dim=-1, keepdim=True)
    scores, chosen = (beams.scores[:, :, None] + log_probs).flatten(1).topk(2 * num_beams, dim=1)
    parents = chosen // (2 * num_beams)
    tokens = tokens.flatten(1).gather(1, chosen)
    ends = tokens == end
    # A hypothesis ends only where its end is among the best: so one beam is greedy search.
    ended = ends & (torch.arange(2 * num_beams, device=ends.device) < num_beams)
    ended &= scores > -torch.inf
    complete = (beams.finished >= num_beams) | (step >= beams.limits)
    ended &= ~complete[:, None]
    beams.finished = beams.finished + ended.sum(1)
    normed = (scores / (step + 1) ** length_penalty).masked_fill(~ended, -torch.inf)
    best_scores, best = normed.max(1)
    better = best_scores > beams.best_scores
    history = beams.tokens.gather(
        1, parents.gather(1, best[:, None])[:, :, None].expand(-1, -1, step + 1)
    )[:, 0, 1:]
    beams.best[:, :step] = torch.where(better[:, None], history, beams.best[:, :step])
    beams.best[:, step] = torch.where(better, end, beams.best[:, step])
    beams.best_scores = torch.maximum(best_scores, beams.best_scores)
    # The first beams that go on; 2k candidates hold at most k ends.
    order = ends.to(torch.int8).sort(dim=1, stable=True).indices[:, :num_beams]
    beams.scores, parents = scores.gather(1, order), parents.gather(1, order)
    history = beams.tokens.gather(1, parents[:, :, None].expand(-1, -1, step + 1))
    beams.tokens = torch.cat((history, tokens.gather(1, order)[:, :, None]), dim=2)
    if num_beams > 1:
        offsets = torch.arange(count, device=parents.device)[:, None] * num_beams
        rows = (offsets + parents).flatten()
        for key_values in beams.caches:
            for store in key_values:
                store[:, :, : step + 1] = store[rows, :, : step + 1]


def _collect(beams: _Beams, done: Tensor, results: list[list[int]], end: int) -> None:
    """Store the translations of completed sentences: the best ended, else the best begun."""
    rows = done.nonzero().flatten()
    ended = (beams.best_scores[rows] > -torch.inf).tolist()
    best, begun = beams.best[rows].tolist(), beams.tokens[rows, 0, 1:].tolist()
    numbers, limits = beams.sentences[rows].tolist(), beams.limits[rows].tolist()
    for number, limit, has_ended, whole, partial in zip(
        numbers, limits, ended, best, begun, strict=True
    ):
        results[number] = whole[: whole.index(end)] if has_ended else partial[:limit]
