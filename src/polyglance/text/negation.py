"""Find what a query excludes: "a beach without people", "Strand ohne Menschen", "没有人的海滩".

A small grammar for each language: cues, which begin an exclusion; articles, which are skipped;
and words that end it, mostly prepositions: of "a street without cars in winter" only the cars are
excluded. Parts joined by "and" or "or" are excluded together. Words such as "nobody" are cue and
excluded part at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from polyglance.languages import normalise_language


@dataclass(frozen=True, slots=True)
class Negated:
    """A query taken apart."""

    wanted: str
    """What is left; empty if the query only excludes."""
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Grammar:
    cues: str
    """Words that begin an exclusion, as a pattern."""
    people: str
    """How people are called where a cue stands for nobody."""
    nobody: str
    """Cues that exclude people, as a pattern."""
    articles: str
    joints: str
    """Words between excluded parts, as a pattern."""
    ends: str
    """Words that end an exclusion, as a pattern."""
    starts: str = ""
    """Cues that count only at the beginning of a query or after a comma or "but"."""


GRAMMARS = {
    "en": _Grammar(
        cues=r"without(?: any)?|with no|no|not any|except(?: for)?|excluding|other than|and no"
        r"|but not?|minus|not (?=an? |the |any )",
        starts=r"not",
        nobody=r"without anyone|without anybody|nobody|no one|no-one|with nobody in it",
        people="people",
        articles=r"an?|the|any|some|visible",
        joints=r"and|or|nor",
        ends=r"in|on|at|near|by|with|during|under|over|behind|beside|next|from|to|while|but|that"
        r"|who|which|is|are|in front|along|against|through|around|outside|inside",
    ),
    "de": _Grammar(
        cues=r"ohne(?: irgend\w+)?|kein(?:e[nmrs]?)?|au(?:ß|ss)er|nicht (?=ein\w* |der |die |das )"
        r"|und kein\w*|aber (?:kein\w*|nicht)",
        starts=r"nicht",
        nobody=r"ohne jemand\w*|niemand\w*|menschenleer\w*",
        people="Menschen",
        articles=r"ein(?:e[nmrs]?)?|de[rmns]|die|das|jegliche\w*",
        joints=r"und|oder|noch",
        ends=r"in|im|auf|am|an|bei|beim|mit|vor|hinter|neben|unter|über|während|aus|von|vom|aber"
        r"|zu|zum|zur|durch|entlang",
    ),
    "fr": _Grammar(
        cues=r"sans|pas d['’]|pas de|pas (?=une? |le |la |les )|aucune?|sauf|hormis|excepté|ni"
        r"|mais pas|et pas",
        starts=r"pas",
        nobody=r"sans personne|personne(?= (?:sur|dans|à|au)\b)|sans qui que ce soit",
        people="personnes",
        articles=r"une?|des|les?|la|l['’]|du|de|d['’]|aucune?",
        joints=r"et|ou|ni",
        ends=r"dans|sur|à|au|aux|près|avec|devant|derrière|pendant|sous|chez|en|par|qui|mais|contre"
        r"|le long",
    ),
    "pt": _Grammar(
        cues=r"sem|nenhuma?|exceto|menos|não (?:é|há|tem)|não (?=uma? |o |a |os |as )|mas não"
        r"|e não",
        starts=r"não",
        nobody=r"sem ninguém|ninguém",
        people="pessoas",
        articles=r"uma?s?|os?|as?|nenhuma?|qualquer",
        joints=r"e|ou|nem",
        ends=r"em|no|na|nos|nas|num|numa|com|perto|sobre|sob|durante|atrás|frente|ao|à|por|para"
        r"|que|mas|ao lado|dentro",
    ),
    "cs": _Grammar(
        cues=r"bez|bez jak\w+|žádn\w+|kromě|není|nejsou|vyjma|ale ne|a ne",
        starts=r"ne|nikoli",
        nobody=r"bez nikoho|nikdo|bez lidí",
        people="lidé",
        articles=r"jedn\w+|žádn\w+",
        joints=r"a|nebo|ani|či",
        ends=r"v|ve|na|u|s|se|pod|nad|za|před|při|vedle|během|který|ale|podél|mezi|po",
    ),
    "ar": _Grammar(
        cues=r"بدون|بلا|من دون|دون|ليس(?:ت)?(?: فيها?)?|ما عدا|عدا|باستثناء|خال(?:ية|ي)? من|لا يوجد"
        r"(?: فيها?)?|وليس|لا",
        nobody=r"بدون أحد|لا أحد|بلا أحد|بدون ناس|بدون الناس",
        people="أشخاص",
        articles=r"أي|اي",
        joints=r"و|أو|ولا",
        ends=r"في|على|عند|مع|قرب|بجانب|أمام|خلف|تحت|فوق|أثناء|من|إلى|لكن",
    ),
    "zh": _Grammar(
        cues=r"没有|沒有|无|無|不是|不要|不带|不帶|不含|除了|别有",
        nobody=r"没人|沒人|无人|無人",
        people="人",
        articles=r"任何|一[只个隻個条條辆輛张張]",
        joints=r"和|或者?|以及|与|與|、",
        ends=r"的|在|但|而|以外|之外",
    ),
}
"""Grammars of the languages of the interface."""
PEOPLE = frozenset(
    {"people", "persons", "person", "humans", "anyone", "anybody", "human", "menschen", "leute",
     "personen", "personnes", "gens", "personne", "humains", "pessoas", "gente", "pessoa",
     "humanos", "lidé", "lidí", "lidi", "osoby", "osob", "osoba", "أشخاص", "ناس", "الناس", "شخص",
     "اشخاص", "بشر", "人", "人们", "人們", "人物", "行人"}
)  # fmt: skip
"""Words for people in the languages of the interface, in lower case."""
_SEPARATORS = r"[,;.:!?،؛，。；、]"
_EDGES = " \t\n,;:.-–،，。、"


def split_negation(text: str, language: str | None) -> Negated:
    """Take what a query excludes out of it.

    Args:
        text: A query.
        language: Its language; one without a grammar excludes nothing.

    Returns:
        What is wanted and what is not.
    """
    code = None if language is None else normalise_language(language)
    grammar = GRAMMARS.get(code or "")
    if grammar is None:
        return Negated(text)
    if code == "zh":
        return _split_chinese(text, grammar)
    excluded, rest, at = list[str](), "", 0
    cue = _cue_pattern(grammar)
    while (match := cue.search(text, at)) is not None:
        rest += f"{text[at : match.start()]} "
        if match["nobody"]:
            excluded.append(grammar.people)
            at = match.end()
            continue
        scope = _scope(text, match.end(), grammar)
        parts = [
            _strip_articles(part, grammar)
            for part in re.split(rf"\s+(?:{grammar.joints})\s+", text[match.end() : scope])
        ]
        named = [part for part in parts if part]
        if not named:  # a cue that excludes nothing is a word like any other
            rest += f"{match[0]} "
        excluded += named
        at = scope
    return Negated(_tidy(rest + text[at:], grammar), tuple(excluded)) if excluded else Negated(text)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _cue_pattern(grammar: _Grammar) -> re.Pattern[str]:
    starts = rf"|(?:(?<=^)|(?<={_SEPARATORS} ))(?:{grammar.starts})(?=\s)" if grammar.starts else ""
    # A cue that ends with an apostrophe or a look-ahead has its own boundary.
    cues = rf"(?:{grammar.cues})(?:(?<=['’ ])|(?=\s)){starts}"
    return _compile(rf"(?<!\w)(?:(?P<nobody>{grammar.nobody})(?!\w)|{cues})")


def _scope(text: str, start: int, grammar: _Grammar) -> int:
    """Return where an exclusion that begins at ``start`` ends."""
    ends = _compile(
        rf"\s*(?:{_SEPARATORS}|(?<!\w)(?:{grammar.ends})(?!\w)|{_cue_pattern(grammar).pattern})"
    )
    first = _compile(rf"\s*(?:(?:{grammar.articles})\s+)*").match(text, start)
    found = ends.search(text, first.end() + 1 if first else start + 1)
    return len(text) if found is None else found.start()


def _strip_articles(part: str, grammar: _Grammar) -> str:
    part = part.strip(_EDGES)
    part = re.sub(rf"^(?:(?:{grammar.articles})(?:\s+|(?<=['’])))+", "", part, flags=re.I)
    return part.strip(_EDGES)


def _tidy(text: str, grammar: _Grammar) -> str:
    """Remove spaces, and conjunctions that were left alone at the edges."""
    text = re.sub(r"\s+", " ", re.sub(rf"\s+(?={_SEPARATORS})", "", text)).strip(_EDGES)
    text = re.sub(rf"^(?:{grammar.joints})\s+|\s+(?:{grammar.joints})$", "", text, flags=re.I)
    return re.sub(rf"({_SEPARATORS})(?:\s*{_SEPARATORS})+", r"\1", text).strip(_EDGES)


def _split_chinese(text: str, grammar: _Grammar) -> Negated:
    """Take apart a text without spaces: an excluded part ends at 的, a comma or the end."""
    excluded = list[str]()

    def take(match: re.Match[str]) -> str:
        if match["nobody"]:
            excluded.append(grammar.people)
            return match["end"] or ""
        parts = re.split(grammar.joints, match["part"])
        named = [_strip_chinese(part, grammar) for part in parts]
        if not any(named):
            return match[0]
        excluded.extend(part for part in named if part)
        return ""

    pattern = (
        rf"(?:(?P<nobody>{grammar.nobody})(?P<end>的)?|(?:{grammar.cues})"
        rf"(?P<part>[^,;.，。；在但]+?)(?:的(?=.)|以外|之外|(?=[,;.，。；在但]|$)))"
    )
    rest = re.sub(pattern, take, text)
    rest = re.sub(r"(?:上|里|裡|中|有)$", "", rest.strip(_EDGES + "的")) if excluded else rest
    return Negated(rest.strip(_EDGES + "的"), tuple(excluded)) if excluded else Negated(text)


def _strip_chinese(part: str, grammar: _Grammar) -> str:
    return re.sub(rf"^(?:{grammar.articles})+", "", part.strip(_EDGES)).strip(_EDGES + "的")
