"""A procedural dataset of coloured shapes for tests and tutorials.

`semantics` defines facts and events, `scenes` and `rendering` draw them, `grammars`
describe them in eight languages, `dictionaries` and `questions` follow from the grammars,
`splits` hold compositions out, and `dataset` puts it together:

    dataset = ToyDataset(seed=1)
    picture = next(dataset.pictures(1, "train"))
    picture.pixels(), picture.captions["ar"][0].text, picture.questions, picture.regions("ja")

Word order and the binding of colours to shapes matter: on `ToyDataset.hard_set` a model that
ignores colour, shape or order retrieves at most half of the pictures, and a bag-of-words
model a quarter.
"""

from polyglance.data.toy.dataset import ToyDataset
from polyglance.data.toy.dictionaries import dictionary, lexicon
from polyglance.data.toy.grammar import Caption, Token, align_captions, format_pharaoh
from polyglance.data.toy.grammars import LANGUAGES, describe, narrate
from polyglance.data.toy.items import Clip, Item, Picture
from polyglance.data.toy.parser import parse_caption
from polyglance.data.toy.semantics import Event, Fact, Thing
from polyglance.data.toy.video import write_clip
from polyglance.data.toy.writer import label_names, write_dataset

__all__ = [
    "LANGUAGES",
    "Caption",
    "Clip",
    "Event",
    "Fact",
    "Item",
    "Picture",
    "Thing",
    "Token",
    "ToyDataset",
    "align_captions",
    "describe",
    "dictionary",
    "format_pharaoh",
    "label_names",
    "lexicon",
    "narrate",
    "parse_caption",
    "write_clip",
    "write_dataset",
]
