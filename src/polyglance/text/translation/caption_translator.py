"""Translate with a model of ``polyglance train caption-translator``.

A model folder holds

- ``config.json``: ``model_type``, the network's shape, the languages, and how well the model
  translates into each;
- ``model.safetensors``: weights in float16;
- ``vocabulary.model``: sub-words, a SentencePiece model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyglance.config import as_plain, load
from polyglance.errors import DataError, MissingExtraError, PolyglanceError, error_reason
from polyglance.languages import get_language, normalise_language
from polyglance.text.translation.subword_vocabulary import (
    END,
    PAD,
    SubwordVocabulary,
    clean_text,
)
from polyglance.utils.bounded import parse_json
from polyglance.utils.fingerprint import digest, digest_model_folder

if TYPE_CHECKING:
    from polyglance.text.translation.network import TranslationNetwork

MODEL_TYPE = "polyglance-caption-translator"
NUM_BEAMS = 5
_CONFIG, _WEIGHTS, _VOCABULARY = "config.json", "model.safetensors", "vocabulary.model"
_BATCH_TOKENS = {"cpu": 4_000, "cuda": 60_000}
"""Source tokens translated together, padding counted."""


@dataclass(frozen=True)
class TranslationModel:
    """A network with its vocabulary, which translates between several languages."""

    network: TranslationNetwork
    vocabulary: SubwordVocabulary

    def translate(
        self, texts: Sequence[str], target: str, *, num_beams: int = NUM_BEAMS
    ) -> list[str]:
        """Translate texts by beam search; sentences of similar length run together.

        Args:
            texts: In any language of the model.
            target: The language to translate into.
            num_beams: Hypotheses kept for each sentence; 1 for greedy search.

        Returns:
            One translation for each text.
        """
        import torch

        from polyglance.text.translation.beam_search import beam_search

        tag, max_tokens = self.vocabulary.tag(target), self.network.config.max_tokens
        device = next(self.network.parameters()).device
        encoded = self.vocabulary.encode([clean_text(text) for text in texts])
        sources = [source_tokens(tokens, tag, max_tokens) for tokens in encoded]
        order = sorted(range(len(texts)), key=lambda i: len(sources[i]), reverse=True)
        translations = [""] * len(texts)
        begin = 0
        while begin < len(order):
            longest = len(sources[order[begin]])
            some = order[begin : begin + max(1, _BATCH_TOKENS.get(device.type, 4_000) // longest)]
            begin += len(some)
            padded = torch.tensor(
                [sources[i] + [PAD] * (longest - len(sources[i])) for i in some], device=device
            )
            start = torch.full((len(some),), tag, device=device)
            tokens = beam_search(self.network, padded, start, end=END, num_beams=num_beams)
            for i, text in zip(some, self.vocabulary.decode(tokens), strict=True):
                translations[i] = text
        return translations


def source_tokens(tokens: Sequence[int], tag: int, max_tokens: int) -> list[int]:
    """Return a source as the encoder takes it: the target's tag, sub-words, the end."""
    return [tag, *tokens[: max_tokens - 2], END]


class CaptionTranslator:
    """A caption translator between two languages; weights are loaded when it first translates."""

    def __init__(
        self,
        folder: str | Path,
        source: str,
        target: str,
        *,
        num_beams: int = NUM_BEAMS,
        device: str = "cpu",
    ) -> None:
        """Check the languages.

        Args:
            folder: The model.
            source: Language of the texts.
            target: Language to translate into.
            num_beams: Beam size.
            device: Torch device.
        """
        self.folder = Path(folder).expanduser()
        self.source, self.target = normalise_language(source), normalise_language(target)
        self.num_beams, self.device = num_beams, device
        self.batch_size = 64 if device == "cpu" else 16_384
        for package in ("torch", "sentencepiece"):
            if find_spec(package) is None:
                raise MissingExtraError(f"translating by {self.folder}", "train")
        settings = read_config(self.folder)
        pairs = settings["pairs"]
        if [self.source, self.target] not in pairs:
            names = get_language(self.source).english_name, get_language(self.target).english_name
            known = ", ".join(f"{one}-{other}" for one, other in pairs)
            raise PolyglanceError(
                f"{self.folder} does not translate {names[0]} to {names[1]}, only {known}"
            )
        if (reason := settings["refused"].get(self.target)) is not None:
            raise PolyglanceError(
                f"{self.folder} translates too badly into {get_language(self.target).english_name}"
                f" ({reason}): choose another translator for it"
            )

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the folder's files and the beam size."""
        return digest(MODEL_TYPE, digest_model_folder(self.folder), self.num_beams)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text into the target language."""
        model = _model(self.folder, self.device)
        return model.translate(texts, self.target, num_beams=self.num_beams)


def is_caption_translator(folder: Path) -> bool:
    """Return whether a folder holds such a model."""
    try:
        settings = parse_json((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("model_type") == MODEL_TYPE


def save_translation_model(
    model: TranslationModel,
    folder: Path,
    *,
    pairs: Sequence[tuple[str, str]],
    refused: Mapping[str, str],
    quality: Mapping[str, Any],
) -> None:
    """Write a model folder.

    Args:
        model: The trained model.
        folder: Where to write.
        pairs: The languages that it translates between.
        refused: Target languages that failed the quality check, with the reason; translating into
            these is an error.
        quality: Measured by target language, for readers of the file.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.detach().to("cpu", torch.float16).contiguous()
        for name, value in model.network.state_dict().items()
    }
    save_file(state, folder / _WEIGHTS)
    (folder / _VOCABULARY).write_bytes(model.vocabulary.path.read_bytes())
    settings = {
        "model_type": MODEL_TYPE,
        "network": as_plain(model.network.config),
        "pairs": [list(pair) for pair in pairs],
        "refused": dict(refused),
        "quality": dict(quality),
    }
    (folder / _CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_translation_model(folder: Path, device: str = "cpu") -> TranslationModel:
    """Load a model folder: in float32 on the CPU, in float16 elsewhere."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from polyglance.text.translation.network import NetworkConfig, TranslationNetwork

    settings = read_config(folder)
    vocabulary = SubwordVocabulary(folder / _VOCABULARY)
    try:
        config = load(NetworkConfig, settings["network"])
        network = TranslationNetwork(config, len(vocabulary))
        network.load_state_dict(load_file(folder / _WEIGHTS))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{folder} is not a whole caption translator ({error_reason(error)}): copy or train it"
            " again"
        ) from error
    dtype = torch.float32 if device == "cpu" else torch.float16
    network.to(device, dtype).eval().requires_grad_(False)
    return TranslationModel(network, vocabulary)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a model folder."""
    try:
        settings = parse_json((folder / _CONFIG).read_text(encoding="utf-8"))
        if not isinstance(settings, dict) or settings.get("model_type") != MODEL_TYPE:
            raise ValueError(f"its model_type is not {MODEL_TYPE}")
        if not {"network", "pairs", "refused"} <= settings.keys():
            raise ValueError("network, pairs or refused is missing")
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / _CONFIG}: expected the settings of a caption translator"
            f" ({error_reason(error)})"
        ) from error
    return settings


@lru_cache(maxsize=1)
def _model(folder: Path, device: str) -> TranslationModel:
    """Load a model once for all languages."""
    return load_translation_model(folder, device)
