"""A model's reader: the same numbers as in torch, and what it makes of them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import polyglance
from helpers.rounding import ROUNDING
from helpers.small_mmp import tokenizer
from helpers.small_reader import ANSWERS, GRID, SmallReader, small_reader
from polyglance.encoders.model_folder import PICTURE, READER, READER_CONFIG, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.reader import Reader
from polyglance.encoders.reader_network import ReaderNetwork
from polyglance.encoders.reader_pictures import CROPS
from polyglance.encoders.sessions import normalise_pixels, picture_pixels
from polyglance.errors import DataError, PolyglanceError
from polyglance.nn.packed_pairs import PackedRows, Regions, Text, encode_first
from polyglance.nn.packing import Packing
from polyglance.vision.tokens import grid_boxes

QUESTION = "Is this a dog?"


@pytest.fixture(scope="module", params=[(0, 0), (1, 2)], ids=["words", "states"])
def small(request: pytest.FixtureRequest) -> SmallReader:
    """Readers of a text's words, and of the states of one layer and two of an image."""
    return small_reader(*request.param)


@pytest.fixture
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute pictures in float32 on every processor, as torch does."""
    monkeypatch.setattr("polyglance.encoders.image_sessions.computes_float16", lambda: False)


@pytest.fixture(scope="module")
def folder(small: SmallReader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.export(tmp_path_factory.mktemp("models") / "reader")


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    generator = np.random.default_rng(0)
    return [
        Image.fromarray(generator.integers(0, 256, (50, 70, 3), np.uint8)).resize((140, 90))
        for _ in range(3)
    ]


def torch_regions(small: SmallReader, pictures: list[Image.Image]) -> Regions:
    """Return the cells of pictures as in training."""
    settings = small.dual.pictures
    pixels = np.stack([picture_pixels(picture, settings) for picture in pictures])
    x = torch.from_numpy(normalise_pixels(pixels, settings))
    cells = small.dual.model.get_submodule("image_backbone")(x).flatten(2).transpose(1, 2)
    rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
    boxes = np.concatenate([[[0, 0, 1, 1]], grid_boxes(GRID)]).astype(np.float32)
    packing = Packing.of([rows.shape[1]] * len(rows))
    return Regions(rows.flatten(0, 1), torch.from_numpy(np.tile(boxes, (len(rows), 1))), packing)


@torch.inference_mode()
def in_torch(
    small: SmallReader, text: str, pictures: list[Image.Image], *, half: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return match and logits of a text with each picture.

    ``half`` rounds the rows of pictures as encoded pictures do, for the match.
    """
    ids = torch.tensor(tokenizer().encode(text, max_length=20))
    count = len(pictures)
    texts = Text(ids.repeat(count), Packing.of([len(ids)] * count))
    regions = torch_regions(small, pictures)
    model = small.model.cross_encoder
    images = model.embed_regions(regions)
    if half:
        images = PackedRows(images.rows.half().float(), images.packing)
    return model.score(texts, images), small.model(texts, regions)


@pytest.mark.usefixtures("float32")
def test_it_computes_what_torch_does(
    small: SmallReader, folder: Path, pictures: list[Image.Image]
) -> None:
    reader = Reader.open(folder)
    match, _ = in_torch(small, QUESTION, pictures, half=True)
    assert match.std() > 0.1
    scores = reader.score(QUESTION, reader.encode_images(pictures))
    np.testing.assert_allclose(scores, match.numpy(), atol=2 * ROUNDING)
    answers = reader.ask(pictures[1], QUESTION, language="en", k=72)
    width, height = pictures[1].size
    crops = [
        pictures[1].crop(
            (round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height))
        )
        for x0, y0, x1, y1 in CROPS
    ]
    by_crop = in_torch(small, QUESTION, crops)[1].sigmoid()
    whole = in_torch(small, QUESTION, pictures[1:2])[1].sigmoid()
    torch.testing.assert_close(by_crop[:1], whole)  # the first crop is the whole
    assert by_crop.std(0).max() > 4 * ROUNDING
    probabilities = torch.tensor([*CROPS.values()]) @ by_crop
    assert sum(CROPS.values()) == 1
    by_text = {answer.text: answer.probability for answer in answers}
    english = probabilities[: len(ANSWERS["en"])]
    for text, expected in zip(ANSWERS["en"], (english / english.sum()).tolist(), strict=True):
        assert by_text[text] == pytest.approx(expected, abs=2 * ROUNDING)
    assert sum(by_text.values()) == pytest.approx(1)
    assert [a.probability for a in answers] == sorted(by_text.values(), reverse=True)


@pytest.mark.usefixtures("float32")
def test_many_pictures_are_read_in_parts(
    small: SmallReader, folder: Path, pictures: list[Image.Image]
) -> None:
    shades = [Image.fromarray(np.asarray(pictures[0]) // 40 * n) for n in range(40)]
    reader = Reader.open(folder)
    encoded = reader.encode_images(shades)
    expected, _ = in_torch(small, QUESTION, shades, half=True)
    assert len(np.unique(expected.numpy().round(2))) > 10
    # Neighbours differ by more: none is at another's place.
    np.testing.assert_allclose(reader.score(QUESTION, encoded), expected.numpy(), atol=5 * ROUNDING)
    assert expected.diff().abs().mean() > 10 * ROUNDING
    assert reader.encode_images([]) == []
    assert len(reader.score(QUESTION, [])) == 0


def test_a_graph_that_is_no_readers_is_refused(small: SmallReader, tmp_path: Path) -> None:
    folder = small.export(tmp_path / "model")
    (folder / READER).write_bytes((folder / READER).read_bytes()[:100])
    with pytest.raises(DataError, match=r"reader\.onnx"):
        Reader.open(folder).ask(np.zeros((9, 9, 3), np.uint8), QUESTION)
    content = (folder / PICTURE).read_bytes()
    with pytest.raises(DataError, match=r"is no reader's graph \(no node has a weight called"):
        ReaderNetwork(content, folder / READER, 1)


def test_answers_are_in_the_language_of_the_question(
    folder: Path, pictures: list[Image.Image]
) -> None:
    reader = Reader.open(folder)
    assert {answer.language for answer in reader.ask(pictures[0], QUESTION)} == {"en"}
    assert {answer.language for answer in reader.ask(pictures[0], "đây là chó")} == {"vi"}
    assert {a.text for a in reader.ask(pictures[0], QUESTION, language="vi")} == {"có", "không"}
    with pytest.raises(PolyglanceError, match="no answers in 'de', only in en, vi"):
        reader.ask(pictures[0], QUESTION, language="de")
    with pytest.raises(PolyglanceError, match="the question is empty"):
        reader.ask(pictures[0], " ")


def open_pair(folder: Path, picture: Image.Image) -> tuple[Reader, list[int], np.ndarray]:
    """Return a reader, the sub-words of the question, and the cells of a picture."""
    reader = Reader.open(folder)
    ids = reader._tokenizer.encode(QUESTION, 20)
    return reader, list(ids), reader._pictures.cells(picture)


@pytest.mark.usefixtures("float32")
def test_hidden_cells_and_words_are_as_if_they_were_not_there(
    small: SmallReader, folder: Path, pictures: list[Image.Image]
) -> None:
    reader, ids, cells = open_pair(folder, pictures[0])
    window = np.zeros((1, GRID, GRID), bool)
    window[0, 1] = True
    match, _ = reader._occlude(ids, [[]], cells, window)
    regions = torch_regions(small, pictures[:1])
    kept = torch.tensor([0, 1, 2])
    fewer = Regions(regions.features[kept], regions.boxes[kept], Packing.of([3]))
    own = torch.tensor(tokenizer().encode(QUESTION, max_length=20))
    model = small.model.cross_encoder
    with torch.inference_mode():
        text = Text(own, Packing.of([len(own)]))
        expected = model.score(text, model.embed_regions(fewer)).item()
    assert match[0, 1] == pytest.approx(expected, abs=ROUNDING)
    assert abs(match[0, 0] - match[0, 1]) > 2 * ROUNDING


@pytest.mark.usefixtures("float32")
def test_words_that_are_hidden_leave_no_trace_in_the_others(
    small: SmallReader, folder: Path, pictures: list[Image.Image]
) -> None:
    reader, ids, cells = open_pair(folder, pictures[0])
    match, _ = reader._occlude(ids, [[], [2, 3]], cells, np.zeros((1, GRID, GRID), bool))
    kept = torch.tensor([place for place in range(len(ids)) if place not in (2, 3)])
    own = torch.tensor(tokenizer().encode(QUESTION, max_length=20))[kept]
    packing = Packing.of([len(kept)])
    model, below = small.model.cross_encoder, small.dual.model.encoder
    with torch.inference_mode():
        rows = below.embed(own, packing, positions=kept)
        rows = below.contextualise(rows, packing, layer=small.settings.reader.text_layers)
        images = model.embed_regions(torch_regions(small, pictures[:1]))
        pairs = model.join(PackedRows(rows, packing), images)
        expected = model.rank_scores(encode_first(model.encoder, pairs)).item()
    assert match[1, 0] == pytest.approx(expected, abs=2 * ROUNDING)
    assert abs(match[0, 0] - match[1, 0]) > 4 * ROUNDING


def test_rounding_inputs_changes_scores_a_little(
    small: SmallReader, folder: Path, tmp_path: Path, pictures: list[Image.Image]
) -> None:
    shades = [
        Image.fromarray(np.asarray(pictures[0]) // 8 * n) for n in range(9)
    ] + pictures  # fmt: skip
    scores = []
    for path in (folder, small.export(tmp_path / "rounded", exact=False)):
        reader = Reader.open(path)
        scores.append(reader.score(QUESTION, reader.encode_images(shades)))
    assert 0 < np.abs(scores[0] - scores[1]).max() < 0.2
    assert np.corrcoef(*scores)[0, 1] > 0.97  # 0.985 with AVX-512, above 0.99 on ARM


def test_words_are_explained_by_the_cells_that_they_need(
    folder: Path, pictures: list[Image.Image]
) -> None:
    reader = Reader.open(folder)
    found = reader.explain(pictures[0], "a dog on grass", max_words=3)
    assert found.words == ["a", "dog", "on"]
    assert found.method == "occlusion"
    assert found.heatmaps.shape == (3, GRID, GRID)
    assert (found.heatmaps >= 0).all()
    assert found.heatmaps.any()
    ids = reader._tokenizer.encode("a dog on grass", 20)
    # The credit of the first cell for the first word, by the definition.
    cells = reader._pictures.cells(pictures[0])
    window = np.zeros((1, GRID, GRID), bool)
    window[0, 0, 0] = True
    match, _ = reader._occlude(ids, [[], [1]], cells, window)
    credit = (match[0, 0] - match[1, 0]) - (match[0, 1] - match[1, 1])
    assert found.heatmaps[0, 0, 0] == pytest.approx(max(credit, 0), abs=1e-4)
    answer = reader.explain(pictures[0], QUESTION)
    assert answer.words == [f"→ {reader.ask(pictures[0], QUESTION, k=1)[0].text}"]
    assert answer.heatmaps.shape == (1, GRID, GRID)
    with pytest.raises(PolyglanceError, match="there is no word in '!' to explain"):
        reader.explain(pictures[0], "!")


def test_a_long_sentence_is_read_to_a_word(folder: Path, pictures: list[Image.Image]) -> None:
    reader = Reader.open(folder)
    sentence = "a dog " * 30
    assert reader.explain(pictures[0], sentence, max_words=1).truncated_after in ("a", "dog")
    assert reader.explain(pictures[0], "a dog", max_words=1).truncated_after is None


def test_vectors_and_libraries_stay_valid_with_a_reader(folder: Path) -> None:
    without = ModelFolder.open(folder.with_name(f"{folder.name}-dual")).description
    with_reader = ModelFolder.open(folder).description
    assert with_reader.fingerprint == without.fingerprint
    assert {READER, READER_CONFIG} == set(with_reader.files) - set(without.files)
    assert len(OnnxEncoder(ModelFolder.open(folder))._image_session.get_outputs()) == 1


def test_a_model_without_a_reader_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="small has no reader, so it neither re-ranks"):
        Reader.open(folder.with_name(f"{folder.name}-dual"))


def test_a_reader_of_another_model_or_version_is_refused(
    small: SmallReader, tmp_path: Path
) -> None:
    folder = small.export(tmp_path / "model")
    change(folder, READER_CONFIG, model="another")
    with pytest.raises(DataError, match="trained on the words and cells of another model"):
        Reader.open(folder)
    change(folder, READER_CONFIG, format=99)
    with pytest.raises(DataError, match="was made by a newer Polyglance"):
        Reader.open(folder)
    change(folder, READER_CONFIG, format=1, model=ModelFolder.open(folder).description.fingerprint)
    change(folder, READER_CONFIG, text_layers=9)
    with pytest.raises(DataError, match=r"text\.onnx has nothing that the reader takes"):
        Reader.open(folder).score("a dog", [])
    (folder / READER_CONFIG).write_text("{}")
    with pytest.raises(DataError, match=r"reader\.json is damaged"):
        Reader.open(folder)


def change(folder: Path, name: str, **values: object) -> None:
    """Change a JSON file of a model, and its checksum."""
    from polyglance.encoders.model_folder import checksum

    plain = json.loads((folder / name).read_bytes()) | values
    (folder / name).write_text(json.dumps(plain))
    description = json.loads((folder / "model.json").read_bytes())
    description["files"][name] = checksum((folder / name).read_bytes())
    (folder / "model.json").write_text(json.dumps(description))


def test_a_reader_can_be_sent_to_another_process(folder: Path, pictures: list[Image.Image]) -> None:
    reader = Reader.open(folder)
    first = reader.ask(pictures[0], QUESTION)
    assert pickle.loads(pickle.dumps(reader)).ask(pictures[0], QUESTION) == first


def test_it_needs_no_torch(folder: Path) -> None:
    program = (
        "import sys; from polyglance.encoders.reader import Reader; import numpy as np;"
        f"r = Reader.open({str(folder)!r}); p = np.zeros((9, 9, 3), np.uint8);"
        "r.explain(p, 'a dog'); r.score('a dog', r.encode_images([p]));"
        "print(sorted({'torch', 'onnx', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_shipped_graphs_have_what_a_reader_takes() -> None:
    """The default model's words and cells, which a reader for it is trained on."""
    from polyglance.encoders.subgraph import cut_graph, input_of_weight
    from polyglance.encoders.word_table import WordTable

    source = ModelFolder.open()
    content = source.read_file(PICTURE)
    cut = cut_graph(content, input_of_weight(content, "visual_input.weight"))
    assert len(cut) < 0.75 * len(content)  # what pools the cells is gone
    assert WordTable.from_graph(source.read_file("text.onnx"))([0, 249_999]).shape == (2, 384)
    assert polyglance.load().width == 384
