"""The stages of a recipe on random weights, captions and regions, of the shapes it trains on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polyglance.batches.regions import RegionTable
from polyglance.config import validate_fields
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.m3p import reference_encoder as m3p_encoder
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.uc2 import reference_encoder as uc2_encoder
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.pretrained import read_encoder_config
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe
from polyglance.recipes.cross_encoder.data import ENGLISH, Split, SplitReader, bert_masking
from polyglance.recipes.cross_encoder.distillation import DistillationTask, TeacherVectors
from polyglance.recipes.cross_encoder.word_head import WordHeadTask
from polyglance.recipes.m3p import train as m3p_train
from polyglance.recipes.m3p.config import M3PRecipe
from polyglance.recipes.m3p.data import M3PData
from polyglance.recipes.stages import Stage, parameter_groups, stage_loop
from polyglance.recipes.uc2 import train as uc2_train
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.recipes.uc2.data import UC2Data
from polyglance.recipes.uc2.early_adaptation import SoftLabels
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.text import Tokenizer
from polyglance.training.mixture import Mixture
from polyglance.weights import folder

_XLMR_BASE = EncoderConfig()
SHAPES = {
    "xlm-roberta-base": _XLMR_BASE,
    "xlm-roberta-large": replace(
        _XLMR_BASE, hidden_size=1024, num_layers=24, num_heads=16, intermediate_size=4096
    ),
    "bert-base-multilingual-cased": replace(
        _XLMR_BASE, vocab_size=119_547, max_position_embeddings=512, first_position=0,
        type_vocab_size=2, norm_eps=1e-12,
    ),
    "e5-small": replace(
        _XLMR_BASE, vocab_size=250_037, hidden_size=384, intermediate_size=1536,
        max_position_embeddings=512, first_position=0, type_vocab_size=2, norm_eps=1e-12,
    ),
}  # fmt: skip
"""Shapes of encoders that need not be at hand."""
_LANGUAGES = (ENGLISH, "de", "fr", "cs", "ja", "zh")
_STAGES = (
    "word_head", "contrastive_stage", "early_adaptation", "pretraining", "distillation",
    "fine_tuning",
)  # fmt: skip
"""Settings of stages, which have a ``batch``."""
_TEACHER_WIDTH = 64
_LENGTH_SPREAD, _MAX_LENGTH_FACTOR = 1 / 3, 3.4
"""Standard deviation and maximum of caption lengths, by their mean."""


@dataclass(frozen=True)
class CorpusShape:
    """What a step's cost depends on in a corpus."""

    mean_tokens: int = 18
    """Sub-words of a caption, special tokens included."""
    regions: int = 36
    """Regions of an image."""
    region_width: int = 2048
    """The size of a region's vector."""
    labels_per_region: int = 1
    """Labels that the store keeps for each region."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 3, "3 or more", "mean_tokens")
        counts = ("regions", "region_width", "labels_per_region")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)


class SyntheticTokenizer:
    """The special ids of a vocabulary; every text has two random tokens."""

    bos_id, pad_id, eos_id, unk_id = 0, 1, 2, 3

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.mask_id = vocab_size, vocab_size - 1

    def encode_batch(self, texts: Sequence[str], **_: Any) -> list[list[int]]:
        """Return two random token ids per text."""
        ids = np.random.default_rng(2).integers(4, self.mask_id, (len(texts), 2))
        return cast(list[list[int]], ids.tolist())


@dataclass(frozen=True, eq=False)
class SyntheticRun:
    """A model with random weights, and the recipe's stages on random data."""

    model: nn.Module
    stages: list[Stage]
    stage_models: Mapping[str, nn.Module] = field(default_factory=dict)
    """Of stages that train something else than the model, by name."""

    def model_of(self, stage: Stage) -> nn.Module:
        """Return what a stage trains."""
        return self.stage_models.get(stage.name, self.model)


def encoder_shape(name: str) -> EncoderConfig:
    """Return the shape of an encoder: from its folder, if that is at hand, else by its name."""
    if (Path(name) / "config.json").is_file():
        return read_encoder_config(name)
    if (known := SHAPES.get(Path(name).name)) is not None:
        return known
    try:
        return read_encoder_config(folder(name))
    except PolyglanceError as error:
        raise PolyglanceError(
            f"the shape of {name} is not known: set encoder to its folder, or to one of"
            f" {', '.join(SHAPES)}"
        ) from error


def stage_batch(recipe: CrossEncoderRecipe, stage: str) -> int:
    """Return the batch of a stage by its name in the report."""
    return int(getattr(recipe, "pretraining" if stage == "itm_only" else stage).batch)


def limited_batch(batch: int, accelerators: int, limit: int | None) -> int:
    """Return one accelerator's share of a batch, or the limit if that is smaller; at least 2."""
    share = -(-batch // accelerators)
    return max(2, share if limit is None else min(share, limit))


def with_batch_limit(recipe: CrossEncoderRecipe, accelerators: int, limit: int | None) -> Any:
    """Return the recipe with each stage's share of one accelerator as its batch.

    Args:
        recipe: with the batches of all accelerators.
        accelerators: over which each batch is split.
        limit: a smaller batch to probe with; None for the share itself.
    """
    changed: dict[str, Any] = {}
    for name in _STAGES:
        if (stage := getattr(recipe, name, None)) is None:
            continue
        batch = limited_batch(stage.batch, accelerators, limit)
        changes: dict[str, Any] = {"batch": batch}
        if hasattr(stage, "epochs"):  # of captions that are not read: the loop says how many steps
            changes["epochs"] = None
        if texts := getattr(stage, "text_batch", 0):
            changes["text_batch"] = max(1, round(texts * batch / stage.batch))
        changed[name] = replace(stage, **changes)
    return replace(recipe, **changed)


def build_run(recipe: CrossEncoderRecipe, corpus: CorpusShape, device: str) -> SyntheticRun:
    """Build the recipe's model and stages; nothing is read but an encoder's ``config.json``.

    Captions are not code-switched, which changes words but not the work of a step.

    Args:
        recipe: of UC2 or M3P, with the batches to probe.
        corpus: the shape of captions and regions.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    shape = encoder_shape(recipe.encoder)
    if recipe.dropout is not None:
        shape = replace(shape, dropout=recipe.dropout)
    images = _num_images(recipe, corpus)
    tokenizer = cast(Tokenizer, SyntheticTokenizer(shape.vocab_size))
    languages = _languages(recipe)
    split = Split(
        [],
        random_regions(images, corpus, device, labels=_num_labels(recipe)),
        random_captions(images, corpus, shape.vocab_size, languages, recipe.max_text_tokens),
        [],
    )
    reader = SplitReader.from_recipe(recipe, Path(), tokenizer, device)
    # A run that begins with other weights has no stage for the word head; it is added below.
    plain = replace(recipe, distillation=None, word_head=None, initialise_from="random")
    model: CrossEncoderModel
    if isinstance(plain, UC2Recipe):
        model = UC2(_uc2_config(plain, shape, corpus)).to(device)
        stages = uc2_train.build_stages(plain, model, _uc2_data(plain, split, reader, corpus))
    else:
        assert isinstance(plain, M3PRecipe)
        data = M3PData(reader, tokenizer, split, None, None, split.captions, None)
        model = M3P(_m3p_config(plain, shape, corpus, data.languages)).to(device)
        stages = m3p_train.build_stages(_without_switching(plain), model, data)
    return SyntheticRun(model, _with_further_stages(recipe, model, split, stages, tokenizer))


def _uc2_config(recipe: UC2Recipe, shape: EncoderConfig, corpus: CorpusShape) -> UC2Config:
    return UC2Config(
        uc2_encoder(shape) if recipe.variant == "reference" else shape,
        corpus.region_width,
        variant=recipe.variant,
        word_transform=recipe.predicts_words,
        tlm_positions=None if recipe.pretraining is None else recipe.pretraining.tlm_positions,
    )


def _m3p_config(
    recipe: M3PRecipe, shape: EncoderConfig, corpus: CorpusShape, languages: tuple[str, ...]
) -> M3PConfig:
    reference = recipe.variant == "reference"
    return M3PConfig(
        encoder=m3p_encoder(shape) if reference else shape,
        languages=languages,
        visual_width=corpus.region_width,
        num_labels=recipe.labels,
        variant=recipe.variant,
        word_transform=recipe.predicts_words and not reference,
    )


def _uc2_data(recipe: UC2Recipe, split: Split, reader: SplitReader, corpus: CorpusShape) -> UC2Data:
    languages = split.captions.language_codes
    count = _num_labels(recipe)
    names = LabelTokens(dict.fromkeys(languages, [""] * count), reader.tokenizer)
    assert isinstance(split.regions, RegionTable)
    device = split.regions.device
    rows = torch.arange(int(split.regions.lengths.sum()), device=device)
    labels = torch.randint(count, (len(rows), corpus.labels_per_region), device=device)
    soft = SoftLabels(rows, labels, torch.full(labels.shape, 1 / labels.shape[1], device=device))
    aligned = align_half(split.captions)
    return UC2Data(
        reader, reader.tokenizer, split, None, None, None, names, soft, aligned, ()
    )  # fmt: skip


def _without_switching(recipe: M3PRecipe) -> M3PRecipe:
    stages = {
        name: replace(stage, code_switched=False)
        for name in ("pretraining", "fine_tuning")
        if (stage := getattr(recipe, name)) is not None
    }
    return replace(recipe, **stages)


def _with_further_stages(
    recipe: CrossEncoderRecipe,
    model: CrossEncoderModel,
    split: Split,
    stages: list[Stage],
    tokenizer: Tokenizer,
) -> list[Stage]:
    """Add the stages that read an encoder's weights or a teacher when a run builds them."""
    starts = recipe.predicts_words and recipe.initialise_from is None
    if (head := recipe.word_head) is not None and starts:
        words = WordHeadTask(
            model, split.captions, bert_masking(tokenizer, recipe.encoder), batch=head.batch
        )
        groups = [{"params": model.word_head_parameters()}]
        loop = stage_loop(recipe.loop, head)
        stages = [Stage("word_head", Mixture({"word_head": words}), loop, groups), *stages]
    if (distillation := recipe.distillation) is not None:
        assert isinstance(split.regions, RegionTable)
        device = split.regions.device
        teacher = TeacherVectors(
            torch.randn(len(split.regions), _TEACHER_WIDTH, device=device),
            torch.randn(len(split.captions), _TEACHER_WIDTH, device=device),
        )
        task = DistillationTask(
            model, split.regions, split.captions, teacher, batch=distillation.batch
        )
        groups = parameter_groups(model, model.encoder, recipe.head_lr_multiplier)
        loop = stage_loop(recipe.loop, distillation)
        stage = Stage("distillation", Mixture({"distillation": task}), loop, groups)
        last = len(stages) - (1 if stages and stages[-1].name == "fine_tuning" else 0)
        stages = [*stages[:last], stage, *stages[last:]]
    return stages


def _languages(recipe: CrossEncoderRecipe) -> tuple[str, ...]:
    """Return six languages, or those that the recipe's stages name and English."""
    named: set[str] = set()
    for name in ("early_adaptation", "pretraining", "fine_tuning", "translations"):
        named |= set(getattr(getattr(recipe, name, None), "languages", None) or ())
    more: Iterable[str] = (code for code in _LANGUAGES if code not in named)
    codes = [*sorted(named - {ENGLISH}), *(code for code in more if code != ENGLISH)]
    return (ENGLISH, *codes[: max(len(_LANGUAGES) - 1, len(named - {ENGLISH}))])


def _num_images(recipe: CrossEncoderRecipe, corpus: CorpusShape) -> int:
    """Return enough images for the largest batch and its negatives."""
    batches: dict[str, int] = {}
    batches |= {name: stage.batch for name in _STAGES if (stage := getattr(recipe, name, None))}
    if not batches:
        raise PolyglanceError("the recipe has no stage to train: set one, such as fine_tuning")
    if regions := batches.pop("early_adaptation", 0):  # its batch counts regions
        batches["early_adaptation"] = -(-regions // corpus.regions)
    return 2 * max(batches.values())


def _num_labels(recipe: CrossEncoderRecipe) -> int:
    return recipe.labels if isinstance(recipe, M3PRecipe) else 1600


def random_captions(
    images: int,
    corpus: CorpusShape,
    vocab_size: int,
    languages: tuple[str, ...],
    max_tokens: int,
) -> CaptionTable:
    """Build captions of random tokens, one for each image and language.

    Args:
        images: their number.
        corpus: has the mean length, around which lengths are normally distributed.
        vocab_size: of the encoder.
        languages: codes.
        max_tokens: to which captions are cut.
    """
    generator = np.random.default_rng(0)
    mean, count = corpus.mean_tokens, images * len(languages)
    longest = min(max_tokens, _MAX_LENGTH_FACTOR * mean)
    drawn: NDArray[np.float64] = generator.normal(mean, _LENGTH_SPREAD * mean, count)
    lengths = drawn.clip(min(5, longest), longest).round().astype(np.int64)
    ids = generator.integers(4, vocab_size - 1, int(lengths.sum())).astype(np.int32)
    return CaptionTable(
        ids,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.repeat(np.arange(images), len(languages)),
        np.tile(np.arange(len(languages)), images),
        languages,
        images,
    )


def align_half(table: CaptionTable) -> AlignedCaptions:
    """Pair every caption with the English one, with every second word aligned."""
    second = np.flatnonzero(table.language_ids > 0)
    first = second - table.language_ids[second]
    lengths = np.diff(table.offsets)
    shorter = np.minimum(lengths[first], lengths[second]) - 2
    links = [[(i, i) for i in range(1, count, 2)] for count in shorter.tolist()]
    return AlignedCaptions(table, first, second, links)


def random_regions(images: int, corpus: CorpusShape, device: str, *, labels: int) -> RegionTable:
    """Build random features, boxes and labels of regions.

    Args:
        images: their number.
        corpus: has the regions of an image and their width.
        device: where they lie.
        labels: classes of labels.
    """
    count = images * corpus.regions
    return RegionTable(
        torch.randn(count, corpus.region_width).half(),
        torch.rand(count, 4).sort(1).values,
        torch.randint(labels, (count,)),
        np.full(images, corpus.regions),
        device,
    )
