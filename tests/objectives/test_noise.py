from __future__ import annotations

import torch

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.noise import noise_features, noise_tokens


def test_five_percent_of_tokens_are_masked_but_not_special_ones() -> None:
    lengths = [3, 40, 2, 60] * 500
    sentences = Packing.of(lengths)
    ids = torch.randint(10, 99, (sentences.num_tokens,))
    draws = ItemDraws.of(0, len(lengths))
    noised = noise_tokens(ids, sentences, draws, mask_id=5)
    changed = noised != ids
    assert set(noised[changed].tolist()) == {5}
    rate = changed.sum().item() / (sentences.num_tokens - 2 * len(lengths))
    assert abs(rate - 0.05) < 0.003
    everything = noise_tokens(ids, sentences, draws, mask_id=5, rate=1.0)
    unchanged = (everything == ids).nonzero().flatten().tolist()
    ends = sentences.cu_seqlens.tolist()
    assert unchanged == sorted({*ends[:-1], *(end - 1 for end in ends[1:])})


def test_whole_rows_of_features_are_zeroed() -> None:
    features = torch.rand(20_000, 3) + 0.1
    clips = Packing.of([10] * 2000)
    noised = noise_features(features, clips, ItemDraws.of(0, 2000), rate=0.1)
    gone = (noised == 0).all(1)
    assert torch.equal(noised[~gone], features[~gone])
    assert abs(gone.float().mean().item() - 0.1) < 0.01
