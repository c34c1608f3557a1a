"""Marian, NLLB, M2M100 and mBART models, as transformers' ``save_pretrained`` writes them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.languages import get_language, normalise_language
from polyglance.text.translation.language_tags import language_tags, tag_of
from polyglance.utils.fingerprint import digest, digest_model_folder

ONE_PAIR, MANY_LANGUAGES = ("marian",), ("m2m_100", "mbart")
"""What ``config.json`` calls the kinds of model; NLLB is an M2M100 with tags of its own."""

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_LONGEST = 200
"""Sub-words of a translation, where neither folder nor caller says otherwise."""


class TransformersTranslator:
    """A translation model of transformers; its weights are read when it first translates."""

    batch_size = 32

    def __init__(
        self,
        folder: str | Path,
        source: str,
        target: str,
        *,
        num_beams: int | None = None,
        device: str = "cpu",
    ) -> None:
        """``beams`` are those of the folder's ``generation_config.json`` unless given."""
        self.folder = Path(folder).expanduser()
        self.source, self.target = normalise_language(source), normalise_language(target)
        self.beams, self.device = num_beams, device
        self._kind = _kind(self.folder)
        if find_spec("torch") is None or find_spec("transformers") is None:
            raise MissingExtraError(f"translating by {self.folder}", "train")
        if not any(self.folder.glob("*.safetensors")):
            raise DataError(
                f"{self.folder} holds no .safetensors file: save the model again as one, for"
                " pickles could run any code when they are opened"
            )
        self._check_languages()

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Of the folder's files and the search; every byte of the weights is read."""
        return digest("transformers", digest_model_folder(self.folder), self.beams)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Each text in the target language."""
        if not texts:
            return []
        import torch

        model = _model(self.folder, self.device)
        # Marian needs no tag unless it has several targets; then it stands before the text.
        tagged = [f"{self._prefix}{text}" for text in texts]
        asked = self._tokenizer(
            tagged,
            padding=True,
            truncation=True,
            max_length=model.config.max_position_embeddings,
            return_tensors="pt",
        )
        try:
            with torch.inference_mode():
                found = model.generate(**asked.to(self.device), **self._generation(model))
        except (RuntimeError, ValueError, LookupError) as error:
            raise PolyglanceError(f"{self.folder} could not translate ({_line(error)})") from error
        said = self._tokenizer.batch_decode(found, skip_special_tokens=True)
        return [" ".join(text.split()) for text in said]

    def _generation(self, model: Any) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.beams is not None:
            options["num_beams"] = self.beams
        if model.generation_config.max_length in (None, 20):  # transformers' own default
            options["max_new_tokens"] = min(_LONGEST, model.config.max_position_embeddings - 1)
        if self._kind in MANY_LANGUAGES:
            tag = tag_of(self.target, self._tags, self.folder)
            options["forced_bos_token_id"] = self._tokenizer.convert_tokens_to_ids(tag)
        return options

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        with _opening(self.folder):
            return AutoTokenizer.from_pretrained(str(self.folder), **_LOCAL)

    @cached_property
    def _tags(self) -> dict[str, str]:
        # M2M100's tokenizer keeps its tags out of the vocabulary.
        own = getattr(self._tokenizer, "lang_code_to_token", {})
        return language_tags([*self._tokenizer.get_vocab(), *own.values()])

    @cached_property
    def _prefix(self) -> str:
        if self._kind in MANY_LANGUAGES or not self._tags:
            return ""
        return f"{tag_of(self.target, self._tags, self.folder)} "

    def _check_languages(self) -> None:
        """Raise where the folder says that it translates between others."""
        if self._kind in MANY_LANGUAGES:
            tag_of(self.target, self._tags, self.folder)
            # M2M100 is given the code within its tag.
            self._tokenizer.src_lang = tag_of(self.source, self._tags, self.folder).strip("_")
            return
        _ = self._prefix
        for role, ours in (("source_lang", self.source), ("target_lang", self.target)):
            told = getattr(self._tokenizer, role, None)
            if told and not self._tags and _language(told) not in (None, ours):
                names = get_language(told).english_name, get_language(ours).english_name
                raise PolyglanceError(
                    f"{self.folder} has {names[0]} as its {role[:6]}, not {names[1]}: name the"
                    " folder of the pair, or folders by pattern as models/{source}-{target}"
                )


@lru_cache(maxsize=1)
def _model(folder: Path, device: str) -> Any:
    """The network, shared by the translators of one folder into several languages."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    with _opening(folder):
        models: Any = AutoModelForSeq2SeqLM
        model, loaded = models.from_pretrained(
            str(folder),
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            use_safetensors=True,
            output_loading_info=True,
            **_LOCAL,
        )
    if missing := sorted(loaded["missing_keys"]):  # transformers would fill them with noise
        raise DataError(
            f"{folder} lacks {len(missing)} of its model's weights, such as {missing[0]}:"
            " save or download it again"
        )
    return model.to(device).eval().requires_grad_(False)


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Open quietly; whatever transformers raises becomes one sentence."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # it raises anything about a mangled folder
        raise DataError(f"{folder} cannot be opened by transformers ({_line(error)})") from error
    finally:
        if bars:
            logging.enable_progress_bar()


def _kind(folder: Path) -> str:
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: expected config.json with a model_type ({error})") from error
    if kind not in ONE_PAIR + MANY_LANGUAGES:
        raise DataError(
            f"{folder} holds a {kind}, which Polyglance does not translate with: give Marian,"
            " NLLB, M2M100 or mBART"
        )
    return str(kind)


def _language(code: str) -> str | None:
    try:
        return normalise_language(code)
    except ValueError:
        return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
