"""UC2 and M3P re-rank search results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from helpers.colour_encoder import ColourEncoder, write_random_images
from helpers.tiny_cross_encoders import COLOURS, save_cross_encoder, tiny_m3p, tiny_uc2
from polyglance.cli import app
from polyglance.cross_encoders.model_folder import NotACrossEncoder, load_cross_encoder
from polyglance.cross_encoders.regions import encode_regions, tta_image_vectors
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.data.captions import CaptionTable
from polyglance.evaluation.pair_scores import PairScores, read_candidates
from polyglance.models.projection_heads import (
    ProjectionHeads,
    ProjectionHeadsConfig,
    load_projection_heads,
    save_projection_heads,
)
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.records import Record
from polyglance.search.library import Library

TEXT = "a blue picture"


def pair_scores(
    reranker: CrossEncoderReranker, images: list[Path], language: str = "en"
) -> PairScores:
    """Compute the same scores as evaluation does."""
    loaded = reranker.loaded
    captions = CaptionTable.build(
        [Record(image="x", captions={language: (TEXT,)})], loaded.tokenizer, max_tokens=30
    )
    ids = loaded.model.language_ids([language])
    table = encode_regions(images, loaded.backbone, loaded.image_backbone)
    return PairScores(loaded.model, table, captions, language_ids=ids)


@pytest.mark.parametrize("system", ["uc2", "m3p"])
def test_scores_equal_those_of_evaluation(
    parts: Path, images: list[Path], tmp_path: Path, system: str
) -> None:
    model = tiny_uc2(parts) if system == "uc2" else tiny_m3p(parts)
    folder = save_cross_encoder(tmp_path / "model", parts, model)
    reranker = CrossEncoderReranker.open(folder)
    expected = pair_scores(reranker, images).table(np.array([0]))[:, 0]
    scores = reranker.score(TEXT, reranker.encode_images(images), language="en")
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert np.std(scores) > 0.01


def test_m3p_uses_the_embeddings_of_its_own_languages(
    parts: Path, images: list[Path], tmp_path: Path
) -> None:
    model = tiny_m3p(parts)
    torch.nn.init.normal_(model.languages.weight)
    reranker = CrossEncoderReranker.open(save_cross_encoder(tmp_path / "model", parts, model))
    encoded = reranker.encode_images(images[:1])
    english, german, none, unknown = (
        float(reranker.score(TEXT, encoded, language=code)[0]) for code in ("en", "DE", None, "fr")
    )
    assert len({english, german, none}) == 3
    assert unknown == none


def test_library_ranks_as_evaluation_does(parts: Path, images: list[Path], tmp_path: Path) -> None:
    dual_weight = 0.7
    folder = save_cross_encoder(tmp_path / "model", parts, tiny_uc2(parts), dual_weight=dual_weight)
    encoder = ColourEncoder()
    with Library(tmp_path / "l", model=encoder, reranker=folder) as library:
        write_random_images(tmp_path / "others", 24)
        library.add(*images, tmp_path / "others")
        hits = library.search(TEXT, k=30, candidates=4, off=["names"])
        vectors = np.stack([library.vector(hit) for hit in hits])
    paths = [hit.path for hit in hits]
    cosines = vectors @ encoder.encode_texts([TEXT]).T
    scores = pair_scores(CrossEncoderReranker.open(folder), paths)
    _, lists = read_candidates(cosines, scores, np.array([0]), 4).reranked(dual_weight)
    assert lists.scores is not None
    order = np.argsort(-lists.scores[0])
    assert [paths[n] for n in lists.candidates[0][order]] == paths[:4]
    rerank_scores = [hit.rerank_score for hit in hits]
    np.testing.assert_allclose(rerank_scores[:4], lists.scores[0][order], rtol=1e-3, atol=1e-3)
    assert rerank_scores[4:] == [None] * 26


def test_tta_counts_where_the_library_has_the_same_dual_encoder(
    parts: Path, images: list[Path], tmp_path: Path
) -> None:
    folder = save_cross_encoder(tmp_path / "model", parts, tiny_uc2(parts), dual_weight=2.0)
    plain = CrossEncoderReranker.open(folder)
    assert (
        plain.dual_scores(np.ones(3), plain.encode_images(images[:1]), np.ones(1), models=[""])
        is None
    )
    encoder = ColourEncoder()
    torch.manual_seed(0)
    config = ProjectionHeadsConfig(
        plain.loaded.backbone.width, encoder.width, 1, 1, encoder.fingerprint
    )
    save_projection_heads(ProjectionHeads(config), folder / "projection_heads")
    reranker = CrossEncoderReranker.open(folder)
    query, cosines = encoder.encode_texts([TEXT])[0], np.ones(len(images))
    encoded = reranker.encode_images(images)
    tta_cosines = reranker.dual_scores(query, encoded, cosines, models=["x", encoder.fingerprint])
    heads = load_projection_heads(folder / "projection_heads")
    loaded = reranker.loaded
    expected = tta_image_vectors(heads, images, loaded.backbone, loaded.image_backbone) @ query
    np.testing.assert_allclose(tta_cosines, expected, rtol=1e-4, atol=1e-5)
    assert reranker.dual_scores(query, encoded, cosines, models=["another"]) is None

    def rerank_scores(reranker: CrossEncoderReranker) -> dict[str, float | None]:
        with Library(tmp_path / "l", model=encoder, reranker=reranker) as library:
            return {
                hit.path.stem: hit.rerank_score for hit in library.search(TEXT, k=30, candidates=30)
            }

    with Library(tmp_path / "l", model=encoder) as library:
        write_random_images(tmp_path / "others", 24)
        library.add(*images, tmp_path / "others")
        cosines = {hit.path.stem: hit.score for hit in library.search(TEXT, k=30)}
    with_tta, without = rerank_scores(reranker), rerank_scores(plain)
    names = [path.stem for path in images]
    change = np.array([with_tta[name] - without[name] for name in names])  # type: ignore[operator]
    difference = expected - np.array([cosines[name] for name in names])
    # The cosines' difference, in standard deviations of the library's cosines, as in evaluation.
    deviation = np.std(list(cosines.values()))
    np.testing.assert_allclose(change, 2.0 * difference / deviation, rtol=1e-3, atol=1e-3)
    assert np.abs(change).min() > 1e-3


def top_hit(library: Library, colour: str) -> str:
    return library.search(f"a {colour} picture", k=1, off=["names"])[0].path.stem


def test_trained_model_corrects_vectors_that_know_no_colours(
    parts: Path, images: list[Path], tmp_path: Path
) -> None:
    model = tiny_uc2(parts)
    save_cross_encoder(tmp_path / "untrained", parts, model)
    loaded = load_cross_encoder(tmp_path / "untrained")
    regions, _ = encode_regions(images, loaded.backbone, loaded.image_backbone).take(
        np.repeat(np.arange(len(COLOURS)), len(COLOURS))
    )
    texts = [loaded.tokenizer.encode(f"a {name} picture") for name in COLOURS] * len(COLOURS)
    ids = torch.tensor([number for text in texts for number in text])
    text = Text(ids, Packing.of([len(one) for one in texts]))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(150):
        scores = model.score(text, model.embed_regions(regions)).view(len(COLOURS), -1)
        loss = F.cross_entropy(scores.T, torch.arange(len(COLOURS)))  # the image of each text
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss < 0.02:
            break
    folder = save_cross_encoder(tmp_path / "model", parts, model, half=True)
    with Library(tmp_path / "l", model=ColourEncoder()) as library:
        library.add(*images)
        # The files are called after their colours, which is not to count.
        plain = [top_hit(library, name) for name in COLOURS]
    assert len(set(plain)) == 1
    with Library(tmp_path / "l", model=ColourEncoder(), reranker=str(folder)) as library:
        reranked = [top_hit(library, name) for name in COLOURS]
    assert reranked == list(COLOURS)


def test_search_command_re_ranks(
    run: Path, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "polyglance.search.model_info.load", lambda *names, **options: ColourEncoder()
    )
    with Library(tmp_path / "l", model=str(tmp_path)) as library:
        library.add(*images)
    command = ["search", "blue", "-l", str(tmp_path / "l"), "--cross-encoder", str(run)]
    result = CliRunner().invoke(
        app, [*command, "--candidates", "2", "--off", "names"], catch_exceptions=False
    )
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["rerank", "cosine", "file"]
    assert [len(line.split()) for line in lines[1:]] == [3, 3, 2, 2, 2, 2]
    with pytest.raises(NotACrossEncoder, match="holds no trained UC2 or M3P"):
        CliRunner().invoke(app, [*command[:-1], str(tmp_path)], catch_exceptions=False)
