"""Files beside a model's graphs that other libraries read.

| file | read by |
|---|---|
| ``README.md`` | the Hugging Face hub: its YAML header says licence, languages and task |
| ``config.json`` | the hub, fastembed |
| ``tokenizer.json`` | tokenizers, transformers, fastembed, transformers.js |
| ``tokenizer_config.json``, ``special_tokens_map.json`` | transformers, fastembed |
| ``preprocessor_config.json`` | transformers' image processors, fastembed |

Polyglance itself reads none of them: ``vocabulary.xz`` opens ten times as fast. A model of words
has no tokenizer that other libraries know and gets no tokenizer files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyglance.encoders.json_tokenizer import JsonTokenizer
from polyglance.encoders.model_folder import ImagePreprocessing, ModelDescription
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.weights.unigram import BOS, EOS, MASK, PAD, UNK, xlmr_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CARD, CONFIG, TOKENIZER = "README.md", "config.json", "tokenizer.json"
_ROLES = {
    "bos_token": (BOS, "[CLS]"),
    "cls_token": (BOS, "[CLS]"),
    "eos_token": (EOS, "[SEP]"),
    "sep_token": (EOS, "[SEP]"),
    "unk_token": (UNK, "[UNK]"),
    "pad_token": (PAD, "[PAD]"),
    "mask_token": (MASK, "[MASK]"),
}
"""Usual special tokens of each role: XLM-R's, and BERT's."""
_BICUBIC = 3
"""Pillow's number of the filter."""
_TAGS = ("polyglance", "onnx", "multilingual", "image-search", "dual-encoder")


def hub_files(description: ModelDescription, vocabulary: bytes) -> dict[str, bytes]:
    """Return the files beside a model's graphs, by name.

    Args:
        description: The model.
        vocabulary: Content of its ``vocabulary.xz``.
    """
    files: dict[str, Any] = {}
    tokenizer, ids = None, dict[str, int]()
    if description.text != "words":
        tokenizer = build_tokenizer(description, vocabulary)
        ids = _added_tokens(tokenizer)
        names = _special_tokens(ids)
        files["special_tokens_map.json"] = names
        files["tokenizer_config.json"] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": description.max_length,
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "right",
            "truncation_side": "right",
            "clean_up_tokenization_spaces": False,
            **names,
        }
    if description.pictures is not None:
        files["preprocessor_config.json"] = preprocessor_config(description.pictures)
    files[CONFIG] = _config(description, ids)
    contents = {name: _json(content) for name, content in files.items()}
    if tokenizer is not None:
        contents[TOKENIZER] = tokenizer.to_str().encode()
    contents[CARD] = model_card(description).encode()
    return contents


def build_tokenizer(description: ModelDescription, vocabulary: bytes) -> Tokenizer:
    """Return a tokenizer that gives the ids which ``text.onnx`` takes.

    These are rows of the model's embedding table, in which frequent pieces come first: they
    differ from XLM-R's. Texts are truncated to the model's maximum length. A special token
    spelled out in a text, such as ``</s>``, is taken for that token, as all models' tokenizers
    do; `polyglance.load` reads it as text.
    """
    import tokenizers

    if description.text == "tokenizer":
        tokenizer = tokenizers.Tokenizer.from_str(JsonTokenizer.from_bytes(vocabulary).text)
    else:
        parsed = Vocabulary.from_bytes(vocabulary)
        pairs = zip(parsed.pieces, parsed.scores.tolist(), strict=True)
        by_row = [("", 0.0)] * len(parsed.pieces)
        for row, pair in zip(parsed.order.tolist(), pairs, strict=True):
            by_row[row] = pair
        tokenizer = xlmr_tokenizer(by_row, parsed.charsmap or None)
    tokenizer.enable_truncation(description.max_length)
    return tokenizer


def preprocessor_config(pictures: ImagePreprocessing) -> dict[str, Any]:
    """Return transformers' settings of an image processor, close to our own resizing.

    A model whose pictures are cropped resizes the shorter side first.
    """
    side = {"height": pictures.size, "width": pictures.size}
    cropped = pictures.resize != "squash"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": pictures.size} if cropped else side,
        "resample": _BICUBIC,
        "do_center_crop": cropped,
        "crop_size": side,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [value / 255 for value in pictures.mean],
        "image_std": [value / 255 for value in pictures.std],
    }


def _config(description: ModelDescription, ids: Mapping[str, int]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["PolyglanceDualEncoder"],
        "name": description.name,
        "projection_dim": description.width,
        "max_length": description.max_length,
        "languages": list(description.languages),
        # Without a version, transformers takes large tokenizers for Mistral's and warns.
        "transformers_version": "5.0.0",
    }
    for role in ("bos_token", "eos_token", "pad_token"):
        if (name := _find(role, ids)) is not None:
            config[f"{role}_id"] = ids[name]
    if description.pictures is not None:
        config["image_size"] = description.pictures.size
    return config


def _special_tokens(ids: Mapping[str, int]) -> dict[str, str]:
    found = {role: _find(role, ids) for role in _ROLES}
    return {role: name for role, name in found.items() if name is not None}


def _added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    return {token.content: id_ for id_, token in tokenizer.get_added_tokens_decoder().items()}


def _find(role: str, ids: Mapping[str, int]) -> str | None:
    return next((name for name in _ROLES[role] if name in ids), None)


def model_card(description: ModelDescription) -> str:
    """Return a model card: the hub's header, and how the model is used."""
    languages = "".join(f"\n- {code}" for code in description.languages)
    inputs = "pictures" if description.pictures is not None else "features"
    return f"""---
language:{languages or " []"}
library_name: polyglance
pipeline_tag: feature-extraction
tags:
{"".join(f"- {tag}{chr(10)}" for tag in _TAGS)}---

# {description.name}

A dual encoder: {description.width}-dimensional vectors of {inputs} and of sentences in one vector
space. It runs on ONNX Runtime, without torch.

```python
import polyglance

encoder = polyglance.load("FOLDER")
encoder.encode_texts(["a dog in the snow"])
```
"""


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
