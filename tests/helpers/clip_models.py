"""Tiny CLIP-like models with random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from helpers.sentences import SENTENCES

TEXTS = [text for texts in SENTENCES.values() for text in texts[:3]]
LETTERS = sorted({letter for text in TEXTS for letter in text.lower() if letter.isalpha()})
LAYERS = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def pictures() -> list[Image.Image]:
    """Pictures of various sizes, more than one batch."""
    rng = np.random.default_rng(5)
    sizes = [(90, 60), (40, 120), (33, 33), (200, 31), (17, 25), (64, 64), (300, 200), (48, 32),
             (31, 33), (128, 64)]  # fmt: skip
    images = []
    for width, height in sizes:
        coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        images.append(Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR))
    return images


def perturb(model: torch.nn.Module, seed: int = 0) -> Any:
    """Add noise to the weights, so that different inputs have different vectors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for values in model.parameters():
            values.add_(torch.randn(values.shape, generator=generator), alpha=0.2)
    return model.eval()


def save_clip(folder: Path, *, width: int = 12) -> Path:
    """Save a CLIP whose pictures are centre-cropped to 32 x 32."""
    ends = ("<|startoftext|>", "<|endoftext|>")
    pieces = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), *ends]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    config = transformers.CLIPConfig(
        text_config=LAYERS
        | {"vocab_size": len(pieces), "max_position_embeddings": 20}
        | {"bos_token_id": len(pieces) - 2, "eos_token_id": len(pieces) - 1},
        vision_config=LAYERS | {"image_size": 32, "patch_size": 8},
        projection_dim=width,
    )
    processor = transformers.CLIPProcessor(
        transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
        transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=20),
    )
    return _save(_build(transformers.CLIPModel, config), processor, folder)


def save_siglip(folder: Path) -> Path:
    """Save a SigLIP, whose texts are padded to 24 pieces."""
    spiece = folder.parent / f"{folder.name}.model"
    with spiece.open("wb") as out:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXTS), model_writer=out, vocab_size=300,
            hard_vocab_limit=False, unk_id=2, bos_id=-1, eos_id=1, pad_id=0, minloglevel=2,
        )  # fmt: skip
    tokenizer = transformers.SiglipTokenizer(
        str(spiece), model_max_length=24, model_input_names=["input_ids"]
    )
    config = transformers.SiglipConfig(
        text_config=LAYERS | _texts(len(tokenizer)),
        vision_config=LAYERS | {"image_size": 32, "patch_size": 8},
    )
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    return _save(
        _build(transformers.SiglipModel, config),
        transformers.SiglipProcessor(images, tokenizer),
        folder,
    )


def save_siglip2(folder: Path) -> Path:
    """Save a SigLIP 2 that keeps the aspect ratio: up to 16 patches of 8 x 8."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *LETTERS]
    tokenizer = transformers.Siglip2Tokenizer(
        {piece: number for number, piece in enumerate(pieces)}
    )
    config = transformers.Siglip2Config(
        text_config=LAYERS | _texts(len(pieces)),
        vision_config=LAYERS | {"patch_size": 8, "num_patches": 16},
    )
    images = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    return _save(
        _build(transformers.Siglip2Model, config),
        transformers.Siglip2Processor(images, tokenizer),
        folder,
    )


def save_metaclip2(folder: Path) -> Path:
    """Save a MetaCLIP 2, a multilingual CLIP; here its pieces are words."""
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer = word_tokenizer(["<s>", "<pad>", "<unk>", *words, "</s>"], start="<s>", end="</s>")
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": len(tokenizer) - 1}
    texts = {"vocab_size": len(tokenizer), "max_position_embeddings": 20}
    config = transformers.MetaClip2Config(
        text_config=LAYERS | texts | ends,
        vision_config=LAYERS | {"image_size": 32, "patch_size": 8},
        projection_dim=12,
    )
    images = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    return _save(
        _build(transformers.MetaClip2Model, config),
        transformers.CLIPProcessor(images, tokenizer),
        folder,
    )


def word_tokenizer(
    pieces: list[str], *, start: str, end: str | None
) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer of whole words; pieces[1] is padding, pieces[2] unknown."""
    numbers = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token=pieces[2]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(piece, numbers[piece]) for piece in (start, end) if piece]
    backend.post_processor = processors.TemplateProcessing(
        f"{start} $0 {end or ''}".strip(), special_tokens=ends
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pieces[1],
        unk_token=pieces[2],
        eos_token=end,
        model_max_length=20,
    )


def _build(model_class: Any, config: Any) -> Any:
    """Build the same model each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return perturb(model_class(config))


def _texts(pieces: int) -> dict[str, int]:
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1}
    return {"vocab_size": pieces, "max_position_embeddings": 24, "projection_size": 16} | ends


def _save(model: transformers.PreTrainedModel, processor: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
