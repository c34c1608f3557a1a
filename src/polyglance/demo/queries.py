"""The demo's queries: one short description per language, as its speakers would type it.

The default model was trained on captions in ten of these languages, those in Spanish, Russian and
Polish machine-translated. It learned the other four from sentences without pictures and from
dictionaries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """A query and the photographs that are relevant to it."""

    text: str
    language: str | None = None
    english: str = ""
    """English translation; empty for an English query."""
    relevant: frozenset[str] = frozenset()
    """File names of the relevant photographs without ``.webp``; empty if unknown."""


def _query(language: str, text: str, english: str, relevant: str) -> Query:
    return Query(text, language, english, frozenset(relevant.split()))


UNCAPTIONED = ("ja", "ko", "tr", "id")
"""Languages without captions in the default model's training data."""

QUERIES = (
    _query("en", "a brown horse in front of snowy mountains", "", "horse"),
    _query("de", "ein Hund steht auf einer Wiese", "a dog is standing on a meadow",
           "german-shepherd"),
    _query("fr", "un chat joue avec une pelote de laine", "a cat plays with a ball of wool",
           "cat-playing"),
    _query("cs", "písečná pláž u modrého moře", "a sandy beach by the blue sea",
           "beach cocktail"),
    _query("pt", "uma pilha de panquecas num prato", "a pile of pancakes on a plate", "pancakes"),
    _query("zh", "夜晚水边的高楼大厦", "tall buildings by the water at night", "city-night"),
    _query("ar", "زرافتان بين الأشجار", "two giraffes among the trees", "giraffes"),
    _query("es", "una montaña cubierta de nieve", "a mountain covered in snow",
           "snowy-mountain"),
    _query("ru", "овца на зелёной траве", "a sheep on green grass", "sheep"),
    _query("ja", "木の枝にとまっている鳥", "a bird perched on a branch", "kingfisher parrot"),
    _query("ko", "기타를 치는 사람들", "people playing the guitar", "mariachi"),
    _query("tr", "beyaz ocaklı bir mutfak", "a kitchen with a white stove", "kitchen"),
    _query("pl", "filiżanka kawy na drewnianym stole", "a cup of coffee on a wooden table",
           "coffee"),
    _query("id", "rel kereta api di antara pegunungan", "railway tracks between mountains",
           "railway"),
)  # fmt: skip
