"""Words of a sentence and the sub-words that they consist of."""

from __future__ import annotations

from helpers.text_encoder import unigram_tokenizer
from polyglance.data.toy import ToyDataset
from polyglance.text import Encoding
from polyglance.text.sentence_words import last_word_read, split_words

SENTENCE = "  Welche Farbe hat der Kreis, bitte ?"


def test_sub_words_are_joined_to_words() -> None:
    pictures = ToyDataset(seed=0, languages=("en", "de"), captions_per_language=1).pictures(30)
    texts = [question.text for picture in pictures for question in picture.questions]
    tokenizer = unigram_tokenizer(texts, pieces=250)
    encoding = tokenizer.encode_with_spans(SENTENCE)
    words = split_words(SENTENCE, encoding)
    assert [word for word, _ in words] == ["Welche", "Farbe", "hat", "der", "Kreis", "bitte"]
    positions = [position for _, some in words for position in some]
    assert positions == sorted(set(positions))
    assert 0 not in positions
    assert len(encoding.ids) - 1 not in positions
    assert len(split_words(SENTENCE, encoding, spaces=False)) == len(positions)
    assert last_word_read(SENTENCE, tokenizer, len(encoding.ids)) is None
    assert last_word_read(SENTENCE, tokenizer, 2 + words[0][1][-1]) == "Welche"


def test_letters_of_scripts_without_spaces_are_split_at_sub_words() -> None:
    sentence = "两只狗 run"
    spans = [(0, 0), (0, 1), (0, 2), (2, 3), (3, 5), (5, 7), (0, 0)]  # the first is a space
    words = split_words(sentence, Encoding(list(range(7)), [], spans))
    assert words == [("两只", [1, 2]), ("狗", [3]), ("run", [4, 5])]


def test_space_as_a_sub_word_of_its_own_repeats_no_letter() -> None:
    spans = [(0, 0), (0, 1), (2, 3), (2, 3), (3, 7), (0, 0)]
    words = split_words("a horse", Encoding(list(range(6)), [], spans))
    assert words == [("a", [1]), ("horse", [2, 3, 4])]
