"""CTranslate2 models: converted Marian and NLLB models, and Argos Translate's packages.

A folder holds ``model.bin`` and its tokenizer: Marian's ``source.spm`` and
``target.spm``, Argos's ``sentencepiece.model`` or NLLB's ``tokenizer.json``. An Argos
package has the model in ``model/`` and its languages in ``metadata.json``.
"""

from __future__ import annotations

import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyglance.errors import DataError, MissingExtraError, PolyglanceError, error_reason
from polyglance.languages import get_language, normalise_language
from polyglance.text.translation.language_tags import language_tags, tag_of
from polyglance.utils.bounded import check_zip, parse_json
from polyglance.utils.fingerprint import digest, digest_model_folder, file_sha256
from polyglance.weights import cache_folder

Tokenize = Callable[[str], list[str]]
Join = Callable[[list[str]], str]

_END = "</s>"
_MAX_TOKENS = 200
_SHARED_MODELS = ("sentencepiece.model", "bpe.model", "sentencepiece.bpe.model", "spm.model")


class CTranslate2Translator:
    """A CTranslate2 model on the CPU or a GPU."""

    batch_size = 64

    def __init__(
        self,
        folder: str | Path,
        source: str,
        target: str,
        *,
        num_beams: int = 4,
        device: str = "cpu",
        tokenizer_folder: Path | None = None,
        target_prefix: str = "",
    ) -> None:
        """Open the model's tokenizer; the weights are loaded when it first translates.

        Args:
            folder: The model.
            source: Language of the texts.
            target: Language to translate into.
            num_beams: Beam size.
            device: ``cpu`` or ``cuda``.
            tokenizer_folder: Where the tokenizer is, if not in ``folder``.
            target_prefix: Token that every translation begins with, as some Argos
                packages need.
        """
        for package in ("ctranslate2", "sentencepiece"):
            if find_spec(package) is None:
                raise MissingExtraError(f"translating by {folder}", "translate")
        self.folder = Path(folder).expanduser()
        self.source, self.target = normalise_language(source), normalise_language(target)
        self.num_beams, self.device, self.target_prefix = num_beams, device, target_prefix
        self._tokenizer_folder = self.folder if tokenizer_folder is None else tokenizer_folder
        self._tokenize, self._join = _open_tokenizer(self._tokenizer_folder)
        self._tags = language_tags(_vocabulary(self.folder))
        for language in (self.source, self.target) if self._tags else ():
            tag_of(language, self._tags, self.folder)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._tokenizer_folder.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the folder's files and the beam size."""
        folders = dict.fromkeys((self.folder, self._tokenizer_folder))
        return digest("ctranslate2", *map(digest_model_folder, folders), self.num_beams)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text into the target language."""
        token = self._tags[self.target] if self._tags else self.target_prefix
        prefix = [token] if token else None
        try:
            results = _model(self.folder, self.device).translate_batch(
                [self._source_tokens(text) for text in texts],
                target_prefix=None if prefix is None else [prefix] * len(texts),
                beam_size=self.num_beams,
                max_decoding_length=_MAX_TOKENS,
            )
        except (RuntimeError, ValueError) as error:
            raise PolyglanceError(f"{self.folder} could not translate ({error})") from error
        outputs = [result.hypotheses[0] for result in results]
        start = len(prefix or ())
        return [" ".join(self._join(tokens[start:]).split()) for tokens in outputs]

    def _source_tokens(self, text: str) -> list[str]:
        pieces = self._tokenize(text)
        if self._tags:
            return [self._tags[self.source], *pieces, _END]
        # Models converted from transformers' Marian expect </s> from the tokenizer.
        return [*pieces, _END] if self._needs_end else pieces

    @cached_property
    def _needs_end(self) -> bool:
        settings = _json(self.folder / "config.json")
        return (self.folder / "source.spm").is_file() and not settings.get("add_source_eos")


def open_argos(
    path: Path, source: str, target: str, *, device: str = "cpu"
) -> CTranslate2Translator:
    """Open an Argos package: an ``.argosmodel`` file, unpacked once, or its folder."""
    folder = path if path.is_dir() else _unpack(path)
    metadata = _json(folder / "metadata.json")
    codes = metadata.get("from_code"), metadata.get("to_code")
    if not all(isinstance(code, str) for code in codes):
        raise DataError(f"{path}: expected metadata.json with from_code and to_code")
    wanted = normalise_language(source), normalise_language(target)
    if tuple(normalise_language(str(code)) for code in codes) != wanted:
        names = [get_language(str(code)).english_name for code in (*codes, *wanted)]
        raise PolyglanceError(
            f"{path} translates {names[0]} to {names[1]}, not {names[2]} to {names[3]}"
        )
    prefix = str(metadata.get("target_prefix") or "")
    return CTranslate2Translator(
        folder / "model",
        source,
        target,
        device=device,
        tokenizer_folder=folder,
        target_prefix=prefix,
    )


def _unpack(path: Path) -> Path:
    """Unpack a package into the cache; `zipfile` keeps names such as ``../x`` inside."""
    if not path.is_file():
        raise PolyglanceError(f"{path}: no such package")
    unpacked = cache_folder() / "argos" / file_sha256(path)
    if not unpacked.is_dir():
        try:
            unpacked.parent.mkdir(parents=True, exist_ok=True)
            with (
                TemporaryDirectory(dir=unpacked.parent) as partial,
                zipfile.ZipFile(path) as package,
            ):
                check_zip(package, path.stat().st_size)
                package.extractall(f"{partial}/whole")
                try:
                    os.replace(f"{partial}/whole", unpacked)
                except OSError:
                    if not unpacked.is_dir():  # unpacked by another run in the meantime
                        raise
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
            OSError,
            ValueError,
            zlib.error,
            EOFError,
            lzma.LZMAError,
        ) as error:
            raise DataError(f"{path}: expected an Argos package ({error_reason(error)})") from error
    metadata_files = sorted(unpacked.rglob("metadata.json"))
    if not metadata_files:
        raise DataError(f"{path}: expected an Argos package, but it has no metadata.json")
    return metadata_files[0].parent


def _open_tokenizer(folder: Path) -> tuple[Tokenize, Join]:
    """Return the functions that split a text into tokens and join tokens to a text."""
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: list(
            tokenizer.encode(text, add_special_tokens=False).tokens
        ), _join_pieces
    pair = folder / "source.spm", folder / "target.spm"
    shared = next((folder / name for name in _SHARED_MODELS if (folder / name).is_file()), None)
    if all(path.is_file() for path in pair):
        processor = _sentencepiece(pair[0])
    elif shared is not None:
        processor = _sentencepiece(shared)
    else:
        raise DataError(
            f"{folder} has no tokenizer: put the model's source.spm and target.spm,"
            " sentencepiece.model or tokenizer.json into it"
        )
    return lambda text: list(processor.encode(text, out_type=str)), _join_pieces


def _join_pieces(pieces: list[str]) -> str:
    """Join SentencePiece's pieces, whose spaces are written ▁."""
    return "".join(piece for piece in pieces if piece not in (_END, "<unk>")).replace("▁", " ")


def _sentencepiece(path: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise DataError(f"{path}: expected a SentencePiece model") from error


@lru_cache(maxsize=1)
def _model(folder: Path, device: str) -> Any:
    import ctranslate2

    try:
        return ctranslate2.Translator(str(folder), device=device)
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{folder} cannot be opened by CTranslate2 ({error})") from error


def _vocabulary(folder: Path) -> list[str]:
    for name in ("shared_vocabulary", "target_vocabulary"):
        if (path := folder / f"{name}.json").is_file():
            try:
                content: Any = parse_json(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: expected a JSON list ({error_reason(error)})") from error
            return [str(token) for token in content]
        if (path := folder / f"{name}.txt").is_file():
            return path.read_text(encoding="utf-8").split("\n")
    return []


def _json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected a JSON object ({error_reason(error)})") from error
    return content if isinstance(content, dict) else {}
