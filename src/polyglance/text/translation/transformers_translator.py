"""Marian, NLLB, M2M100 and mBART models in transformers' format."""

from __future__ import annotations

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
from polyglance.utils.bounded import parse_json
from polyglance.utils.fingerprint import digest, digest_model_folder
from polyglance.weights.custom_code import refuse_custom_code

BILINGUAL, MULTILINGUAL = ("marian",), ("m2m_100", "mbart")
"""``model_type`` of bilingual and of multilingual models; NLLB is an M2M100 with other tags."""

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_MAX_NEW_TOKENS = 200
"""Maximum length of a translation where the folder's generation config sets none."""


class TransformersTranslator:
    """A translation model of transformers; its weights are loaded when it first translates."""

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
        """Open the model's tokenizer and check its languages.

        Args:
            folder: The model, as ``save_pretrained`` writes it.
            source: Language of the texts.
            target: Language to translate into.
            num_beams: Beam size; None for that of the folder's generation config.
            device: Torch device.
        """
        self.folder = Path(folder).expanduser()
        self.source, self.target = normalise_language(source), normalise_language(target)
        self.num_beams, self.device = num_beams, device
        self._model_type = _model_type(self.folder)
        refuse_custom_code(self.folder)
        if find_spec("torch") is None or find_spec("transformers") is None:
            raise MissingExtraError(f"translating by {self.folder}", "train")
        if not _has_safetensors(self.folder) and not any(self.folder.glob("pytorch_model*.bin")):
            raise DataError(
                f"{self.folder} has no weights: download its model.safetensors or pytorch_model.bin"
            )
        self._check_languages()

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the folder's files, whose weights are read whole, and the beam size."""
        return digest("transformers", digest_model_folder(self.folder), self.num_beams)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text into the target language."""
        if not texts:
            return []
        import torch

        model = _model(self.folder, self.device)
        # Marian takes a tag before the text if it has several target languages.
        tagged = [f"{self._prefix}{text}" for text in texts]
        inputs = self._tokenizer(
            tagged,
            padding=True,
            truncation=True,
            max_length=model.config.max_position_embeddings,
            return_tensors="pt",
        )
        try:
            with torch.inference_mode():
                outputs = model.generate(**inputs.to(self.device), **self._generation(model))
        except (RuntimeError, ValueError, LookupError) as error:
            raise PolyglanceError(
                f"{self.folder} could not translate ({_short_message(error)})"
            ) from error
        translations = self._tokenizer.batch_decode(outputs, skip_special_tokens=True)
        return [" ".join(text.split()) for text in translations]

    def _generation(self, model: Any) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.num_beams is not None:
            options["num_beams"] = self.num_beams
        if model.generation_config.max_length in (None, 20):  # transformers' own default
            options["max_new_tokens"] = min(
                _MAX_NEW_TOKENS, model.config.max_position_embeddings - 1
            )
        if self._model_type in MULTILINGUAL:
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
        # M2M100's tokenizer does not have its tags in the vocabulary.
        own = getattr(self._tokenizer, "lang_code_to_token", {})
        return language_tags([*self._tokenizer.get_vocab(), *own.values()])

    @cached_property
    def _prefix(self) -> str:
        if self._model_type in MULTILINGUAL or not self._tags:
            return ""
        return f"{tag_of(self.target, self._tags, self.folder)} "

    def _check_languages(self) -> None:
        """Raise if the model is for other languages."""
        if self._model_type in MULTILINGUAL:
            tag_of(self.target, self._tags, self.folder)
            # M2M100 expects the code inside its tag.
            self._tokenizer.src_lang = tag_of(self.source, self._tags, self.folder).strip("_")
            return
        _ = self._prefix
        for role, expected in (("source_lang", self.source), ("target_lang", self.target)):
            language = getattr(self._tokenizer, role, None)
            if language and not self._tags and _parse_language(language) not in (None, expected):
                names = get_language(language).english_name, get_language(expected).english_name
                raise PolyglanceError(
                    f"{self.folder} has {names[0]} as its {role[:6]}, not {names[1]}: name the"
                    " folder of the pair, or folders by pattern as models/{source}-{target}"
                )


@lru_cache(maxsize=1)
def _model(folder: Path, device: str) -> Any:
    """Load the model, which translators of one folder into several languages share."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    with _opening(folder):
        models: Any = AutoModelForSeq2SeqLM
        model, loaded = models.from_pretrained(
            str(folder),
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            # As Helsinki-NLP's and NLLB's folders are published: pytorch_model.bin alone.
            use_safetensors=_has_safetensors(folder),
            weights_only=True,  # refuses anything but tensors, so that no foreign code runs
            output_loading_info=True,
            **_LOCAL,
        )
    if missing := sorted(loaded["missing_keys"]):  # transformers would initialise them randomly
        raise DataError(
            f"{folder} lacks {len(missing)} of its model's weights, such as {missing[0]}:"
            " save or download it again"
        )
    return model.to(device).eval().requires_grad_(False)


def _has_safetensors(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Silence transformers and turn whatever it raises into a DataError."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # transformers raises many types for a damaged folder
        raise DataError(
            f"{folder} cannot be opened by transformers ({_short_message(error)})"
        ) from error
    finally:
        if bars:
            logging.enable_progress_bar()


def _model_type(folder: Path) -> str:
    try:
        model_type = parse_json((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: expected config.json with a model_type ({error})") from error
    if model_type not in BILINGUAL + MULTILINGUAL:
        raise DataError(
            f"{folder} holds a {model_type}, which Polyglance does not translate with: give Marian,"
            " NLLB, M2M100 or mBART"
        )
    return str(model_type)


def _parse_language(code: str) -> str | None:
    try:
        return normalise_language(code)
    except ValueError:
        return None


def _short_message(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
