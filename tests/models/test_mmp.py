from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective, mmp_losses
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.nce import nce
from polyglance.objectives.triplet import triplet

ENCODER = EncoderConfig(
    vocab_size=40,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=20,
    dropout=0.0,
)
CONFIG = MMPConfig(
    encoder=ENCODER, text_layer=2, frozen_layers=1, visual_width=6, width=24, dropout=0.0
)


def make(config: MMPConfig = CONFIG) -> MMP:
    torch.manual_seed(0)
    return MMP(config).eval()


def sentences(lengths: list[int], seed: int) -> Text:
    packing = Packing.of(lengths)
    generator = torch.Generator().manual_seed(seed)
    return Text(torch.randint(4, 39, (packing.num_tokens,), generator=generator), packing)


X, Y = sentences([3, 5, 2], 0), sentences([4, 4, 6], 1)
CLIPS = Packing.of([2, 1, 7])
DRAWS = ItemDraws.of(0, len(CLIPS))
FEATURES = torch.randn(10, 6, generator=torch.Generator().manual_seed(2))


def test_both_towers_return_unit_vectors_of_one_size() -> None:
    model = make()
    text, visual = model.encode_text(X.ids, X.packing), model.encode_visual(FEATURES, CLIPS)
    assert text.shape == visual.shape == (3, 24)
    torch.testing.assert_close(text.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(visual.norm(dim=1), torch.ones(3))


def test_later_layers_are_unused_and_frozen_layers_stay() -> None:
    model = make()
    before = model.encode_text(X.ids, X.packing)
    torch.nn.init.normal_(model.encoder.layers[2].widen.weight)
    assert torch.equal(before, model.encode_text(X.ids, X.packing))
    model.encode_text(X.ids, X.packing).sum().backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None}
    assert not any(name.startswith(("encoder.words", "encoder.layers.0")) for name in moved)
    assert any(name.startswith("encoder.layers.1") for name in moved)


def test_shared_pooling_is_one_head() -> None:
    shared = MMP(replace(CONFIG, share_pooling=True))
    assert shared.text_pooling is shared.visual_pooling


def test_mean_pooling_starts_as_the_mean_of_sub_words() -> None:
    """Before training, the pooled vector keeps the encoder's multilingual space."""
    model = make(replace(CONFIG, text_pooling="mean", width=16))
    vectors = model.encode_text(X.ids, X.packing)
    rows = model.encoder(X.ids, X.packing, layer=CONFIG.text_layer)
    for vector, own in zip(vectors, rows.split(X.packing.lengths.tolist()), strict=True):
        torch.testing.assert_close(vector, own.mean(0) / own.mean(0).norm())
    losses = mmp_losses(model, FEATURES, CLIPS, [X, Y], MMPObjective(cross=True, mask_id=39), DRAWS)
    assert all(loss.isfinite() for loss in losses.values())
    shared = make(replace(CONFIG, text_pooling="mean", share_pooling=True))
    visual = shared.visual_input(FEATURES).split(CLIPS.lengths.tolist())
    expected = torch.stack([own.mean(0) / own.mean(0).norm() for own in visual])
    torch.testing.assert_close(shared.encode_visual(FEATURES, CLIPS), expected)


def one_by_one(model: MMP, text: Text, clips: bool = False) -> torch.Tensor:
    """Compute c_x (or c_x|v) of each sentence by itself, from the definition."""
    vectors = []
    pieces = text.ids.split(text.packing.lengths.tolist())
    visual = model.visual_input(FEATURES).split(CLIPS.lengths.tolist())
    for ids, rows in zip(pieces, visual, strict=True):
        own = Packing.of([len(ids)])
        context = (rows, Packing.of([len(rows)])) if clips else ()
        vectors.append(model.pool_text(model.encode_tokens(ids, own), own, *context))
    return torch.cat(vectors)


@pytest.mark.parametrize("loss", ["nce", "triplet"])
def test_losses_are_equations_4_and_6(loss: str) -> None:
    model = make()
    objective = MMPObjective(loss=loss, cross=True, intra=False)  # type: ignore[arg-type]
    losses = mmp_losses(model, FEATURES, CLIPS, [X, Y], objective, DRAWS)
    contrast = nce if loss == "nce" else triplet
    visual = torch.cat([
        model.encode_visual(rows, Packing.of([len(rows)]))
        for rows in FEATURES.split(CLIPS.lengths.tolist())
    ])  # fmt: skip
    x, y = one_by_one(model, X), one_by_one(model, Y)
    expected = contrast(x, visual) + contrast(y, visual)
    torch.testing.assert_close(losses["inter"], expected, atol=1e-6, rtol=1e-6)
    cross = contrast(one_by_one(model, X, clips=True), one_by_one(model, Y, clips=True))
    torch.testing.assert_close(losses["cross"], cross, atol=1e-6, rtol=1e-6)
    assert set(losses) == {"inter", "cross"}


def test_equation_6_needs_two_captions() -> None:
    with pytest.raises(ValueError, match="two captions per clip, not 1"):
        mmp_losses(make(), FEATURES, CLIPS, [X], MMPObjective(cross=True, intra=False), DRAWS)


def test_an_empty_batch_has_empty_vectors() -> None:
    model, nothing = make(), Packing.of([])
    assert model.encode_text(torch.zeros(0, dtype=torch.long), nothing).shape == (0, 24)
    assert model.encode_visual(torch.zeros(0, 6), nothing).shape == (0, 24)


def test_intra_loss_compares_with_noised_copies() -> None:
    model = make()
    still = mmp_losses(model, FEATURES, CLIPS, [X], MMPObjective(noise=0.0), DRAWS)
    x, v = model.encode_text(X.ids, X.packing), model.encode_visual(FEATURES, CLIPS)
    torch.testing.assert_close(still["intra"], nce(x, x) + nce(v, v), atol=1e-6, rtol=1e-6)
    noisy = mmp_losses(model, FEATURES, CLIPS, [X], MMPObjective(noise=0.5, mask_id=39), DRAWS)
    assert noisy["intra"] > still["intra"]
    torch.testing.assert_close(noisy["inter"], still["inter"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 30}, "a width of 30 does not divide into 4 heads"),
        ({"text_layer": 4}, "text_layer is 4 and the encoder has 3 layers"),
        ({"frozen_layers": 9}, "frozen_layers is 9 and the encoder has 3 layers"),
        ({"pooling_heads": 0}, "pooling_heads is 0: give 1 or more"),
        ({"width": 0}, "width is 0: give 1 or more"),
        ({"dropout": 1}, "dropout is 1: give a share from 0 to less than 1"),
    ],
)
def test_an_impossible_shape_raises_a_clear_error(change: dict[str, int], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        MMPConfig(**{**CONFIG.__dict__, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -0.1),
        ("noise", -0.01),
        ("noise", 1.0),
        ("margin", -0.2),
    ],
)
def test_an_objective_out_of_bounds_raises_a_clear_error(setting: str, value: float) -> None:
    with pytest.raises(PolyglanceError, match=f"{setting} is {value}: give "):
        MMPObjective(**{setting: value})  # type: ignore[arg-type]


def test_noise_depends_on_the_key_of_the_step() -> None:
    """A resumed run draws the same noise as an uninterrupted one."""

    model, objective = make(), MMPObjective(noise=0.5, mask_id=39)

    def intra(key: int) -> float:
        draws = ItemDraws.of(key, len(CLIPS))
        return mmp_losses(model, FEATURES, CLIPS, [X], objective, draws)["intra"].item()

    assert intra(3) == intra(3)
    assert intra(3) != intra(4)


def test_pooling_heads_may_differ_in_depth() -> None:
    """Table 2: two layers for text, one for clips; shared heads have one depth."""
    model = make(replace(CONFIG, visual_pooling_layers=1))
    assert (len(model.text_pooling.layers), len(model.visual_pooling.layers)) == (2, 1)
    assert "visual_pooling_layers" not in CONFIG.to_json()  # older versions read it
    stored = replace(CONFIG, visual_pooling_layers=1).to_json()
    assert MMPConfig.from_json(stored).visual_pooling_layers == 1
    assert MMPConfig.from_json(CONFIG.to_json()).visual_pooling_layers is None
    with pytest.raises(PolyglanceError, match="one shared pooling head cannot have 2 and 1"):
        replace(CONFIG, share_pooling=True, visual_pooling_layers=1)
    with pytest.raises(PolyglanceError, match="visual_pooling_layers is 0: give 1 or more"):
        replace(CONFIG, visual_pooling_layers=0)
