"""Load and save encoders as Hugging Face folders of XLM-R or BERT shape.

`load_encoder` reads published weights (XLM-R, mBERT, multilingual-e5); `save_encoder` writes
the same layout, so that other tools can read ours. `load_word_head` reads the head of a masked
language model, which XLM-R and mBERT are and e5 is not.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyglance.errors import DataError, PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.meta import on_meta_device
from polyglance.utils.bounded import parse_json

_FIRST_POSITION = {"xlm-roberta": 2, "roberta": 2, "bert": 0}

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)

_EMBEDDINGS = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
}
_LAYER = {
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "output_norm",
}
_QUERY_KEY_VALUE = ("query", "key", "value")
_WORD_HEADS = (
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
    (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    ),
)
"""The head's linear layer, layer norm, bias and output weights in XLM-R and in BERT."""


@dataclass(frozen=True, eq=False)
class WordHead:
    """The head of a masked language model, in front of output weights tied to the embeddings."""

    dense_weight: Tensor
    """``(hidden_size, hidden_size)``."""
    dense_bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor
    word_bias: Tensor
    """``(vocab_size,)``."""


def load_encoder(
    folder: str | Path,
    *,
    dropout: float | None = None,
    adapt: Callable[[EncoderConfig], EncoderConfig] | None = None,
) -> Encoder:
    """Load an encoder from a folder, in evaluation mode.

    Args:
        folder: with ``config.json`` and weights.
        dropout: replaces the folder's.
        adapt: changes the rest of the configuration, such as the epsilon of the norms.

    Returns:
        The encoder, with all parameters trainable.
    """
    folder = Path(folder)
    config = read_encoder_config(folder)
    if dropout is not None:
        config = replace(config, dropout=dropout)
    if adapt is not None:
        config = adapt(config)
    state = _from_published(_read_weights(folder), config.num_layers, folder)
    try:
        with on_meta_device():
            encoder = Encoder(config)
        encoder.load_state_dict(state, assign=True)
    except (RuntimeError, ValueError, TypeError, ZeroDivisionError) as error:
        detail = " ".join(str(error).split())
        raise DataError(f"{folder}: the weights do not fit config.json ({detail})") from error
    return encoder.requires_grad_(True).eval()


def load_word_head(folder: str | Path) -> WordHead | None:
    """Load the language-model head of an encoder's folder, or None if it has none.

    A head with output weights of its own, not tied to the embeddings, is not loaded either.
    """
    folder = Path(folder)
    weights = {_modern_name(name): value for name, value in _read_weights(folder).items()}
    for dense, norm, bias, decoder in _WORD_HEADS:
        names = (f"{dense}.weight", f"{dense}.bias", f"{norm}.weight", f"{norm}.bias", bias)
        if all(name in weights for name in names):
            words = weights["embeddings.word_embeddings.weight"]
            output = weights.get(f"{decoder}.weight", words)
            if output is words or torch.equal(output, words):
                return WordHead(*(weights[name].float() for name in names))
    return None


def read_encoder_config(folder: str | Path) -> EncoderConfig:
    """Read the shape of an encoder from a Hugging Face ``config.json``."""
    path = Path(folder) / "config.json"
    try:
        published = parse_json(path.read_text(encoding="utf-8"))
        kind = published["model_type"]
        if kind not in _FIRST_POSITION:
            known = ", ".join(_FIRST_POSITION)
            raise PolyglanceError(f"{path}: model_type is {kind!r}; encoders are {known}")
        if not all(isinstance(published[name], int) for name in _SIZES):
            raise ValueError(f"{', '.join(_SIZES)} must be whole numbers")
        if published.get("position_embedding_type", "absolute") != "absolute":
            raise PolyglanceError(f"{path}: only absolute positions are supported")
        if published.get("hidden_act", "gelu") not in ("gelu", "relu"):
            raise PolyglanceError(f"{path}: only gelu and relu are supported")
        return EncoderConfig(
            vocab_size=published["vocab_size"],
            hidden_size=published["hidden_size"],
            num_layers=published["num_hidden_layers"],
            num_heads=published["num_attention_heads"],
            intermediate_size=published["intermediate_size"],
            max_position_embeddings=published["max_position_embeddings"],
            first_position=_FIRST_POSITION[kind],
            type_vocab_size=published["type_vocab_size"],
            activation=published.get("hidden_act", "gelu"),
            norm_eps=published["layer_norm_eps"],
            dropout=published.get("hidden_dropout_prob", 0.1),
        )
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: give an encoder's folder, which has one") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not the configuration of an encoder ({error!r})") from error


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Write an encoder as a Hugging Face folder, which transformers can load."""
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = encoder.config
    kind = "xlm-roberta" if config.first_position else "bert"
    published = {
        "model_type": kind,
        "architectures": ["XLMRobertaModel" if config.first_position else "BertModel"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "hidden_act": config.activation,
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "pad_token_id": 1 if config.first_position else 0,
    }
    (folder / "config.json").write_text(json.dumps(published, indent=2) + "\n", encoding="utf-8")
    save_file(_to_published(encoder.state_dict()), folder / "model.safetensors", {"format": "pt"})


def _from_published(weights: dict[str, Tensor], layers: int, folder: Path) -> dict[str, Tensor]:
    """Rename published parameters to ours; concatenate queries, keys and values."""
    weights = {_modern_name(name): value for name, value in weights.items()}
    state: dict[str, Tensor] = {}
    try:
        for theirs, ours in _EMBEDDINGS.items():
            for part in ("weight", "bias") if ours == "norm" else ("weight",):
                state[f"{ours}.{part}"] = weights[f"{theirs}.{part}"]
        for number in range(layers):
            source, target = f"encoder.layer.{number}", f"layers.{number}"
            for part in ("weight", "bias"):
                stacked = [weights[f"{source}.attention.self.{n}.{part}"] for n in _QUERY_KEY_VALUE]
                state[f"{target}.query_key_value.{part}"] = torch.cat(stacked)
                for theirs, ours in _LAYER.items():
                    state[f"{target}.{ours}.{part}"] = weights[f"{source}.{theirs}.{part}"]
    except KeyError as error:
        raise DataError(f"{folder}: the weights lack the parameter {error.args[0]}") from None
    return {name: value.float() for name, value in state.items()}


def _modern_name(name: str) -> str:
    """Strip the model's prefix and replace gamma and beta, which mBERT's own files have."""
    name = re.sub(r"^(roberta|bert)\.", "", name)
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _to_published(state: dict[str, Any]) -> dict[str, Tensor]:
    published: dict[str, Tensor] = {}
    embeddings = {ours: theirs for theirs, ours in _EMBEDDINGS.items()}
    in_layer = {ours: theirs for theirs, ours in _LAYER.items()}
    for name, value in state.items():
        *where, part = name.split(".")
        if where[0] != "layers":
            published[f"{embeddings[where[0]]}.{part}"] = value.contiguous()
            continue
        target = f"encoder.layer.{where[1]}"
        if where[2] == "query_key_value":
            for which, piece in zip(_QUERY_KEY_VALUE, value.chunk(3), strict=True):
                published[f"{target}.attention.self.{which}.{part}"] = piece.clone()
        else:
            published[f"{target}.{in_layer[where[2]]}.{part}"] = value.contiguous()
    return published


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder: safetensors, one file or sharded, or an older ``.bin``."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        index = folder / "model.safetensors.index.json"
        if index.exists():
            shards = sorted(
                set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
            )
        else:
            shards = ["model.safetensors"]
        if all((folder / shard).exists() for shard in shards):
            return {k: v for shard in shards for k, v in load_file(folder / shard).items()}
        older = folder / "pytorch_model.bin"
        if older.exists():
            # weights_only refuses anything but tensors, so that no foreign code runs.
            loaded: dict[str, Tensor] = torch.load(older, map_location="cpu", weights_only=True)
            return loaded
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError,
        SafetensorError, pickle.UnpicklingError,
    ) as error:  # fmt: skip
        raise DataError(f"{folder}: the weights cannot be read ({error})") from error
    raise DataError(f"{folder} has no model.safetensors: give an encoder's folder, which has one")


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's tensors by name, ready to be saved; tied ones once, by their first name."""
    return {name: value.contiguous().cpu() for name, value in distinct_tensors(model).items()}


def distinct_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict with tied tensors once, by their first name."""
    by_memory: dict[int | str, str] = {}
    state = model.state_dict()
    for name, value in state.items():
        by_memory.setdefault(value.data_ptr() or name, name)  # an empty tensor has no address
    return {name: state[name] for name in by_memory.values()}
