"""Parts cut out of a model's graphs: the same numbers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from helpers.small_mmp import SmallModel, pixel_values, small_model
from polyglance.encoders.graph_reader import read_graph
from polyglance.encoders.half_precision import without_float16
from polyglance.encoders.model_folder import PICTURE, TEXT, VOCABULARY, ModelFolder
from polyglance.encoders.subgraph import cut_graph, input_of_weight, rest_of_graph
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.encoders.word_table import WordTable


@pytest.fixture(scope="module")
def small() -> SmallModel:
    return small_model()


@pytest.fixture(scope="module")
def folder(small: SmallModel, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return ModelFolder.open(small.export(tmp_path_factory.mktemp("model") / "model"))


def test_cells_are_the_feature_map_with_its_mean_first(
    small: SmallModel, folder: ModelFolder
) -> None:
    content = folder.read_file(PICTURE)
    cut = without_float16(cut_graph(content, input_of_weight(content, "visual_input.weight")))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    values = pixel_values(pixels, small.pictures)
    session = onnxruntime.InferenceSession(cut, providers=["CPUExecutionProvider"])
    [cells] = session.run(None, {"pixel_values": values})
    with torch.inference_mode():
        network = small.model.get_submodule("image_backbone")
        expected = network(torch.from_numpy(values)).flatten(2).transpose(1, 2)
    np.testing.assert_allclose(cells[:, 1:], expected.numpy(), atol=2e-2)
    np.testing.assert_allclose(cells[:, 0], cells[:, 1:].mean(1), atol=1e-5)


def test_what_comes_after_the_value_is_gone(folder: ModelFolder) -> None:
    content = folder.read_file(PICTURE)
    before = read_graph(content)
    output = input_of_weight(content, "visual_input.weight")
    after = read_graph(cut_graph(content, output))
    assert [value.name for value in after.outputs] == [output]
    assert after.inputs == before.inputs
    assert len(after.nodes) < len(before.nodes)
    assert not [name for name in after.weights if name.startswith(("visual_", "text_"))]
    assert folder.read_file(PICTURE) == content


def test_both_parts_of_a_graph_compute_what_it_does(folder: ModelFolder) -> None:
    content = without_float16(folder.read_file(PICTURE))
    value = input_of_weight(content, "visual_input.weight")
    lower, upper = cut_graph(content, value), rest_of_graph(content, value)
    pixels = np.random.default_rng(0).normal(size=(1, 3, 64, 64)).astype(np.float32)
    sessions = [
        onnxruntime.InferenceSession(part, providers=["CPUExecutionProvider"])
        for part in (content, lower, upper)
    ]
    [expected] = sessions[0].run(None, {"pixel_values": pixels})
    [cells] = sessions[1].run(None, {"pixel_values": pixels})
    [found] = sessions[2].run(None, {value: cells})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    whole, rest, first = (read_graph(part) for part in (content, upper, lower))
    assert [given.name for given in rest.inputs] == [value]
    assert [made.name for made in rest.outputs] == [made.name for made in whole.outputs]
    assert len(first.nodes) + len(rest.nodes) == len(whole.nodes)
    assert not [name for name in rest.weights if name.startswith("image_backbone")]


def test_a_value_that_is_not_there_is_named(folder: ModelFolder) -> None:
    content = folder.read_file(PICTURE)
    with pytest.raises(ValueError, match="no node has a weight called nothing"):
        input_of_weight(content, "nothing")
    with pytest.raises(ValueError, match="no node has an output called nothing"):
        cut_graph(content, "nothing")
    with pytest.raises(ValueError, match="no node takes a value called nothing"):
        rest_of_graph(content, "nothing")


def test_words_are_the_rows_of_the_table(small: SmallModel, folder: ModelFolder) -> None:
    table = WordTable.from_graph(folder.read_file(TEXT))
    order = Vocabulary.from_bytes(folder.read_file(VOCABULARY)).order
    with torch.inference_mode():
        expected = small.model.encoder.words(torch.arange(len(order))).numpy()
    np.testing.assert_allclose(table(order.tolist()), expected, atol=2e-3)


def test_a_table_that_was_not_compressed_is_read_too() -> None:
    weight = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert WordTable({"encoder.words.weight": weight})([2, 0]).tolist() == [[6, 7, 8], [0, 1, 2]]


def test_a_graph_without_words_is_refused(folder: ModelFolder) -> None:
    with pytest.raises(ValueError, match=r"the graph has no encoder\.words\.weight"):
        WordTable.from_graph(folder.read_file(PICTURE))


def test_spans_point_into_the_normalised_text(tmp_path: Path) -> None:
    from polyglance.encoders.unigram import UnigramTokenizer
    from polyglance.text.sentence_words import split_words

    vocabulary = ModelFolder.open().read_file(VOCABULARY)
    tokenizer = UnigramTokenizer(Vocabulary.from_bytes(vocabulary))
    for sentence, words in {
        "a dog  jumping over it!": ["a", "dog", "jumping", "over", "it"],
        "ein Hundehäuschen": ["ein", "Hundehäuschen"],
        "ﬁsh 𓂀𓂀 x": ["fish", "𓂀𓂀", "x"],
        "con chó chạy": ["con", "chó", "chạy"],
    }.items():
        text, encoding = tokenizer.encode_with_spans(sentence, 64)
        assert encoding.ids == tokenizer.encode(sentence, 64)
        assert [word for word, _ in split_words(text, encoding)] == words
    text, encoding = tokenizer.encode_with_spans("a dog jumping over it", 5)
    assert encoding.ids == tokenizer.encode("a dog jumping over it", 5)
    assert encoding.spans is not None
    assert len(encoding.spans) == len(encoding.tokens) == 5
