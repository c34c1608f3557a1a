"""Translators for tests: one that records its inputs, and tiny models with random weights."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers

from helpers.sentences import SENTENCES
from polyglance.errors import PolyglanceError

_SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}


@dataclass
class CountingTranslator:
    """Appends the target language to each word, and records what it was given."""

    source: str = "en"
    target: str = "de"
    fingerprint: str = "counting"
    name: str = "counting"
    batch_size: int = 4
    untranslatable: frozenset[str] = frozenset()
    requests: list[list[str]] = field(default_factory=list)

    def translate(self, texts: Sequence[str]) -> list[str]:
        self.requests.append(list(texts))
        if bad := self.untranslatable.intersection(texts):
            raise PolyglanceError(f"cannot translate {sorted(bad)[0]!r}")
        return [" ".join(f"{word}{self.target}" for word in text.split()) for text in texts]


def marian_folder(folder: Path, *, tags: Sequence[str] = (), **settings: Any) -> Path:
    """Write a Marian model from English to German; with ``tags`` (``>>deu<<``) to several."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = _sentencepiece(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    vocabulary_pieces = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    tokens = dict.fromkeys(["</s>", "<unk>", *tags, *vocabulary_pieces])
    vocabulary = {piece: number for number, piece in enumerate([*tokens, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings():  # it recommends another package
        warnings.simplefilter("ignore")
        tokenizer = transformers.MarianTokenizer(
            *files, source_lang="en", target_lang="de", **settings
        )
    pad = vocabulary["<pad>"]
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary),
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bos_token_id=None,
        forced_eos_token_id=0,
        init_std=0.4,
        activation_function="swish",
        **_SIZES,
    )
    model = transformers.MarianMTModel(config)
    model.generation_config.update(num_beams=1, max_length=14, bad_words_ids=[[pad]])
    return _save(folder, model, tokenizer)


def nllb_folder(folder: Path) -> Path:
    """Write an NLLB model of three languages."""
    letters = sorted({c for texts in SENTENCES.values() for text in texts for c in text} - {" "})
    vocabulary = {
        piece: number
        for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", *letters])
    }
    languages = ["deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant"]
    tokenizer = transformers.NllbTokenizer(
        vocab=vocabulary, merges=[], extra_special_tokens=languages
    )
    torch.manual_seed(5)
    config = transformers.M2M100Config(
        vocab_size=len(tokenizer),
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        init_std=0.4,
        **_SIZES,
    )
    model = transformers.M2M100ForConditionalGeneration(config)
    model.generation_config.update(num_beams=2, max_length=16)
    return _save(folder, model, tokenizer)


def m2m100_folder(folder: Path) -> Path:
    """Write an M2M100 model, whose tokenizer has a hundred languages."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = _sentencepiece(folder / "sentencepiece.bpe.model")
    vocabulary_pieces = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    tokens = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *vocabulary_pieces])
    (folder / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(tokens)}))
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    tokenizer = transformers.M2M100Tokenizer(*files)
    torch.manual_seed(7)
    config = transformers.M2M100Config(
        vocab_size=len(tokens) + 110,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        init_std=0.4,
        **_SIZES,
    )
    model = transformers.M2M100ForConditionalGeneration(config)
    model.generation_config.update(num_beams=1, max_length=16)
    return _save(folder, model, tokenizer)


def mbart_folder(folder: Path) -> Path:
    """Write an mBART-50 model."""
    letters = sorted({c for texts in SENTENCES.values() for text in texts for c in text} - {" "})
    add_special_tokens = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = transformers.MBart50Tokenizer(
        vocab=[*add_special_tokens, ("▁", -2.0), *((c, -3.0) for c in letters)]
    )
    torch.manual_seed(9)
    config = transformers.MBartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        init_std=0.4,
        **_SIZES,
    )
    model = transformers.MBartForConditionalGeneration(config)
    model.generation_config.update(num_beams=1, max_length=16)
    return _save(folder, model, tokenizer)


def _save(folder: Path, model: Any, tokenizer: Any) -> Path:
    # Large weights, so that the output depends on the input.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _sentencepiece(path: Path) -> Any:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES["en"], *SENTENCES["de"]]),
        model_writer=written,
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(written.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
