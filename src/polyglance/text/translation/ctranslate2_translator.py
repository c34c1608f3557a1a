"""CTranslate2 models: Marian and NLLB converted by its tools, and Argos Translate's packages.

A folder holds ``model.bin`` and what cuts its texts: ``source.spm`` and ``target.spm``
of Marian, ``sentencepiece.model`` of Argos, ``tokenizer.json`` of NLLB. An Argos
package has the model in ``model/`` and says its languages in ``metadata.json``.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyglance.errors import DataError, MissingExtraError, PolyglanceError, error_reason
from polyglance.languages import get_language, normalise_language
from polyglance.text.translation.language_tags import language_tags, tag_of
from polyglance.utils.fingerprint import digest, digest_model_folder, file_sha256
from polyglance.weights import cache_folder

Cut = Callable[[str], list[str]]
Join = Callable[[list[str]], str]

_END = "</s>"
_LONGEST = 200
_SHARED = ("sentencepiece.model", "bpe.model", "sentencepiece.bpe.model", "spm.model")


class CTranslate2Translator:
    """A model of CTranslate2 on the CPU or an accelerator."""

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
        """``cutters`` is where the SentencePiece files are, if not in the folder; ``prefix``
        a token that each translation begins with, as some of Argos's packages want."""
        for package in ("ctranslate2", "sentencepiece"):
            if find_spec(package) is None:
                raise MissingExtraError(f"translating by {folder}", "translate")
        self.folder = Path(folder).expanduser()
        self.source, self.target = normalise_language(source), normalise_language(target)
        self.beams, self.device, self.prefix = num_beams, device, target_prefix
        self._cutters = self.folder if tokenizer_folder is None else tokenizer_folder
        self._cut, self._join = _cutting(self._cutters)
        self._tags = language_tags(_vocabulary(self.folder))
        for language in (self.source, self.target) if self._tags else ():
            tag_of(language, self._tags, self.folder)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._cutters.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Of the folder's files and the search."""
        folders = dict.fromkeys((self.folder, self._cutters))
        return digest("ctranslate2", *map(digest_model_folder, folders), self.beams)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Each text in the target language."""
        prefix = [self._tags[self.target]] if self._tags else [self.prefix] if self.prefix else None
        try:
            found = _model(self.folder, self.device).translate_batch(
                [self._asked(text) for text in texts],
                target_prefix=None if prefix is None else [prefix] * len(texts),
                beam_size=self.beams,
                max_decoding_length=_LONGEST,
            )
        except (RuntimeError, ValueError) as error:
            raise PolyglanceError(f"{self.folder} could not translate ({error})") from error
        said = [one.hypotheses[0] for one in found]
        start = len(prefix or ())
        return [" ".join(self._join(tokens[start:]).split()) for tokens in said]

    def _asked(self, text: str) -> list[str]:
        pieces = self._cut(text)
        if self._tags:
            return [self._tags[self.source], *pieces, _END]
        # What was converted from transformers' Marian leaves the end to the tokenizer.
        return [*pieces, _END] if self._needs_end else pieces

    @cached_property
    def _needs_end(self) -> bool:
        settings = _json(self.folder / "config.json")
        return (self.folder / "source.spm").is_file() and not settings.get("add_source_eos")


def open_argos(
    path: Path, source: str, target: str, *, device: str = "cpu"
) -> CTranslate2Translator:
    """An Argos package: an ``.argosmodel`` file, unpacked once, or the folder of it."""
    folder = path if path.is_dir() else _unpacked(path)
    about = _json(folder / "metadata.json")
    codes = about.get("from_code"), about.get("to_code")
    if not all(isinstance(code, str) for code in codes):
        raise DataError(f"{path}: expected metadata.json with from_code and to_code")
    wanted = normalise_language(source), normalise_language(target)
    if tuple(normalise_language(str(code)) for code in codes) != wanted:
        names = [get_language(str(code)).english_name for code in (*codes, *wanted)]
        raise PolyglanceError(
            f"{path} translates {names[0]} to {names[1]}, not {names[2]} to {names[3]}"
        )
    prefix = str(about.get("target_prefix") or "")
    return CTranslate2Translator(
        folder / "model",
        source,
        target,
        device=device,
        tokenizer_folder=folder,
        target_prefix=prefix,
    )


def _unpacked(path: Path) -> Path:
    """The folder in a package, in the cache; `zipfile` keeps names such as ``../x`` within."""
    if not path.is_file():
        raise PolyglanceError(f"{path}: no such package")
    place = cache_folder() / "argos" / file_sha256(path)
    if not place.is_dir():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=place.parent) as partial, zipfile.ZipFile(path) as package:
                package.extractall(f"{partial}/whole")
                try:
                    os.replace(f"{partial}/whole", place)
                except OSError:
                    if not place.is_dir():  # made by another run that was faster
                        raise
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
            raise DataError(f"{path}: expected an Argos package ({error_reason(error)})") from error
    found = sorted(place.rglob("metadata.json"))
    if not found:
        raise DataError(f"{path}: expected an Argos package, and there is no metadata.json in it")
    return found[0].parent


def _cutting(folder: Path) -> tuple[Cut, Join]:
    """What cuts a text into a model's pieces, and what makes a text of them."""
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: list(whole.encode(text, add_special_tokens=False).tokens), _joined
    pair = folder / "source.spm", folder / "target.spm"
    shared = next((folder / name for name in _SHARED if (folder / name).is_file()), None)
    if all(path.is_file() for path in pair):
        cutter = _sentencepiece(pair[0])
    elif shared is not None:
        cutter = _sentencepiece(shared)
    else:
        raise DataError(
            f"{folder} has nothing that cuts texts for its model: put the model's"
            " source.spm and target.spm, sentencepiece.model or tokenizer.json into it"
        )
    return lambda text: list(cutter.encode(text, out_type=str)), _joined


def _joined(pieces: list[str]) -> str:
    """A text of SentencePiece's pieces, whose spaces are written ▁."""
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
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            return [str(token) for token in content]
        if (path := folder / f"{name}.txt").is_file():
            return path.read_text(encoding="utf-8").split("\n")
    return []


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected a JSON object ({error_reason(error)})") from error
    return content if isinstance(content, dict) else {}
