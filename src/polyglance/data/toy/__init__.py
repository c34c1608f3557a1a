"""A procedural world of coloured shapes for tests, tutorials and continuous checks.

`meaning` says what can be the case, `scenes` and `rendering` draw it,
`grammars` tell it in eight languages, `dictionaries` and `questions` come with
it, `splits` hold compositions out, and `world` puts it together:

    world = ToyDataset(seed=1)
    picture = next(world.pictures(1, "train"))
    picture.pixels(), picture.captions["ar"][0].text, picture.questions, picture.regions("ja")

The captions' order of words and the binding of colours to shapes decide: on
`ToyDataset.hard_set` whoever ignores colour, shape or order finds at most half
of the pictures, and whoever reads bags of words a quarter.
"""

from polyglance.data.toy.dataset import ToyDataset
from polyglance.data.toy.dictionaries import dictionary, lexicon
from polyglance.data.toy.grammar import Caption, Token, align, pharaoh
from polyglance.data.toy.grammars import LANGUAGES, describe, narrate
from polyglance.data.toy.items import Clip, Item, Picture
from polyglance.data.toy.parser import readings
from polyglance.data.toy.semantics import Event, Fact, Thing
from polyglance.data.toy.video import write_clip
from polyglance.data.toy.writer import label_names, write

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
    "align",
    "describe",
    "dictionary",
    "label_names",
    "lexicon",
    "narrate",
    "pharaoh",
    "readings",
    "write",
    "write_clip",
]
