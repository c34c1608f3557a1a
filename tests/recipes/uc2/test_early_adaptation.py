from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from polyglance.recipes.uc2.label_tokens import LabelTokens

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
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture
from polyglance.vision.store import FeatureStore, StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans

PICTURES = list(ToyDataset(seed=0, captions_per_language=1).pictures(300))


def label_words() -> LabelTokens:
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS)]
    names = {
        code: [GRAMMARS[code].join(GRAMMARS[code].label(thing)) for thing in things]
        for code in ("en", "de")
    }
    return LabelTokens(names, unigram_tokenizer([*names["en"], *names["de"]] * 3, pieces=120))


def test_regions_move_to_the_words_of_what_they_show_and_nothing_else_moves(
    tmp_path: Path,
) -> None:
    regions, held_out = region_table(PICTURES[:250]), region_table(PICTURES[250:], seed=1)
    torch.manual_seed(0)
    words = label_words()
    encoder = EncoderConfig(
        vocab_size=150,
        hidden_size=32,
        num_layers=1,
        num_heads=4,
        intermediate_size=64,
        max_position_embeddings=30,
    )
    model = UC2(UC2Config(encoder, WIDTH))
    # A detector that is sure of the right label, and else believes in a neighbour.
    labels = torch.stack([regions.labels, (regions.labels + 1) % LABELS], dim=1)
    shares = torch.tensor([[0.8, 0.1]]).repeat(len(labels), 1)
    believed = SoftLabels(torch.arange(len(labels)), labels, shares)
    task = EarlyAdaptationTask(
        model, regions, believed, words, languages=("en", "de"), batch=128, temperature=0.1
    )
    before = label_rank_statistics(model, held_out, words, ("en", "de"))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    config = LoopConfig(steps=150, learning_rate=1e-2, schedule="cosine", save_every=0)
    groups = [{"params": model.image_encoder_parameters()}]
    train_loop(model, Mixture({"ea": task}), config, tmp_path, param_groups=groups, quiet=True)
    after = label_rank_statistics(model, held_out, words, ("en", "de"))
    for language in ("en", "de"):
        assert 15 < before[language]["mean"] < 35  # half of 48 by chance
        assert after[language]["mean"] < 2.5
        assert after[language]["first"] > 60
        assert after[language]["median"] == 1
    moved = {
        name.split(".")[0]
        for name, value in model.state_dict().items()
        if not torch.equal(value, state[name])
    }
    assert moved == {"region_feature", "feature_norm", "region_box", "box_norm"}


def write_store(folder: Path, labels: int) -> FeatureStore:
    """Pictures of one, two and three regions, with their two likeliest labels."""
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
def test_what_the_detector_believes_lies_beside_the_table(
    tmp_path: Path, prepend_global: bool, max_regions: int | None
) -> None:
    store, keys = write_store(tmp_path / "store", 2), ["c", "a", "b"]
    table = RegionTable.from_store(
        store, keys, max_regions=max_regions, prepend_global=prepend_global
    )
    believed = SoftLabels.from_stores([(store, keys)], table)
    assert torch.equal(table.labels[believed.rows], believed.labels[:, 0])
    assert len(believed) == int((table.labels != NO_LABEL).sum())
    expected = {
        (True, 2): [30, 10, 20], (True, None): [30, 31, 32, 10, 20, 21],
        (False, 2): [30, 31, 10, 20, 21], (False, None): [30, 31, 32, 10, 20, 21],
    }  # fmt: skip
    assert believed.labels[:, 0].tolist() == expected[prepend_global, max_regions]
    assert believed.labels[:, 1].eq(7).all()
    with pytest.raises(ValueError, match="of other stores, or of other keys"):
        SoftLabels.from_stores([(store, ["a", "b", "c"])], table)


def test_beliefs_of_several_stores_follow_one_another(tmp_path: Path) -> None:
    parts = [
        (write_store(tmp_path / "some", 2), ["c", "a"]),
        (write_store(tmp_path / "more", 1), ["b"]),
    ]
    table = RegionTable.concat([RegionTable.from_store(store, keys) for store, keys in parts])
    believed = SoftLabels.from_stores(parts, table)
    assert believed.labels.tolist() == [[30], [31], [32], [10], [20], [21]]
    assert torch.equal(table.labels[believed.rows], believed.labels[:, 0])
    assert believed.probabilities.shape == believed.labels.shape


def test_a_store_without_labels_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 0)
    table = RegionTable.from_store(store, ["a"])
    with pytest.raises(PolyglanceError, match="has no labels of regions"):
        SoftLabels.from_stores([(store, ["a"])], table)
