"""Answers as classes, soft targets, and the best answer for each type of question."""

from __future__ import annotations

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.evaluation.answer_classes import AnswerClasses
from polyglance.evaluation.answers import (
    answer_scores,
    normalise_answer,
    sentence_bleu,
    vqa_score,
)
from polyglance.evaluation.question_types import BestAnswers
from polyglance.records import Question

DOGS = ("Two", "2", "2 dogs", "two", "three", "the 3", "3", "3", "a lot", "2")
QUESTIONS = [
    Question("How many dogs are there?", "en", DOGS),
    Question("How many cats?", "en", ("1",) * 9 + ("one cat",)),
    Question("Is it raining?", "en", ("no",) * 6 + ("yes",) * 4),
    Question("mấy con chó", "vi", ("hai",)),
    Question("màu gì", "vi", ("Màu  Đỏ",)),
    Question("màu của xe là gì", "vi", ("màu đỏ",)),
]


def test_soft_targets_are_the_scores_of_a_loop_over_all_answers() -> None:
    classes = AnswerClasses.most_frequent(QUESTIONS, least=0.1)
    targets = classes.targets(QUESTIONS).gather(np.arange(len(QUESTIONS)))
    assert targets.shape == (6, len(classes))
    for row, question in enumerate(QUESTIONS):
        for place, (language, answer) in enumerate(classes.names):
            expected = 0.0
            if language == question.language:
                expected = vqa_score(answer, question.answers, language)
            assert float(targets[row, place]) == pytest.approx(expected, abs=1e-6)


def test_scores_of_all_answers_at_once_are_those_one_by_one() -> None:
    found = answer_scores(QUESTIONS[0])
    assert set(found) == {"2", "3", "2 dogs", "lot"}
    for answer in DOGS:
        given = normalise_answer(answer)
        assert found[given] == pytest.approx(vqa_score(answer, DOGS))


def test_classes_are_the_answers_that_score_most_in_each_language() -> None:
    classes = AnswerClasses.most_frequent(QUESTIONS, most=2, least=0.5)
    # "2" and "3" score 1 each with four matches or more; "1" and "no" score 1, "yes" 1 with four.
    assert classes.by_language["vi"] == ("màu đỏ", "hai")
    assert len(classes.by_language["en"]) == 2
    assert list(classes.of_language("vi")) == [2, 3]
    assert AnswerClasses.most_frequent(QUESTIONS, least=2).by_language == {"vi": ("màu đỏ",)}
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in en, vi"):
        classes.of_language("fr")
    with pytest.raises(PolyglanceError, match=r"lower answers\.least"):
        AnswerClasses.most_frequent(QUESTIONS, least=100)


def best(words: int, least: int = 1) -> BestAnswers:
    asked = [
        Question("How many dogs?", "en", ("2",)),
        Question("How many cats?", "en", ("2",)),
        Question("how many birds?", "en", ("3",)),
        Question("How old is it?", "en", ("3",)),
        Question("How old are they?", "en", ("3",)),
        Question("Is it red?", "en", ("yes",)),
        Question("几只狗", "zh", ("两只",)),
    ]
    return BestAnswers.learn(asked, words=words, least=least)


@pytest.mark.parametrize(
    ("words", "least", "question", "expected"),
    [
        (2, 1, "How many horses?", "2"),
        (1, 1, "How many horses?", "3"),  # by "how" alone: 2, 2, 3, 3, 3
        (3, 1, "How many birds are there?", "3"),
        (3, 2, "How many birds are there?", "2"),  # one such question is too few
        (2, 1, "Is there a dog?", "yes"),  # nobody asked "is there", but "is"
        (2, 1, "Why?", "3"),  # the best answer in the language
        (0, 1, "Is it red?", "3"),
    ],
)
def test_the_best_answer_of_a_type(words: int, least: int, question: str, expected: str) -> None:
    assert best(words, least).answer(Question(question, "en")) == expected


def test_types_of_languages_without_spaces_go_by_characters() -> None:
    assert best(2).answer(Question("几只猫", "zh")) == "两只"
    with pytest.raises(PolyglanceError, match="no question in 'de'"):
        best(2).answer(Question("Wie viele?", "de"))


def test_sentence_bleu_rewards_short_answers_and_parts_of_them() -> None:
    assert sentence_bleu(["hai"], [["hai"]], "vi") == pytest.approx(100)
    assert sentence_bleu(["hai", "ba"], [["hai"], ["hai"]], "vi") == pytest.approx(50)
    assert 0 < sentence_bleu(["màu xanh lá"], [["màu xanh dương"]], "vi") < 100
