"""A sentence read word by word: the language branch of the Embedding Network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from polyglance.nn.packing import Packing, to_device


class PackedGRU(nn.Module):
    """A GRU over packed sequences that returns the state after each sequence's last row.

    With ``both_ways`` the state of a second GRU, which reads backwards, stands beside it.
    """

    def __init__(self, rows_width: int, width: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.width = 2 * width if bidirectional else width
        self.gru = nn.GRU(rows_width, width, bidirectional=bidirectional)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """``(sequences, width)``; zero, the state at the start, for an empty sequence."""
        if not packing.num_tokens:
            return rows.new_zeros(len(packing), self.width)
        # Torch packs sequences step by step, the longest first: all first rows, all second rows.
        # How many go on at each step must be known before the accelerator begins.
        lengths = packing.lengths.cpu()
        steps = torch.arange(packing.max_seqlen)
        going_on = (lengths > steps[:, None]).sum(1)
        going_on = going_on[going_on > 0]
        order = lengths.argsort(descending=True, stable=True)
        rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
        before = going_on.cumsum(0) - going_on
        rank, before = (to_device(t, rows.device) for t in (rank, before))
        places = before[packing.positions] + rank[packing.sequence_ids]
        step_by_step = torch.empty_like(rows).index_copy(0, places, rows)
        last = torch.cat(list(self._states(step_by_step, going_on)), dim=1)
        # Empty sequences rank last and have no state of their own.
        return F.pad(last, (0, 0, 0, len(packing) - len(last)))[rank]

    def _states(self, rows: Tensor, going_on: Tensor) -> Tensor:
        """The last state of each direction.

        Under autocast cuDNN's GRU is always in float16, where small gradients vanish:
        this is in the precision that was asked for.
        """
        device = rows.device.type
        if not torch.is_autocast_enabled(device):
            states: Tensor = self.gru(PackedSequence(rows, going_on))[1]
            return states
        precision, ways = torch.get_autocast_dtype(device), 1 + self.gru.bidirectional
        weights = [weight.to(precision) for weight in self.gru.parameters()]
        begin = rows.new_zeros(ways, int(going_on[0]), self.gru.hidden_size, dtype=precision)
        with torch.autocast(device, enabled=False):
            return torch.gru(
                rows.to(precision), going_on, begin, weights, True, 1, 0.0, self.training, ways > 1
            )[1]


class SentenceGRU(nn.Module):
    """The final state of a GRU through a fully connected layer, of unit length."""

    def __init__(self, words_width: int, gru_width: int, width: int) -> None:
        super().__init__()
        self.words = PackedGRU(words_width, gru_width)
        self.output = nn.Linear(gru_width, width)

    def forward(self, rows: Tensor, sentences: Packing, languages: Tensor | None = None) -> Tensor:
        """One unit vector a sentence, whatever its language."""
        return F.normalize(self.output(self.words(rows, sentences)), dim=1)


class LanguageBranches(nn.Module):
    """A `SentenceGRU` for each language, as in parallel EmbN (Gella et al. 2017)."""

    def __init__(self, languages: int, words_width: int, gru_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.branches = nn.ModuleList(
            SentenceGRU(words_width, gru_width, width) for _ in range(languages)
        )

    def forward(self, rows: Tensor, sentences: Packing, languages: Tensor | None = None) -> Tensor:
        """One unit vector a sentence, by the branch of its language."""
        if languages is None:
            raise ValueError("a model with a branch a language must know each sentence's language")
        vectors = rows.new_zeros(len(sentences), self.width)
        for language, branch in enumerate(self.branches):
            own = (languages == language).nonzero().flatten()
            words = (languages[sentences.sequence_ids] == language).nonzero().flatten()
            packing = Packing.of(sentences.lengths[own], rows.device)
            found = branch(rows[words], packing).to(vectors.dtype)
            vectors = vectors.index_copy(0, own, found)
        return vectors
