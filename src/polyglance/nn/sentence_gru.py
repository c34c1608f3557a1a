"""GRUs over packed sentences: the language branch of the Embedding Network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from polyglance.nn.packing import Packing, to_device


class PackedGRU(nn.Module):
    """A GRU over packed sequences that returns each sequence's final state.

    If ``bidirectional``, the final states of both directions are concatenated.
    """

    def __init__(self, input_width: int, width: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.width = 2 * width if bidirectional else width
        self.gru = nn.GRU(input_width, width, bidirectional=bidirectional)

    def forward(self, rows: Tensor, packing: Packing) -> Tensor:
        """Return ``(sequences, width)``; zeros, the initial state, for an empty sequence."""
        if not packing.num_tokens:
            return rows.new_zeros(len(packing), self.width)
        # torch's PackedSequence is time-major, the longest sequence first, and needs its batch
        # sizes on the CPU.
        lengths = packing.lengths.cpu()
        steps = torch.arange(packing.max_seqlen)
        batch_sizes = (lengths > steps[:, None]).sum(1)
        batch_sizes = batch_sizes[batch_sizes > 0]
        order = lengths.argsort(descending=True, stable=True)
        rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
        starts = batch_sizes.cumsum(0) - batch_sizes
        rank, starts = (to_device(t, rows.device) for t in (rank, starts))
        time_major = starts[packing.positions] + rank[packing.sequence_ids]
        sorted_rows = torch.empty_like(rows).index_copy(0, time_major, rows)
        last = torch.cat(list(self._final_states(sorted_rows, batch_sizes)), dim=1)
        # Empty sequences rank last and have no state.
        return F.pad(last, (0, 0, 0, len(packing) - len(last)))[rank]

    def _final_states(self, rows: Tensor, batch_sizes: Tensor) -> Tensor:
        """Return the final state of each direction, ``(directions, sequences, width)``.

        Under autocast, cuDNN's GRU always runs in float16, where small gradients vanish; this
        runs in autocast's own dtype.
        """
        device = rows.device.type
        if not torch.is_autocast_enabled(device):
            states: Tensor = self.gru(PackedSequence(rows, batch_sizes))[1]
            return states
        dtype, directions = torch.get_autocast_dtype(device), 1 + self.gru.bidirectional
        weights = [weight.to(dtype) for weight in self.gru.parameters()]
        initial = rows.new_zeros(directions, int(batch_sizes[0]), self.gru.hidden_size, dtype=dtype)
        with torch.autocast(device, enabled=False):
            return torch.gru(
                rows.to(dtype),
                batch_sizes,
                initial,
                weights,
                True,
                1,
                0.0,
                self.training,
                directions > 1,
            )[1]


class SentenceGRU(nn.Module):
    """The final state of a GRU through a linear layer, scaled to unit length."""

    def __init__(self, words_width: int, gru_width: int, width: int) -> None:
        super().__init__()
        self.words = PackedGRU(words_width, gru_width)
        self.output = nn.Linear(gru_width, width)

    def forward(self, rows: Tensor, sentences: Packing, languages: Tensor | None = None) -> Tensor:
        """Return a unit vector per sentence, ``(sentences, width)``; ``languages`` is ignored."""
        return F.normalize(self.output(self.words(rows, sentences)), dim=1)


class LanguageBranches(nn.Module):
    """One `SentenceGRU` per language, as in parallel EmbN (Gella et al. 2017)."""

    def __init__(self, languages: int, words_width: int, gru_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.branches = nn.ModuleList(
            SentenceGRU(words_width, gru_width, width) for _ in range(languages)
        )

    def forward(self, rows: Tensor, sentences: Packing, languages: Tensor | None = None) -> Tensor:
        """Return a unit vector per sentence, by the branch of its language."""
        if languages is None:
            raise ValueError("a branch per language needs the language of each sentence")
        vectors = rows.new_zeros(len(sentences), self.width)
        for language, branch in enumerate(self.branches):
            own = (languages == language).nonzero().flatten()
            words = (languages[sentences.sequence_ids] == language).nonzero().flatten()
            packing = Packing.of(sentences.lengths[own], rows.device)
            encoded = branch(rows[words], packing).to(vectors.dtype)
            vectors = vectors.index_copy(0, own, encoded)
        return vectors
