"""Small tokenizers and untrained text encoders."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
import tokenizers
import torch

from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.text.huggingface import FastTokenizer
from polyglance.text.sentencepiece_model import open_sentencepiece_model

WIDTH = 32


def save_text_encoder(folder: Path, texts: Sequence[str], *, layers: int = 1) -> None:
    """Save an untrained text encoder with a vocabulary of these texts, as published ones are."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=250,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    (folder / "words.model").write_bytes(model.getvalue())
    tokenizer = open_sentencepiece_model(folder / "words.model")
    tokenizer.save(folder)
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=WIDTH,
        num_layers=layers,
        num_heads=4,
        intermediate_size=64,
        max_position_embeddings=130,
    )
    save_encoder(Encoder(config), folder)


def save_bert_encoder(folder: Path, texts: Sequence[str], *, layers: int = 1) -> None:
    """Save an untrained encoder of mBERT's shape, with a WordPiece tokenizer of these texts."""
    words = sorted({word for text in texts for word in text.split()})
    letters = sorted({letter for word in words for letter in word})
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *letters, *(f"##{letter}" for letter in letters)]
    pieces += [word for word in words if word not in pieces]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    tokenizer.add_special_tokens(specials)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=len(ids),
        hidden_size=WIDTH // 2,
        num_layers=layers,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        first_position=0,
        type_vocab_size=2,
    )
    save_encoder(Encoder(config), folder)


def unigram_tokenizer(texts: Sequence[str], pieces: int = 700) -> FastTokenizer:
    """Train a unigram tokenizer like XLM-R's, of at most ``pieces`` sub-words, on these texts."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=pieces,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.model"
        path.write_bytes(model.getvalue())
        return open_sentencepiece_model(path)
