"""Answer classes, soft targets, and the best answer for each type of question."""

from __future__ import annotations

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import (
    answer_scores,
    normalise_answer,
    vqa_score,
)
from polyglance.evaluation.bleu import sentence_bleu
from polyglance.evaluation.question_types import QuestionTypePrior, QuestionTypes
from polyglance.recipes.vqa.questions import answer_targets, build_answer_vocabulary
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


def test_soft_targets_equal_a_loop_over_all_answers() -> None:
    vocabulary = build_answer_vocabulary(QUESTIONS, min_score=0.1)
    targets = answer_targets(vocabulary, QUESTIONS).gather(np.arange(len(QUESTIONS)))
    assert targets.shape == (6, len(vocabulary))
    for row, question in enumerate(QUESTIONS):
        for number, (language, answer) in enumerate(vocabulary.names):
            expected = 0.0
            if language == question.language:
                expected = vqa_score(answer, question.answers, language)
            assert float(targets[row, number]) == pytest.approx(expected, abs=1e-6)


def test_scores_of_all_answers_at_once_equal_single_scores() -> None:
    scores = answer_scores(QUESTIONS[0])
    assert set(scores) == {"2", "3", "2 dogs", "lot"}
    for answer in DOGS:
        assert scores[normalise_answer(answer)] == pytest.approx(vqa_score(answer, DOGS))


def test_classes_are_the_highest_scoring_answers_of_each_language() -> None:
    vocabulary = build_answer_vocabulary(QUESTIONS, max_answers=2, min_score=0.5)
    # "2" and "3" score 1 each with four matches or more; "1" and "no" score 1, "yes" 1 with four.
    assert vocabulary.by_language["vi"] == ("màu đỏ", "hai")
    assert len(vocabulary.by_language["en"]) == 2
    assert list(vocabulary.in_language("vi")) == [2, 3]
    assert build_answer_vocabulary(QUESTIONS, min_score=2).by_language == {"vi": ("màu đỏ",)}
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in en, vi"):
        vocabulary.in_language("fr")
    with pytest.raises(PolyglanceError, match=r"lower answers\.min_score"):
        build_answer_vocabulary(QUESTIONS, min_score=100)


def prior(words: int, min_questions: int = 1) -> QuestionTypePrior:
    questions = [
        Question("How many dogs?", "en", ("2",)),
        Question("How many cats?", "en", ("2",)),
        Question("how many birds?", "en", ("3",)),
        Question("How old is it?", "en", ("3",)),
        Question("How old are they?", "en", ("3",)),
        Question("Is it red?", "en", ("yes",)),
        Question("几只狗", "zh", ("两只",)),
    ]
    learned = QuestionTypePrior.learn(questions, words=words, min_questions=min_questions)
    types = QuestionTypes.learn(questions, max_words=5)
    assert learned == QuestionTypePrior.of_types(types, words=words, min_questions=min_questions)
    return learned


@pytest.mark.parametrize(
    ("words", "min_questions", "question", "expected"),
    [
        (2, 1, "How many horses?", "2"),
        (1, 1, "How many horses?", "3"),  # by "how" alone: 2, 2, 3, 3, 3
        (3, 1, "How many birds are there?", "3"),
        (3, 2, "How many birds are there?", "2"),  # a single such question is too few
        (2, 1, "Is there a dog?", "yes"),  # no question begins with "is there", but with "is"
        (2, 1, "Why?", "3"),  # the best answer in the language
        (0, 1, "Is it red?", "3"),
    ],
)
def test_best_answer_of_a_question_type(
    words: int, min_questions: int, question: str, expected: str
) -> None:
    assert prior(words, min_questions).answer(Question(question, "en")) == expected


def test_question_types_without_spaces_are_characters() -> None:
    assert prior(2).answer(Question("几只猫", "zh")) == "两只"
    with pytest.raises(PolyglanceError, match="no training question is in 'de'"):
        prior(2).answer(Question("Wie viele?", "de"))


def test_sentence_bleu_scores_short_and_partial_answers() -> None:
    assert sentence_bleu(["hai"], [["hai"]], "vi") == pytest.approx(100)
    assert sentence_bleu(["hai", "ba"], [["hai"], ["hai"]], "vi") == pytest.approx(50)
    assert 0 < sentence_bleu(["màu xanh lá"], [["màu xanh dương"]], "vi") < 100
