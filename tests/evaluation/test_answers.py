"""Answers: the VQA score by hand and by loops, its normal form, and accuracy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import (
    EnglishRules,
    accuracy,
    evaluate_answers,
    normalise_answer,
    vqa_score,
)
from polyglance.records import Question


class TestVqaScore:
    @pytest.mark.parametrize(
        ("matches", "expected"),
        # With m of ten: m answers leave m-1 matches, 10-m leave m.
        [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1)],
    )
    def test_ten_answers(self, matches, expected):
        answers = ["red"] * matches + ["blue"] * (10 - matches)
        assert vqa_score("red", answers) == pytest.approx(expected)

    @given(st.lists(st.sampled_from(["a dog", "dog", "cat", "2"]), min_size=4, max_size=12))
    def test_is_the_mean_over_leaving_each_answer_out(self, answers):
        plain = [normalise_answer(answer) for answer in answers]
        subsets = [plain[:i] + plain[i + 1 :] for i in range(len(plain))]
        expected = sum(min(1, subset.count("dog") / 3) for subset in subsets) / len(subsets)
        assert vqa_score("The dog.", answers) == pytest.approx(expected)

    def test_a_single_answer_is_matched_or_not(self):
        assert vqa_score("màu đỏ", ["Màu  đỏ"], "vi") == 1.0
        assert vqa_score("xanh", ["màu đỏ"], "vi") == 0.0

    def test_with_fewer_than_four_answers_any_match_is_enough(self):
        assert vqa_score("red", ["red", "blue", "green"]) == 1.0
        assert vqa_score("red", ["red", "blue", "green", "grey"]) == pytest.approx(0.25)

    def test_a_question_without_answers_is_an_error(self):
        with pytest.raises(PolyglanceError, match="without answers"):
            vqa_score("red", [])


PUBLISHED = [
    # A prediction, people's answers and how many gave each, and the score of the challenge's own
    # script, which was run on these.
    ("Yes.", {"yes": 4, "no": 6}, 1.0),
    ("2", {"two": 2, "2": 2, "3": 6}, 1.0),
    ("two", {"2": 1, "3": 9}, 0.3),
    ("a t-shirt", {"t shirt": 3, "shirt": 7}, 0.9),
    ("black/white", {"black and white": 7, "black white": 3}, 0.9),
    ("1,000", {"1000": 2, "1,000": 3, "100": 5}, 1.0),
    ("5 p.m.", {"5 pm": 3, "5": 7}, 0.9),
    ("dont know", {"don't know": 9, "no": 1}, 1.0),
    ("oclock", {"o'clock": 2, "time": 8}, 0.6),
    ("yes, sir!", {"yes sir": 5, "no": 5}, 1.0),
    ("none", {"0": 6, "1": 4}, 1.0),
    ("grey", {"gray": 10}, 0.0),
    ("Yes.", {"yes": 10}, 0.0),  # all agree: it compares them as they are
    (" yes\n", {"yes": 10}, 1.0),
]


class TestPublishedScript:
    @pytest.mark.parametrize(("prediction", "answers", "score"), PUBLISHED)
    def test_scores_are_those_of_the_challenge(self, prediction, answers, score):
        given = [text for text, count in answers.items() for _ in range(count)]
        rules = EnglishRules(unanimous=False)
        assert vqa_score(prediction, given, rules=rules) == pytest.approx(score, abs=1e-6)
        if len(answers) > 1:
            assert vqa_score(prediction, given) == pytest.approx(score, abs=1e-6)

    def test_agreed_answers_are_normalised_by_default(self):
        assert vqa_score("Yes.", ["yes"] * 10) == 1.0


class TestEnglishNormalForm:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Yes.", "yes"),
            ("  A red\tball\n", "red ball"),
            ("the Statue of Liberty", "statue of liberty"),
            ("Two", "2"),
            ("none", "0"),
            ("ten an", "10"),
            ("eleven", "eleven"),
            ("black/white", "black white"),
            ("black / white", "black white"),
            ("t-shirt", "t shirt"),
            ("yes, sir", "yes sir"),
            ("1,000", "1000"),
            ("1,000-2,000", "10002000"),
            ("3.5", "3.5"),
            ("5 p.m.", "5 pm"),
            ("dont know", "don't know"),
            ("I don't", "i don't"),
            ("couldntve", "couldn't've"),
            ("couldn'tve", "couldn't've"),
            ("5 oclock", "5 o'clock"),
            ("well", "well"),
            ("its", "its"),
            ("were", "were"),
            ("anthem", "anthem"),
            ("?", ""),
        ],
    )
    def test_by_hand(self, text, expected):
        assert normalise_answer(text) == expected

    @pytest.mark.parametrize(
        ("rules", "expected"),
        [
            (EnglishRules(punctuation=False), "2 cats, isn't it?"),
            (EnglishRules(articles=False), "the 2 cats isn't it"),
            (EnglishRules(numbers=False), "two cats isn't it"),
            (EnglishRules(contractions=False), "2 cats isnt it"),
        ],
    )
    def test_each_rule_can_be_switched_off(self, rules, expected):
        assert normalise_answer("The two cats, isnt it?", rules=rules) == expected

    def test_holds_for_regional_codes(self):
        assert normalise_answer("The dog", "en-GB") == "dog"


class TestOtherLanguages:
    @pytest.mark.parametrize(
        ("text", "language", "expected"),
        [
            ("  Die  STRASSE ", "de", "die strasse"),
            ("Straße", "de", "strasse"),
            ("ＡＢＣ　１２", "ja", "abc 12"),
            ("ｶﾞﾗｽ", "ja", "ガラス"),
            ("les deux", "fr", "les deux"),
            ("a casa", "pt", "a casa"),
            ("e\u0301te\u0301", "fr", "été"),
        ],
    )
    def test_keep_their_words(self, text, language, expected):
        assert normalise_answer(text, language) == expected

    @given(st.text(), st.sampled_from(["de", "zh", "ar"]))
    def test_normal_forms_have_single_spaces_only(self, text, language):
        once = normalise_answer(text, language)
        assert once == " ".join(once.split())


class TestEvaluateAnswers:
    def test_scores_by_kind_and_language(self):
        questions = [
            Question("Is it red?", "en", ("yes",) * 10, "yes/no"),
            Question("How many?", "en", ("2",) * 3 + ("3",) * 7, "number"),
            Question("Màu gì?", "vi", ("đỏ",)),
        ]
        result = evaluate_answers(questions, ["Yes", "two", "xanh"])
        assert result.score == pytest.approx(100 * (1 + 0.9 + 0) / 3)
        assert result.by_type == pytest.approx({"yes/no": 100, "number": 90})
        assert result.by_language == pytest.approx({"en": 95, "vi": 0})
        assert result.questions == 3

    def test_accuracy(self):
        assert accuracy(["The dog", "cat", "one"], ["dog", "cow", "1"]) == pytest.approx(200 / 3)
        assert accuracy(["der Hund"], ["Hund"], "de") == 0.0

    def test_counts_must_agree(self):
        with pytest.raises(PolyglanceError, match="1 predictions do not match 2"):
            accuracy(["a"], ["a", "b"])
        with pytest.raises(PolyglanceError, match="no predictions"):
            accuracy([], [])
