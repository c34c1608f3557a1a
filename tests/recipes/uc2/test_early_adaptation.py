"""UC2's first stage: regions move to the word embeddings of their labels."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.text_encoder import unigram_tokenizer
from helpers.toy_regions import LABELS, WIDTH, region_table
from polyglance.batches.regions import RegionTable
from polyglance.data.toy import Thing, ToyDataset
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.recipes.uc2.early_adaptation import (
    EarlyAdaptationTask,
    SoftLabels,
    label_rank_statistics,
)
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture
from polyglance.vision.store import FeatureStore, StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans


def label_tokens() -> LabelTokens:
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS)]
    names = {
        code: [GRAMMARS[code].join(GRAMMARS[code].label(thing)) for thing in things]
        for code in ("en", "de")
    }
    return LabelTokens(names, unigram_tokenizer([*names["en"], *names["de"]] * 3, pieces=120))


def test_only_the_image_encoder_moves_towards_label_names(
    tmp_path: Path,
) -> None:
    pictures = list(ToyDataset(seed=0, captions_per_language=1).pictures(300))
    regions, held_out = region_table(pictures[:250]), region_table(pictures[250:], seed=1)
    torch.manual_seed(0)
    names = label_tokens()
    encoder = EncoderConfig(
        vocab_size=150,
        hidden_size=32,
        num_layers=1,
        num_heads=4,
        intermediate_size=64,
        max_position_embeddings=30,
    )
    model = UC2(UC2Config(encoder, WIDTH))
    # A detector with most probability on the right label and some on the next one.
    labels = torch.stack([regions.labels, (regions.labels + 1) % LABELS], dim=1)
    probabilities = torch.tensor([[0.8, 0.1]]).repeat(len(labels), 1)
    soft_labels = SoftLabels(torch.arange(len(labels)), labels, probabilities)
    task = EarlyAdaptationTask(
        model, regions, soft_labels, names, languages=("en", "de"), batch=128, temperature=0.1
    )
    before = label_rank_statistics(model, held_out, names, ("en", "de"))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    config = LoopConfig(steps=150, learning_rate=1e-2, schedule="cosine", save_every=0)
    groups = [{"params": model.image_encoder_parameters()}]
    train_loop(
        model,
        Mixture({"early_adaptation": task}),
        config,
        tmp_path,
        param_groups=groups,
        quiet=True,
    )
    after = label_rank_statistics(model, held_out, names, ("en", "de"))
    for language in ("en", "de"):
        assert 15 < before[language]["mean"] < 35  # by chance half of 48
        assert after[language]["mean"] < 2.5
        assert after[language]["first"] > 60
        assert after[language]["median"] == 1
    changed = {
        name.split(".")[0]
        for name, value in model.state_dict().items()
        if not torch.equal(value, state[name])
    }
    assert changed == {"region_feature", "feature_norm", "region_box", "box_norm"}


def write_store(folder: Path, labels: int) -> FeatureStore:
    """Write images of one, two and three regions, with their two most probable labels."""
    keys = ["a", "b", "c"]
    info = StoreInfo({"backbone": "toy"}, 4, "float16", labels, 2, 3, hash_keys(keys))
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        tokens = []
        for key in writer.keys_of(number):
            count = 1 + keys.index(key)
            ids = np.array([[10 * count + row, 7] for row in range(count)], np.uint16)
            tokens.append(
                VisualTokens(
                    features=np.ones((count, 4), np.float16),
                    boxes=np.zeros((count, 4), np.float32),
                    global_feature=np.ones(4, np.float16),
                    label_ids=ids[:, :labels],
                    label_probs=np.full((count, labels), 0.5, np.float16),
                    spans=zero_spans(count),
                )
            )
        writer.write(number, tokens)
    writer.finish()
    return FeatureStore(folder)


@pytest.mark.parametrize("prepend_global", [True, False])
@pytest.mark.parametrize("max_regions", [2, None])
def test_soft_labels_follow_the_region_table(
    tmp_path: Path, prepend_global: bool, max_regions: int | None
) -> None:
    store, keys = write_store(tmp_path / "store", 2), ["c", "a", "b"]
    table = RegionTable.from_store(
        store, keys, max_regions=max_regions, prepend_global=prepend_global
    )
    soft_labels = SoftLabels.from_stores([(store, keys)], table)
    assert torch.equal(table.labels[soft_labels.rows], soft_labels.labels[:, 0])
    assert len(soft_labels) == int((table.labels != NO_LABEL).sum())
    expected = {
        (True, 2): [30, 10, 20], (True, None): [30, 31, 32, 10, 20, 21],
        (False, 2): [30, 31, 10, 20, 21], (False, None): [30, 31, 32, 10, 20, 21],
    }  # fmt: skip
    assert soft_labels.labels[:, 0].tolist() == expected[prepend_global, max_regions]
    assert soft_labels.labels[:, 1].eq(7).all()
    with pytest.raises(ValueError, match="of other stores, or of other keys"):
        SoftLabels.from_stores([(store, ["a", "b", "c"])], table)


def test_soft_labels_of_several_stores_are_concatenated(tmp_path: Path) -> None:
    parts = [
        (write_store(tmp_path / "some", 2), ["c", "a"]),
        (write_store(tmp_path / "more", 1), ["b"]),
    ]
    table = RegionTable.concat([RegionTable.from_store(store, keys) for store, keys in parts])
    soft_labels = SoftLabels.from_stores(parts, table)
    assert soft_labels.labels.tolist() == [[30], [31], [32], [10], [20], [21]]
    assert torch.equal(table.labels[soft_labels.rows], soft_labels.labels[:, 0])
    assert soft_labels.probabilities.shape == soft_labels.labels.shape


def test_store_without_labels_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 0)
    table = RegionTable.from_store(store, ["a"])
    with pytest.raises(PolyglanceError, match="has no labels of regions"):
        SoftLabels.from_stores([(store, ["a"])], table)
