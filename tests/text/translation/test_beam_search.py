"""Beam search with cached keys and values, against decoding everything again at each step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyglance.text.translation.beam_search import beam_search
from polyglance.text.translation.network import NetworkConfig, TranslationNetwork

END, TAG, VOCABULARY = 3, 4, 12


class EndingNetwork(TranslationNetwork):
    """Ends translations here and there, as an untrained network would not."""

    def logits(self, rows: Tensor) -> Tensor:
        scores = super().logits(rows).clone()
        scores[..., END] += 2 * rows[..., :2].sum(-1)
        return scores


@pytest.fixture(scope="module")
def network() -> TranslationNetwork:
    torch.manual_seed(3)
    config = NetworkConfig(
        hidden_size=16, num_heads=2, intermediate_size=32, encoder_layers=2, decoder_layers=2,
        max_tokens=16,
    )  # fmt: skip
    network = EndingNetwork(config, VOCABULARY)
    with torch.no_grad():  # else all rows are about the same
        for layer in (*network.encoder, *network.decoder):
            for parameter in layer.parameters():
                parameter.mul_(3 if parameter.ndim == 2 else 1)
    return network.eval()


@pytest.fixture(scope="module")
def sources() -> Tensor:
    torch.manual_seed(1)
    rows = torch.randint(5, VOCABULARY, (12, 7))
    rows[:, 0], rows[:, -1] = TAG, END
    for row, length in enumerate((3, 4, 5, 6)):
        rows[row, length - 1], rows[row, length:] = END, 0
    return rows


def log_probs(network: TranslationNetwork, source: Tensor, tokens: list[int]) -> Tensor:
    """Return the next token's log probabilities without padding, batch or cache."""
    source = source[source != 0][None]
    memory, mask = network.encode(source)
    rows = network.decode(torch.tensor([[TAG, *tokens]]), memory, mask)
    return network.logits(rows[0, -1]).log_softmax(-1)


def slow_beam_search(
    network: TranslationNetwork, source: Tensor, num_beams: int, penalty: float
) -> list[int]:
    limit = min(network.config.max_tokens, int((source != 0).sum()) * 2 + 10)
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for _ in range(limit):
        candidates = [
            (score + float(value), [*tokens, token])
            for score, tokens in live
            for token, value in enumerate(log_probs(network, source, tokens))
        ]
        candidates.sort(key=lambda one: -one[0])
        ended += [
            (score / len(tokens) ** penalty, tokens[:-1])
            for score, tokens in candidates[:num_beams]
            if tokens[-1] == END
        ]
        live = [one for one in candidates[: 2 * num_beams] if one[1][-1] != END][:num_beams]
        if len(ended) >= num_beams:
            break
    return max(ended, key=lambda one: one[0])[1] if ended else live[0][1]


@torch.inference_mode()
@pytest.mark.parametrize(("num_beams", "penalty"), [(1, 1.0), (3, 1.0), (3, 0.0)])
def test_batches_with_a_cache_equal_a_slow_search_of_single_sentences(
    network: TranslationNetwork, sources: Tensor, num_beams: int, penalty: float
) -> None:
    start = torch.full((len(sources),), TAG)
    found = beam_search(
        network, sources, start, end=END, num_beams=num_beams, length_penalty=penalty
    )
    expected = [slow_beam_search(network, source, num_beams, penalty) for source in sources]
    assert found == expected
    # Sentences end at different steps, and are dropped at different ones.
    assert len({len(tokens) for tokens in found}) > 3


@torch.inference_mode()
def test_one_beam_is_greedy_search(network: TranslationNetwork, sources: Tensor) -> None:
    (found,) = beam_search(network, sources[5:6], torch.tensor([TAG]), end=END, num_beams=1)
    tokens: list[int] = []
    while len(tokens) < network.config.max_tokens:
        token = int(log_probs(network, sources[5], tokens).argmax())
        if token == END:
            break
        tokens.append(token)
    assert found == tokens


@torch.inference_mode()
def test_padding_changes_nothing(network: TranslationNetwork, sources: Tensor) -> None:
    target = torch.tensor([[TAG, 7, 9, 0, 0]])
    memory, mask = network.encode(sources[:1])
    padded = network.decode(target, memory, mask)[0, :3]
    memory, mask = network.encode(sources[:1, :3])
    alone = network.decode(target[:, :3], memory, mask)[0]
    torch.testing.assert_close(padded, alone)
