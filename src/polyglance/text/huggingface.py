"""Hugging Face tokenizers: ``tokenizer.json`` without transformers, others with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.text.tokenizer import Encoding, Tokenizer, max_content_length
from polyglance.utils.bounded import parse_json
from polyglance.weights.custom_code import refuse_custom_code

if TYPE_CHECKING:
    import tokenizers

_USUAL_NAMES = {
    "bos": ("<s>", "[CLS]"),
    "eos": ("</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
_CONFIG_KEYS = {
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}


class FastTokenizer:
    """A tokenizer of the ``tokenizers`` library.

    ``names`` maps roles (bos, eos, pad, unk, mask) to special tokens; roles it lacks get
    the usual token, if the vocabulary has it.
    """

    def __init__(self, backend: tokenizers.Tokenizer, names: dict[str, str] | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self._ids = {role: self._find(role, names or {}) for role in _USUAL_NAMES}
        self._before, self._after = self._wrapping()

    @property
    def vocab_size(self) -> int:
        """Number of ids; they run from 0."""
        return self.backend.get_vocab_size()

    @property
    def bos_id(self) -> int | None:
        """Begin-of-sequence token, such as ``<s>``."""
        return self._ids["bos"]

    @property
    def eos_id(self) -> int | None:
        """End-of-sequence token, such as ``</s>``."""
        return self._ids["eos"]

    @property
    def pad_id(self) -> int | None:
        """Padding token."""
        return self._ids["pad"]

    @property
    def unk_id(self) -> int | None:
        """Token for anything outside the vocabulary."""
        return self._ids["unk"]

    @property
    def mask_id(self) -> int | None:
        """Mask token."""
        return self._ids["mask"]

    def encode(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Return the token ids of a text."""
        ids = self.backend.encode(replace_lone_surrogates(text), add_special_tokens=False).ids
        return self._wrap(ids, add_special_tokens, max_length)

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Return the token ids of each text, computed on all cores."""
        encodings = self.backend.encode_batch_fast(
            [replace_lone_surrogates(text) for text in texts], add_special_tokens=False
        )
        return [self._wrap(encoding.ids, add_special_tokens, max_length) for encoding in encodings]

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Return the ids of `encode` together with their tokens and spans."""
        encoding = self.backend.encode(replace_lone_surrogates(text), add_special_tokens=False)
        ids = self._wrap(encoding.ids, add_special_tokens, max_length)
        before, after = (len(self._before), len(self._after)) if add_special_tokens else (0, 0)
        spans = encoding.offsets[: len(ids) - before - after]
        return Encoding(ids, self.tokens(ids), [(0, 0)] * before + spans + [(0, 0)] * after)

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text, without special tokens."""
        return self.backend.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, as the vocabulary spells them."""
        return [_spelling(self.backend.id_to_token(i), i) for i in ids]

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``special_tokens_map.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / "tokenizer.json"), pretty=False)
        names = {
            f"{role}_token": self.backend.id_to_token(number)
            for role, number in self._ids.items()
            if number is not None
        }
        text = json.dumps(names, ensure_ascii=False, indent=2)
        (folder / "special_tokens_map.json").write_text(text + "\n", encoding="utf-8")

    def _find(self, role: str, names: dict[str, str]) -> int | None:
        for name in (names[role],) if role in names else _USUAL_NAMES[role]:
            if (number := self.backend.token_to_id(name)) is not None:
                return number
        return None

    def _wrapping(self) -> tuple[list[int], list[int]]:
        """Return the special token ids before and after a text, observed on an example."""
        bare = self.backend.encode("a", add_special_tokens=False)
        full = self.backend.encode("a")
        before = next((i for i, s in enumerate(full.special_tokens_mask) if not s), len(full.ids))
        return full.ids[:before], full.ids[before + len(bare.ids) :]

    def _wrap(self, ids: list[int], add_special_tokens: bool, max_length: int | None) -> list[int]:
        if not add_special_tokens:
            return ids[:max_length]
        max_tokens = max_content_length(max_length, len(self._before) + len(self._after))
        return [*self._before, *ids[:max_tokens], *self._after]


class SlowTokenizer:
    """A tokenizer that runs only in transformers, in Python."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.vocab_size = len(backend)
        self.bos_id: int | None = _first(backend.bos_token_id, backend.cls_token_id)
        self.eos_id: int | None = _first(backend.eos_token_id, backend.sep_token_id)
        self.pad_id: int | None = backend.pad_token_id
        self.unk_id: int | None = backend.unk_token_id
        self.mask_id: int | None = backend.mask_token_id

    def encode(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Return the token ids of a text."""
        ids: list[int] = self.backend(replace_lone_surrogates(text), add_special_tokens=False)[
            "input_ids"
        ]
        if not add_special_tokens:
            return ids[:max_length]
        max_tokens = max_content_length(max_length, self.backend.num_special_tokens_to_add())
        return list(self.backend.build_inputs_with_special_tokens(ids[:max_tokens]))

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Return the token ids of each text."""
        return [
            self.encode(t, add_special_tokens=add_special_tokens, max_length=max_length)
            for t in texts
        ]

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Return the ids of `encode` with their tokens; the spans are None."""
        ids = self.encode(text, add_special_tokens=add_special_tokens, max_length=max_length)
        return Encoding(ids, self.tokens(ids), None)

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text, without special tokens."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, as the vocabulary spells them."""
        return [_spelling(self.backend.convert_ids_to_tokens(i), i) for i in ids]

    def save(self, folder: Path) -> None:
        """Write the folder as ``save_pretrained`` does."""
        self.backend.save_pretrained(str(folder))


def open_tokenizer_json(path: Path) -> FastTokenizer:
    """Open a ``tokenizer.json``; the config files beside it give the roles of special tokens."""
    import tokenizers

    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for whatever is wrong
        raise DataError(
            f"{path}: expected a tokenizer.json of Hugging Face's tokenizers ({error})"
        ) from error
    return FastTokenizer(backend, _special_names(path.parent))


def open_with_transformers(folder: Path) -> Tokenizer:
    """Open a folder without ``tokenizer.json`` by transformers' ``AutoTokenizer``."""
    if find_spec("transformers") is None:
        raise MissingExtraError(f"the tokenizer in {folder}", "train")
    refuse_custom_code(folder)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # as many kinds as there are tokenizers
        raise PolyglanceError(
            f"{folder} holds no tokenizer that transformers can open ({_first_line(error)}): "
            "expected tokenizer.json, a SentencePiece model or a vocabulary"
        ) from error
    if not tokenizer.is_fast:
        return SlowTokenizer(tokenizer)
    roles = {
        role: name
        for role, keys in _CONFIG_KEYS.items()
        if (name := _first(*(getattr(tokenizer, key) for key in keys))) is not None
    }
    return FastTokenizer(tokenizer.backend_tokenizer, roles)


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which broken JSON may contain and UTF-8 forbids."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _special_names(folder: Path) -> dict[str, str]:
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        try:
            content = parse_json((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / name}: expected a JSON object ({error})") from error
        if not isinstance(content, dict):
            raise DataError(f"{folder / name}: expected a JSON object")
        settings |= content
    names = {}
    for role, keys in _CONFIG_KEYS.items():
        for key in keys:
            value = settings.get(key)
            token = value.get("content") if isinstance(value, dict) else value
            if isinstance(token, str):
                names[role] = token
                break
    return names


def _spelling(token: str | None, number: int) -> str:
    if token is None:
        raise PolyglanceError(f"the tokenizer has no token of id {number}")
    return token


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
