"""Metrics of answers to questions: the VQA score and accuracy; BLEU is in `evaluation.bleu`.

Scores and accuracies are in percent, as in the literature. Answers are normalised before they
are compared. English follows the VQA challenge (https://visualqa.org/evaluation.html):
punctuation, articles, number words and contractions, each of which can be switched off. Every
other language uses Unicode NFKC, case folding and single spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from polyglance.errors import PolyglanceError
from polyglance.records import Question


@dataclass(frozen=True, slots=True)
class EnglishRules:
    """Which of the VQA challenge's rules for English answers apply."""

    punctuation: bool = True
    articles: bool = True
    numbers: bool = True
    contractions: bool = True
    unanimous: bool = True
    """Whether they apply where all people gave the same answer; not so in the challenge's script,
    which then compares the texts as they are."""


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """VQA scores of answers, in percent."""

    score: float
    questions: int
    by_type: Mapping[str, float]
    """By answer type ("yes/no", "number", "other"), where questions have one."""
    by_language: Mapping[str, float]


def evaluate_answers(
    questions: Sequence[Question], predictions: Sequence[str], rules: EnglishRules | None = None
) -> AnswerResult:
    """Return the mean VQA score of predictions, also by answer type and by language.

    Args:
        questions: Questions with people's answers.
        predictions: One for each question.
        rules: Normalisation of English answers; None for all rules.
    """
    _check_counts(predictions, questions, "questions")
    by_type, by_language = defaultdict(list), defaultdict(list)
    scores = []
    for question, prediction in zip(questions, predictions, strict=True):
        score = vqa_score(prediction, question.answers, question.language, rules)
        scores.append(score)
        by_language[question.language].append(score)
        if question.answer_type is not None:
            by_type[question.answer_type].append(score)
    return AnswerResult(
        score=_percent(scores),
        questions=len(scores),
        by_type={kind: _percent(scores) for kind, scores in sorted(by_type.items())},
        by_language={
            language: _percent(scores) for language, scores in sorted(by_language.items())
        },
    )


def vqa_score(
    prediction: str,
    answers: Sequence[str],
    language: str = "en",
    rules: EnglishRules | None = None,
) -> float:
    """Return VQA v2's score from 0 to 1: min(1, matches/3), averaged over leaving each answer out.

    It needs three other people who agree, so that with fewer than four answers (most languages
    have one) the score is 1 if any of them matches, else 0.

    Args:
        prediction: The model's answer.
        answers: People's answers.
        language: Of both.
        rules: Normalisation of English answers; None for all rules.
    """
    if not answers:
        raise PolyglanceError("a question without answers cannot be scored")
    if rules is not None and not rules.unanimous and len(set(map(_one_line, answers))) == 1:
        return _score(len(answers) * (_one_line(prediction) == _one_line(answers[0])), len(answers))
    normalised = normalise_answer(prediction, language, rules)
    matches = sum(normalise_answer(answer, language, rules) == normalised for answer in answers)
    return _score(matches, len(answers))


def answer_scores(question: Question, rules: EnglishRules | None = None) -> dict[str, float]:
    """Return every normalised answer with a positive `vqa_score`, as soft targets."""
    counts = Counter(normalise_answer(text, question.language, rules) for text in question.answers)
    scores = {text: _score(count, len(question.answers)) for text, count in counts.items()}
    return {text: score for text, score in scores.items() if score > 0}


def accuracy(
    predictions: Sequence[str],
    answers: Sequence[str],
    language: str = "en",
    rules: EnglishRules | None = None,
) -> float:
    """Return the percentage of predictions that equal their answer after normalisation.

    Args:
        predictions: The model's answers.
        answers: One right answer for each.
        language: Of both.
        rules: Normalisation of English answers; None for all rules.
    """
    _check_counts(predictions, answers, "answers")
    return _percent(
        [
            float(normalise_answer(p, language, rules) == normalise_answer(a, language, rules))
            for p, a in zip(predictions, answers, strict=True)
        ]
    )


def normalise_answer(text: str, language: str = "en", rules: EnglishRules | None = None) -> str:
    """Return the form in which answers are compared."""
    if language.split("-")[0] == "en":
        return _normalise_english(text, rules or EnglishRules())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_THOUSANDS = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"\.(?!\d)")
_ARTICLES = frozenset(("a", "an", "the"))
_NUMBERS = {
    "none": "0", "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5",
    "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
}  # fmt: skip


def _spellings(contractions: str) -> dict[str, str]:
    """Map each contraction, with any of its apostrophes left out, to its full spelling."""
    spellings = {}
    for word in contractions.split():
        apostrophes = [i for i, letter in enumerate(word) if letter == "'"]
        for dropped in range(1, len(apostrophes) + 1):
            for omitted in combinations(apostrophes, dropped):
                spellings["".join(c for i, c in enumerate(word) if i not in omitted)] = word
    return spellings


# Without those whose spelling without apostrophe is another word (we'll, she'd, it's).
_CONTRACTIONS = _spellings(
    """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't
    haven't he'd he'd've he's how'd how'll how's i'd've i'm i've isn't it'd it'd've it'll let's
    ma'am might've mightn't mightn't've must've mustn't needn't not've o'clock oughtn't shan't
    she'd've she's should've shouldn't shouldn't've somebody'd somebody'll somebody's someone'd
    someone'll someone's something'd something'll that'd that'd've that'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't
    what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's
    who've why'll why're why's won't would've wouldn't wouldn't've y'all y'all'd've y'all'll you'd
    you'd've you'll you're you've
    """
)


@lru_cache(maxsize=1 << 16)  # answers repeat
def _normalise_english(text: str, rules: EnglishRules) -> str:
    text = " ".join(text.split())
    if rules.punctuation:
        text = _without_punctuation(text)
    words = text.lower().split()
    if rules.numbers:
        words = [_NUMBERS.get(word, word) for word in words]
    if rules.articles:
        words = [word for word in words if word not in _ARTICLES]
    if rules.contractions:
        words = [_CONTRACTIONS.get(word, word) for word in words]
    return " ".join(words)


def _without_punctuation(text: str) -> str:
    """Apply the challenge's rule: delete a mark next to a space, replace others by a space.

    A mark that is next to a space once is deleted everywhere in the answer, and all marks are
    deleted where a comma groups digits, so that 1,000 is 1000.
    """
    grouped = _THOUSANDS.search(text) is not None
    plain = text
    for mark in _MARKS:
        delete = grouped or f"{mark} " in text or f" {mark}" in text
        plain = plain.replace(mark, "" if delete else " ")
    return _FULL_STOP.sub("", plain)


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def _score(matches: int, answers: int) -> float:
    """Return the score of an answer that ``matches`` of the people gave."""
    if answers < 4:
        return float(matches > 0)
    # Leaving out a match leaves one fewer match; leaving out another answer leaves all.
    without_match = matches * min(1.0, (matches - 1) / 3)
    without_other = (answers - matches) * min(1.0, matches / 3)
    return (without_match + without_other) / answers


def _percent(values: Sequence[float]) -> float:
    return 100.0 * sum(values) / len(values)


def _check_counts(predictions: Sequence[object], others: Sequence[object], what: str) -> None:
    if len(predictions) != len(others):
        raise PolyglanceError(f"{len(predictions)} predictions do not match {len(others)} {what}")
    if not predictions:
        raise PolyglanceError("there are no predictions to evaluate")
