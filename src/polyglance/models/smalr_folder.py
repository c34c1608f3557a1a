"""Save and load a trained SMALR model, ``RUN/words``, which `polyglance export` reads.

- ``model.safetensors``: ``table`` (float16) and ``slots`` of the folded words; ``sentences.*``
  and ``pictures.*``, the two branches in float32; and ``chooser.*``, which assigns latent
  tokens to the rare words of a language added later; and ``consistency.NETWORK.*``, trained
  cross-lingual consistency (CLC-C), if there is any;
- ``config.json``: the model's shape, its languages, how its image features were extracted, and
  the languages that CLC-C combines;
- ``lexicon.json``: the words of each language in the order of their ids.
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
from polyglance.encoders.consistency import ConsistencyNetworks, Network
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.models.smalr import SMALR, FoldedText, ImageBranch, SMALRConfig
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import TokenChooser
from polyglance.nn.sentence_gru import LanguageBranches, SentenceGRU
from polyglance.records import atomic_write
from polyglance.text.lexicon import Lexicon
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format

_STATE, _CONFIG = "model.safetensors", "config.json"
_FORMAT = 1


@dataclass(frozen=True)
class FeatureInfo:
    """How the image features were extracted that a model was trained on."""

    backbone: str | None = None
    """None if unknown: the model can be evaluated but cannot encode new images."""
    size: int = 224
    resize: str = "squash"
    views: str = "one"
    """Which views features are averaged over: see `polyglance.vision.extraction`."""
    weights_sha256: str | None = None

    @classmethod
    def from_store(cls, made_by: Mapping[str, object]) -> FeatureInfo:
        """Read them from a feature store's ``StoreInfo.made_by``."""
        return load(cls, {key: made_by[key] for key in cls.__dataclass_fields__ if key in made_by})


@dataclass(frozen=True, eq=False)
class SMALRFolder:
    """A trained SMALR model for inference: both branches and their lexicon."""

    config: SMALRConfig
    lexicon: Lexicon
    text: FoldedText
    image_branch: ImageBranch
    feature_info: FeatureInfo = field(default_factory=FeatureInfo)
    chooser: TokenChooser | None = None
    """Assigns latent tokens to words of a language added later; None without latent tokens."""
    consistency: ConsistencyNetworks | None = None
    """Trained CLC-C, which search uses."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the lexicon, in the model's order."""
        return self.lexicon.languages

    def to_trainable(self) -> SMALR:
        """Return an equivalent model to which `SMALR.add_language` can add a language.

        All present parameters are frozen. Layers that only training needs are gone: the
        language classifier, and those of masked cross-language modelling.
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


def save_smalr(
    model: SMALR,
    lexicon: Lexicon,
    folder: Path,
    *,
    feature_info: FeatureInfo,
    consistency: ConsistencyNetworks | None = None,
) -> Path:
    """Write a trained model with its words folded, without layers that only training needs.

    Args:
        model: The model.
        lexicon: Its words.
        folder: Where to write.
        feature_info: How its image features were extracted.
        consistency: Trained CLC-C.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = model.fold()
    if len(text.slots) != len(lexicon):
        raise PolyglanceError(
            f"the model has {len(text.slots):,} words and the lexicon {len(lexicon):,}: give the"
            " lexicon that it was trained with"
        )
    state = {
        **text.state_dict(),
        "table": text.table.half(),
        "slots": text.slots.int(),
        **{f"pictures.{name}": value for name, value in model.image_branch.state_dict().items()},
    }
    if isinstance(model.words, HybridEmbedding) and model.words.chooser is not None:
        state |= {f"chooser.{name}": value for name, value in model.words.chooser.named_buffers()}
    for name, network in consistency.networks.items() if consistency else ():
        state |= {
            f"consistency.{name}.languages": torch.from_numpy(network.languages),
            f"consistency.{name}.output": torch.from_numpy(network.output),
        }
    save_file(
        {name: value.detach().contiguous().cpu() for name, value in state.items()}, folder / _STATE
    )
    lexicon.save(folder)
    settings = {
        "format": _FORMAT,
        "model": as_plain(model.config),
        "languages": list(lexicon.languages),
        "seen_by": as_plain(feature_info),
    }
    if consistency is not None:
        settings["consistency"] = {
            "languages": list(consistency.languages),
            "networks": list(consistency.networks),
        }
    with atomic_write(folder / _CONFIG) as file:
        file.write(json.dumps(settings, indent=2) + "\n")
    return folder


def load_smalr(folder: str | Path) -> SMALRFolder:
    """Load what `save_smalr` wrote for inference: in float32, on the CPU, frozen."""
    folder = Path(folder)
    try:
        settings = parse_json((folder / _CONFIG).read_bytes())
        check_format(settings, _FORMAT, folder)
        config = load(SMALRConfig, settings["model"])
        feature_info = load(FeatureInfo, settings["seen_by"])
        state = load_file(folder / _STATE)
        lexicon = Lexicon.open(folder)
        text, image_branch = _modules(config, len(lexicon.languages), state)
        tensors = _with_prefix("chooser.", state)
        chooser = TokenChooser(**tensors) if tensors else None
        consistency = _consistency(settings.get("consistency"), state)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{folder} is not a trained SMALR model ({error_reason(error)}):"
            " train one with a recipe whose system is smalr"
        ) from error
    return SMALRFolder(
        config, lexicon, text.eval(), image_branch.eval(), feature_info, chooser, consistency
    )


def _consistency(
    settings: Mapping[str, Any] | None, state: Mapping[str, Tensor]
) -> ConsistencyNetworks | None:
    if settings is None:
        return None
    networks = {
        name: Network(
            state[f"consistency.{name}.languages"].numpy(),
            state[f"consistency.{name}.output"].numpy(),
        )
        for name in settings["networks"]
    }
    return ConsistencyNetworks(tuple(settings["languages"]), networks)


def _modules(
    config: SMALRConfig, languages: int, state: dict[str, Tensor]
) -> tuple[FoldedText, ImageBranch]:
    table, slots = state.pop("table").float(), state.pop("slots").long()
    shape = (table.shape[1], config.gru_width, config.width)
    text_branch: nn.Module = (
        SentenceGRU(*shape) if config.branches == "one" else LanguageBranches(languages, *shape)
    )
    text_branch.load_state_dict(_with_prefix("sentences.", state))
    image_branch = ImageBranch(config.visual_width, config.visual_hidden, config.width, 0.0)
    image_branch.load_state_dict(_with_prefix("pictures.", state))
    for module in (text_branch, image_branch):
        module.requires_grad_(False)
    if int(slots.max()) >= len(table):
        raise ValueError("a word's row is beyond the end of the table")
    return FoldedText(table, slots, text_branch), image_branch


def _with_prefix(prefix: str, state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
