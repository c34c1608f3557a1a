"""A trained word model on disk, as `polyglance export` takes it up: ``RUN/words``.

- ``model.safetensors``: ``table`` (float16) and ``slots`` of the folded words,
  ``sentences.*`` and ``pictures.*``, the two branches in float32, and ``chooser.*``,
  by which rare words of a language that comes later take latent tokens;
- ``config.json``: the model's shape, its languages, and what made the features
  of pictures that it was trained on;
- ``lexicon.json``: the words of each language in the order of their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.config import as_plain, load
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.models.smalr import SMALR, FoldedText, ImageBranch, SMALRConfig
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import TokenChooser
from polyglance.nn.sentence_gru import LanguageBranches, SentenceGRU
from polyglance.records import atomic_write
from polyglance.text.lexicon import Lexicon

_STATE, _CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class FeatureInfo:
    """What turned pictures into the features that a model was trained on."""

    backbone: str | None = None
    """None where nobody knows: the model can be measured but not shown new pictures."""
    size: int = 224
    resize: str = "squash"
    views: str = "one"
    """Whose average a feature is: see `polyglance.vision.extraction`."""
    weights_sha256: str | None = None

    @classmethod
    def from_store(cls, made_by: Mapping[str, object]) -> FeatureInfo:
        """From what a feature store says of itself (``StoreInfo.made_by``)."""
        known = {key: made_by[key] for key in cls.__dataclass_fields__ if key in made_by}
        return load(cls, known)


@dataclass(frozen=True, eq=False)
class SMALRFolder:
    """A word model ready to be used: both branches, their words and their eyes."""

    config: SMALRConfig
    lexicon: Lexicon
    text: FoldedText
    image_branch: ImageBranch
    feature_info: FeatureInfo = field(default_factory=FeatureInfo)
    chooser: TokenChooser | None = None
    """By which words of another language take latent tokens, in a model that has any."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Those it knows words of, in the order that the model counts them."""
        return self.lexicon.languages

    def to_trainable(self) -> SMALR:
        """A model that says the same, and takes in another language by `SMALR.add_language`.

        All words so far are rows that learn no more. What only training needs is gone:
        the adversary, and the layers that predict what masks hide.
        """
        specials, config = 2, replace(self.config, masked_modelling=False, adversary=False)
        table = self.text.table
        words = HybridEmbedding(
            self.text.slots,
            [],
            table[specials:],
            projection=config.projection,
            chooser=self.chooser,
        )
        words.mask.data.copy_(table[1:specials])
        model = SMALR(config, words, num_languages=len(self.languages))
        model.sentences, model.image_branch = self.text.sentences, self.image_branch
        return model.requires_grad_(False)


def save_smalr(model: SMALR, lexicon: Lexicon, folder: Path, *, feature_info: FeatureInfo) -> Path:
    """Write a trained model; words become a table, and what only training needs is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    text = model.fold()
    if len(text.slots) != len(lexicon):
        raise PolyglanceError(
            f"a model of {len(text.slots):,} words and a lexicon of {len(lexicon):,} do not"
            " belong together"
        )
    state = {
        **text.state_dict(),
        "table": text.table.half(),
        "slots": text.slots.int(),
        **{f"pictures.{name}": value for name, value in model.image_branch.state_dict().items()},
    }
    if isinstance(model.words, HybridEmbedding) and model.words.chooser is not None:
        state |= {f"chooser.{name}": value for name, value in model.words.chooser.named_buffers()}
    save_file(
        {name: value.detach().contiguous().cpu() for name, value in state.items()}, folder / _STATE
    )
    lexicon.save(folder)
    settings = {
        "model": as_plain(model.config),
        "languages": list(lexicon.languages),
        "seen_by": as_plain(feature_info),
    }
    with atomic_write(folder / _CONFIG) as file:
        file.write(json.dumps(settings, indent=2) + "\n")
    return folder


def load_smalr(folder: str | Path) -> SMALRFolder:
    """Read what `save_words` wrote, for use: in float32, on the CPU, not for training."""
    folder = Path(folder)
    try:
        settings = json.loads((folder / _CONFIG).read_bytes())
        config = load(SMALRConfig, settings["model"])
        seen_by = load(FeatureInfo, settings["seen_by"])
        state = load_file(folder / _STATE)
        lexicon = Lexicon.open(folder)
        text, pictures = _modules(config, len(lexicon.languages), state)
        kept = _below("chooser.", state)
        chooser = TokenChooser(**kept) if kept else None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{folder} holds no word model as training leaves it ({error_reason(error)}):"
            " train one by a recipe of kind words"
        ) from error
    return SMALRFolder(config, lexicon, text.eval(), pictures.eval(), seen_by, chooser)


def _modules(
    config: SMALRConfig, languages: int, state: dict[str, Tensor]
) -> tuple[FoldedText, ImageBranch]:
    table, slots = state.pop("table").float(), state.pop("slots").long()
    shape = (table.shape[1], config.gru_width, config.width)
    branch: nn.Module = (
        SentenceGRU(*shape) if config.branches == "one" else LanguageBranches(languages, *shape)
    )
    branch.load_state_dict(_below("sentences.", state))
    pictures = ImageBranch(config.visual_width, config.visual_hidden, config.width, 0.0)
    pictures.load_state_dict(_below("pictures.", state))
    for module in (branch, pictures):
        module.requires_grad_(False)
    if int(slots.max()) >= len(table):
        raise ValueError("a word points beyond the table")
    return FoldedText(table, slots, branch), pictures


def _below(prefix: str, state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
