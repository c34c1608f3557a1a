"""English lemmatisation by rules and a list of irregular forms: dogs, dog; sitting, sit.

The rules propose candidates; the caller checks them against a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator

_CONTRACTED = frozenset(
    ["it", "he", "she", "that", "there", "here", "what", "who", "where", "how", "when", "let"]
)
"""Words after which 's is a verb, not a possessive."""

_VOWELS = "aeiou"

_IRREGULAR = {
    form: base
    for base, forms in {
        "a": "an", "be": "am is are was were been being", "have": "has had",
        "do": "does did done", "go": "goes went gone", "begin": "began begun", "bend": "bent",
        "bite": "bit bitten", "blow": "blew blown", "break": "broke broken", "bring": "brought",
        "build": "built", "buy": "bought", "catch": "caught", "choose": "chose chosen",
        "come": "came", "draw": "drew drawn", "drink": "drank drunk", "drive": "drove driven",
        "eat": "ate eaten", "fall": "fell fallen", "feed": "fed", "feel": "felt",
        "fight": "fought", "find": "found", "fly": "flew flown", "get": "got gotten",
        "give": "gave given", "grow": "grew grown", "hang": "hung", "hear": "heard",
        "hide": "hid hidden", "hold": "held", "keep": "kept", "know": "knew known", "lead": "led",
        "lean": "leant", "leave": "left", "lie": "lay lain", "light": "lit", "lose": "lost",
        "make": "made", "meet": "met", "pay": "paid", "ride": "rode ridden", "rise": "rose risen",
        "run": "ran", "say": "said", "see": "saw seen", "sell": "sold", "send": "sent",
        "shake": "shook shaken", "shoot": "shot", "show": "shown", "sing": "sang sung",
        "sit": "sat", "sleep": "slept", "slide": "slid", "speak": "spoke spoken",
        "spend": "spent", "spin": "spun", "spring": "sprang sprung", "stand": "stood",
        "steal": "stole stolen", "stick": "stuck", "strike": "struck", "sweep": "swept",
        "swim": "swam swum", "swing": "swung", "take": "took taken", "teach": "taught",
        "tear": "tore torn", "tell": "told", "think": "thought", "throw": "threw thrown",
        "wake": "woke woken", "wear": "wore worn", "win": "won", "wind": "wound",
        "write": "wrote written", "man": "men", "woman": "women", "child": "children",
        "person": "people persons", "foot": "feet", "tooth": "teeth", "goose": "geese",
        "mouse": "mice", "ox": "oxen", "good": "better best", "bad": "worse worst",
        "this": "these", "that": "those",
    }.items()
    for form in forms.split()
}  # fmt: skip


def lemmas(word: str) -> Iterator[str]:
    """Yield candidate base forms of a lower-case word, most probable first, without the word.

    Plurals and third persons (-s), -ing, -ed and -est. Not -er, which mostly derives
    nouns (player).
    """
    if (base := _IRREGULAR.get(word)) is not None:
        yield base
    if word.endswith("men") and len(word) > 4:  # firemen
        yield word[:-2] + "an"
    if word.endswith("ies") and len(word) > 4:
        yield word[:-3] + "y"
        yield word[:-1]
    elif word.endswith("ves") and len(word) > 4:
        yield from (word[:-1], word[:-3] + "f", word[:-3] + "fe")
    elif word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        yield from (word[:-2], word[:-1])
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        yield word[:-1]
    for ending in ("ing", "ed", "est"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1 and any(letter in _VOWELS + "y" for letter in stem):
            yield from _stems(stem, ending)


def strip_possessive(word: str) -> str:
    """Return a word without a possessive 's, as *dog* of *dog's*."""
    head = word.removesuffix("'s").removesuffix("’s")
    return word if head.lower() in _CONTRACTED else head


def _stems(stem: str, ending: str) -> Iterator[str]:
    """Yield what a word may be without -ing, -ed or -est."""
    if stem.endswith("i") and ending != "ing":
        yield stem[:-1] + "y"  # carried, happiest
    elif stem.endswith("y") and ending == "ing" and len(stem) == 2:
        yield stem[:-1] + "ie"  # lying
    elif stem[-1] == stem[-2] and stem[-1] not in "lsz":
        yield from (stem[:-1], stem)  # sitting
    elif stem[-1] == stem[-2]:
        yield from (stem, stem[:-1])  # rolling, travelling
    elif stem[-1] in "cgsuvz" or (stem[-1] not in _VOWELS + "wxy" and _is_short(stem)):
        yield from (stem + "e", stem)  # dancing, smiling; but also waiting, which is found second
    else:
        yield from (stem, stem + "e")


def _is_short(stem: str) -> bool:
    """Return whether a stem ends in one vowel and one consonant, as smil does and wait does not."""
    return len(stem) > 2 and stem[-2] in _VOWELS and stem[-3] not in _VOWELS
