"""The words of names and queries: camel case, digits and scripts without spaces taken apart."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from polyglance.search.signals.folding import fold

VERSION = 1
"""Raised when texts are taken apart differently, so that indexes are built again."""
MAX_WORDS = 2000
"""Words of one text; the rest of a longer one, as a page of a book, is left out."""

_RUN = re.compile(r"[^\W_]+")
# aB, ABc, a1 and 1a: but not ABC or 2024.
_PARTS = re.compile(r"(?<=[a-z\u00df-\u00ff])(?=[A-Z\u00c0-\u00de])|(?<=[A-Z])(?=[A-Z][a-z])"
                    r"|(?<=[^\W\d])(?=\d)|(?<=\d)(?=[^\W\d])")  # fmt: skip
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]+")
_FUNCTION_WORDS = """
the and with for from into onto over under near that this there their his her its are was has have
been being some two one who which while where what when not out off down all any
der die das den dem des ein eine einen einem einer eines und mit auf aus bei von vom zum zur für
über unter nach vor wie sich ist sind hat haben im am an in zu nicht als auch
le la les un une des du de et avec dans sur pour par sous chez qui que est sont au aux son sa ses
leur leurs pas plus
o a os as um uma uns umas e com em no na nos nas do da dos das para por sobre sob se seu sua pelo
pela ao
není v ve s z ze od po pro při pod nad který která které jsou je si u k ke ale nebo
el los las una unos con en del al y su sus es il lo gli di per che non и в на с у по из за от к
في من على إلى عن مع هذا هذه التي الذي و أو ثم كان هو هي 的 了 在 是 和 一个 一 有 与 及
photo photos picture pictures image images foto fotos bild bilder video
"""
_STOP_WORDS = frozenset(map(fold, _FUNCTION_WORDS.split()))
_WORDS_FOR_PICTURES = """
photo photos photograph photographs picture pictures pic pics image images the a an my our all any
of from in at on taken made show me
foto fotos bild bilder fotografien aufnahme aufnahmen der die das den dem des ein eine meine unsere
alle alles von vom aus im am an gemacht aufgenommen zeig zeige mir jahr jahre
photographies la le les l un une de d du mes nos tous toutes à au aux en dans prises pris année l
imagem imagens fotografia fotografias o os as do da dos das em no na meus minhas nossas todas todos
tiradas tirada ano
fotka fotky fotek fotografie obrázek obrázky snímek snímky moje naše všechny z ze v ve roku rok od
imagen imágenes fotografía fotografías el los las mis nuestras del tomadas año
immagine immagini le mie tutte tutti di della nel nella anno
صورة صور الصور صوري كل جميع من في عام سنة
照片 图片 相片 图像 写真 画像 사진 所有 我的 我 的 年 在 拍 从 全部
"""
_PICTURE_WORDS = frozenset(map(fold, _WORDS_FOR_PICTURES.split()))
_LETTERS = re.compile(r"[^\W_]+")
_IDEOGRAPHIC_PICTURE_WORDS = sorted(
    (word for word in _PICTURE_WORDS if not word.isascii() and word[0] >= "\u2e80"),
    key=len,
    reverse=True,
)


def split_words(text: str) -> Iterator[str]:
    """Yield the folded words of a name or text, in order.

    ``IMG_20230704BeachParty`` is img, 20230704, beach and party; ideographs come in pairs, since
    no spaces tell where a word ends.
    """
    for run in _RUN.findall(unicodedata.normalize("NFC", text)):
        for part in _PARTS.split(run):
            word = fold(part)
            place = 0
            for ideographs in _IDEOGRAPHS.finditer(word):
                if plain := word[place : ideographs.start()]:
                    yield _stem(plain)
                yield from _pairs(ideographs[0])
                place = ideographs.end()
            if rest := word[place:]:
                yield _stem(rest)


def index_words(text: str) -> set[str]:
    """Return the words by which a name or text is found."""
    found = set[str]()
    for word in split_words(text):
        if len(found) >= MAX_WORDS:
            break
        if _is_content(word):
            found.add(word)
    return found


def query_words(text: str) -> dict[str, str]:
    """Return the words of a query that may be in a name, each with how it is written there."""
    found: dict[str, str] = {}
    for run in _RUN.findall(unicodedata.normalize("NFC", text)):
        for word in split_words(run):
            if _is_content(word):
                found.setdefault(word, run)
    return found


def has_no_content(text: str) -> bool:
    """Return whether a text only says that pictures are wanted: ``my photos from``."""
    if any(unicodedata.category(sign) == "So" for sign in text):  # emoji
        return False
    folded = fold(unicodedata.normalize("NFC", text))
    for word in _IDEOGRAPHIC_PICTURE_WORDS:
        folded = folded.replace(word, " ")
    return all(word in _PICTURE_WORDS for word in _LETTERS.findall(folded))


def _is_content(word: str) -> bool:
    """Return whether a word says something about what is to be found."""
    if word in _STOP_WORDS:
        return False
    return len(word) >= (1 if _IDEOGRAPHS.fullmatch(word) else 2 if not word.isascii() else 3)


def _stem(word: str) -> str:
    """Drop the ending of plurals that English, French, Portuguese and Spanish share."""
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "su" else word


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    yield from (run[place : place + 2] for place in range(len(run) - 1))
