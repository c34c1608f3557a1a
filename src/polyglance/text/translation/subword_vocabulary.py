"""One SentencePiece vocabulary for all languages, with a tag for each target language.

Ids: padding 0, unknown 1, ``<s>`` 2, ``</s>`` 3, then the tags ``<2de>`` (after Johnson et al.
2017), single bytes for characters that are not in the vocabulary, and pieces.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from polyglance.errors import DataError, PolyglanceError

PAD, END = 0, 3
_SPACE_BEFORE = re.compile(r"\s+(?=[.,](?:\s|$))")


def train_vocabulary(
    texts: Iterable[str],
    path: Path,
    *,
    languages: Sequence[str],
    size: int,
    character_coverage: float = 0.9995,
) -> None:
    """Train a unigram model and write it.

    Args:
        texts: Sentences of all languages.
        path: Where to write.
        languages: Each gets a tag.
        size: Sub-words, tags and bytes counted.
        character_coverage: Share of characters that get a piece of their own.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=character_coverage,
            byte_fallback=True,
            control_symbols=[language_tag(language) for language in languages],
            pad_id=PAD,
            unk_id=1,
            bos_id=2,
            eos_id=END,
            # A small corpus may have fewer pieces than asked for.
            hard_vocab_limit=False,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise PolyglanceError(
            f"no vocabulary of {size:,} sub-words can be learned ({error}): give another size"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.getvalue())


def clean_text(text: str) -> str:
    """Return a sentence with single spaces, and none before full stops and commas."""
    return _SPACE_BEFORE.sub("", " ".join(text.split()))


def language_tag(language: str) -> str:
    """Return the token that asks for a translation into a language."""
    return f"<2{language}>"


class SubwordVocabulary:
    """Sub-words of all languages, and their tags."""

    def __init__(self, path: Path) -> None:
        """Open a model that `train_vocabulary` wrote."""
        import sentencepiece

        self.path = path
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise DataError(f"{path}: expected a SentencePiece model") from error
        if (self._processor.pad_id(), self._processor.eos_id()) != (PAD, END):
            raise DataError(
                f"{path}: expected the vocabulary of a caption translator, with padding as 0 and"
                " the end as 3: let `polyglance train caption-translator` learn one"
            )

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def tag(self, language: str) -> int:
        """Return the id of a language's tag."""
        token = self._processor.piece_to_id(language_tag(language))
        if token == self._processor.unk_id():
            raise PolyglanceError(
                f"{self.path} has no tag for {language}: choose other languages, or learn a new"
                " vocabulary"
            )
        return int(token)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the sub-words of each text, without tag and end."""
        encoded: list[list[int]] = self._processor.encode(list(texts), num_threads=-1)
        return encoded

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Return texts; tags and padding are left out."""
        texts = self._processor.decode([list(map(int, one)) for one in tokens], num_threads=-1)
        return [" ".join(text.split()) for text in texts]
