"""Open a translator by name: ``apertium``, ``words``, or a model's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyglance.errors import PolyglanceError
from polyglance.languages import get_language, normalise_language
from polyglance.text.dictionary_files import FREEDICT_FOLDER, open_dictionaries
from polyglance.text.translation.caption_translator import (
    CaptionTranslator,
    is_caption_translator,
)
from polyglance.text.translation.ctranslate2_translator import CTranslate2Translator, open_argos
from polyglance.text.translation.transformers_translator import TransformersTranslator
from polyglance.text.translation.translators import Apertium, CacheableTranslator, WordByWord


def open_translator(
    name: str,
    source: str,
    target: str,
    *,
    dictionaries: Sequence[str | Path] = (FREEDICT_FOLDER,),
    device: str = "cpu",
) -> CacheableTranslator:
    """Open a translator between two languages.

    Args:
        name: ``apertium``, ``words``, or a folder with a caption translator, a Marian, NLLB,
            M2M100 or mBART model of transformers, a CTranslate2 model or an Argos package
            (also an ``.argosmodel`` file). ``{source}`` and ``{target}`` in it are replaced by
            the languages.
        source: Language of the texts.
        target: Language to translate into.
        dictionaries: Folders, files or patterns of the dictionaries for ``words``.
        device: Device that a model runs on.
    """
    try:
        source, target = normalise_language(source), normalise_language(target)
    except ValueError as error:
        raise PolyglanceError(f"expected {error}") from None
    if source == target:
        raise PolyglanceError(
            f"captions are already in {get_language(source).english_name}: give another language"
        )
    if name == "apertium":
        return Apertium(source, target)
    if name == "words":
        by_language = open_dictionaries(dictionaries, source=source, languages=[target])
        # Single words before phrases, which often are explanations.
        return WordByWord(
            by_language[target].ranked({}), source, target, max_phrase_words=3, keep_unknown=True
        )
    location = name.replace("{source}", source).replace("{target}", target)
    path = Path(location).expanduser()
    if path.suffix == ".argosmodel" or (path / "metadata.json").is_file():
        if not path.exists():
            raise PolyglanceError(f"{path}: no such package; {_HINT}")
        return open_argos(path, source, target, device=device)
    if not path.is_dir():
        raise PolyglanceError(f"{path}: no such folder; {_HINT}")
    if (path / "model.bin").is_file():
        return CTranslate2Translator(path, source, target, device=device)
    if is_caption_translator(path):
        return CaptionTranslator(path, source, target, device=device)
    return TransformersTranslator(path, source, target, device=device)


def open_first_translator(
    names: Sequence[str],
    source: str,
    target: str,
    *,
    dictionaries: Sequence[str | Path] = (FREEDICT_FOLDER,),
    device: str = "cpu",
) -> CacheableTranslator:
    """Open the first of several translators that supports the two languages."""
    reasons = []
    for name in names:
        try:
            return open_translator(name, source, target, dictionaries=dictionaries, device=device)
        except PolyglanceError as error:
            reasons.append(error)
    if len(reasons) == 1:
        raise reasons[0]
    raise PolyglanceError("; ".join(map(str, reasons)) or f"give a translator; {_HINT}")


_HINT = (
    "name apertium, words, or the folder of a model, with {source} and {target} in its name where"
    " there is one for each pair of languages"
)
