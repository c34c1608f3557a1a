"""Tiny untrained text encoders, for trying a recipe within minutes on a laptop.

`make_tiny_encoder` writes a folder as transformers saves XLM-R: a unigram vocabulary of the given
texts and random weights. They are larger than a fresh XLM-R's, with which so small a model would
need thousands of steps to leave chance.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.text.sentencepiece_model import open_sentencepiece_model

EMBEDDING_STD, WEIGHT_STD = 0.3, 0.1


def make_tiny_encoder(
    folder: str | Path,
    texts: Iterable[str],
    *,
    layers: int = 2,
    hidden_size: int = 32,
    vocab_size: int = 600,
    seed: int = 0,
) -> int:
    """Write an untrained encoder whose vocabulary covers some texts.

    Args:
        folder: where to write; it must not hold an encoder.
        texts: what the vocabulary is learned from.
        layers: of the transformer.
        hidden_size: of the embeddings, a multiple of 4 (heads).
        vocab_size: at most so many pieces.
        seed: of the weights.

    Returns:
        The number of pieces.
    """
    folder = Path(folder)
    if (folder / "config.json").exists():
        raise PolyglanceError(f"{folder} holds a model already: name another folder")
    if layers < 1 or hidden_size < 4 or hidden_size % 4:
        raise PolyglanceError(
            f"layers is {layers} and hidden_size {hidden_size}: give at least 1 layer and a"
            " multiple of 4"
        )
    (folder).mkdir(parents=True, exist_ok=True)
    (folder / "words.model").write_bytes(_unigram_model(texts, vocab_size))
    tokenizer = open_sentencepiece_model(folder / "words.model")
    tokenizer.save(folder)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=hidden_size,
        num_layers=layers,
        num_heads=4,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=130,
        dropout=0.0,
    )
    encoder = Encoder(config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in encoder.named_parameters():
        if parameter.ndim == 2:
            is_embedding = re.search("words|positions", name) is not None
            std = EMBEDDING_STD if is_embedding else WEIGHT_STD
            torch.nn.init.normal_(parameter, std=std, generator=generator)
    save_encoder(encoder, folder)
    return tokenizer.vocab_size


def _unigram_model(texts: Iterable[str], vocab_size: int) -> bytes:
    """Train a unigram model, as XLM-R's is one."""
    try:
        import sentencepiece
    except ModuleNotFoundError:
        raise MissingExtraError("making an encoder", "train") from None
    model = io.BytesIO()
    unique = list(dict.fromkeys(texts))
    if not unique:
        raise PolyglanceError("there are no texts to make a vocabulary of: give captions")
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(unique),
            model_writer=model,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
            num_threads=1,
        )
    except RuntimeError as error:
        if "Vocabulary size is smaller" not in str(error):
            raise
        characters = len(set("".join(unique)))
        raise PolyglanceError(
            f"{vocab_size} sub-words are too few for texts of {characters} different characters:"
            f" give a vocabulary size of {2 * characters}"
        ) from error
    return model.getvalue()
