"""UC2 and M3P read hits again: from runs, from exported folders, and through a library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import Result
from polyglance.cross_encoders.image_vectors import tta_image_vectors
from polyglance.recipes.cross_encoder.folder import (
    WORD_STAGES,
    NotACrossEncoder,
    load_cross_encoder,
)
from safetensors.torch import load_file
from typer.testing import CliRunner

from helpers.colour_encoder import ColourEncoder, write_image, write_random_images
from polyglance.cli import app
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.cross_encoders import evaluate_reader
from polyglance.evaluation.pair_scores import PairScores, read_candidates
from polyglance.models.m3p import M3P
from polyglance.models.projection_heads import (
    ProjectionHeads,
    ProjectionHeadsConfig,
    load_projection_heads,
    save_projection_heads,
)
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.data import encode_regions
from polyglance.records import Record, write_manifest
from polyglance.search.library import Library
from tiny_readers import SIZE, make_parts, save_reader, tiny_m3p, tiny_uc2

COLOURS = {
    "red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "grey": (120, 120, 120),
    "yellow": (230, 220, 30), "white": (250, 250, 250),
}  # fmt: skip
TEXT = "a blue picture"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"a {name} picture of {other}" for name in COLOURS for other in COLOURS]
    return make_parts(tmp_path_factory.mktemp("parts"), texts)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    return [write_image(folder / f"{name}.png", rgb, (64, 48)) for name, rgb in COLOURS.items()]


def pair_scores(
    reader: CrossEncoderReranker, pictures: list[Path], language: str = "en"
) -> PairScores:
    """The evaluation's own way to the same scores."""
    opened = reader.opened
    captions = CaptionTable.build(
        [Record(image="x", captions={language: (TEXT,)})], opened.tokenizer, max_tokens=30
    )
    model = opened.model
    numbers = model.config.language_ids([language]) if isinstance(model, M3P) else None
    table = encode_regions(pictures, opened.backbone, opened.config.image_backbone)
    return PairScores(model, table, captions, languages=numbers)


@pytest.mark.parametrize("kind", ["uc2", "m3p"])
def test_scores_are_those_of_the_evaluation(
    parts: Path, pictures: list[Path], tmp_path: Path, kind: str
) -> None:
    model = tiny_uc2(parts) if kind == "uc2" else tiny_m3p(parts)
    reader = CrossEncoderReranker.open(save_reader(tmp_path / "model", parts, model))
    expected = pair_scores(reader, pictures).table(np.array([0]))[:, 0]
    found = reader.score(TEXT, reader.encode_images(pictures), language="en")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.std(found) > 0.01


def test_m3p_is_told_the_languages_it_knows(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    model = tiny_m3p(parts)
    torch.nn.init.normal_(model.languages.weight)
    reader = CrossEncoderReranker.open(save_reader(tmp_path / "model", parts, model))
    seen = reader.encode_images(pictures[:1])
    english, german, none, unknown = (
        float(reader.score(TEXT, seen, language=code)[0]) for code in ("en", "DE", None, "fr")
    )
    assert len({english, german, none}) == 3
    assert unknown == none


def test_a_library_sorts_as_the_evaluation_does(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    trust = 0.7
    folder = save_reader(tmp_path / "model", parts, tiny_uc2(parts), trust=trust)
    encoder = ColourEncoder()
    with Library(tmp_path / "l", model=encoder, reranker=folder) as library:
        write_random_images(tmp_path / "others", 24)
        library.add(*pictures, tmp_path / "others")
        found = library.search(TEXT, k=30, candidates=4)
        vectors = np.stack([library.vector(hit) for hit in found])
    paths = [hit.path for hit in found]
    cosines = vectors @ encoder.encode_texts([TEXT]).T
    scores = pair_scores(CrossEncoderReranker.open(folder), paths)
    _, lists = read_candidates(cosines, scores, np.array([0]), 4).trusting(trust)
    assert lists.scores is not None
    order = np.argsort(-lists.scores[0])
    assert [paths[n] for n in lists.candidates[0][order]] == paths[:4]
    read = [hit.rerank_score for hit in found]
    np.testing.assert_allclose(read[:4], lists.scores[0][order], rtol=1e-3, atol=1e-3)
    assert read[4:] == [None] * 26


def test_a_closer_look_counts_where_the_library_is_of_the_same_model(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    folder = save_reader(tmp_path / "model", parts, tiny_uc2(parts), trust=2.0)
    plain = CrossEncoderReranker.open(folder)
    assert plain.dual_scores(np.ones(3), plain.encode_images(pictures[:1]), model="") is None
    encoder = ColourEncoder()
    torch.manual_seed(0)
    config = ProjectionHeadsConfig(
        plain.opened.backbone.width, encoder.width, 1, 1, encoder.fingerprint
    )
    save_projection_heads(ProjectionHeads(config), folder / "meeting")
    reader = CrossEncoderReranker.open(folder)
    query = encoder.encode_texts([TEXT])[0]
    seen = reader.encode_images(pictures)
    closer = reader.dual_scores(query, seen, model=encoder.fingerprint)
    eyes = reader.opened.backbone
    meeting = load_projection_heads(folder / "meeting")
    expected = (
        tta_image_vectors(meeting, pictures, eyes, reader.opened.config.image_backbone) @ query
    )
    np.testing.assert_allclose(closer, expected, rtol=1e-4, atol=1e-5)
    assert reader.dual_scores(query, seen, model="another") is None

    def found(reranker: CrossEncoderReranker) -> dict[str, float | None]:
        with Library(tmp_path / "l", model=encoder, reranker=reranker) as library:
            return {
                hit.path.stem: hit.rerank_score for hit in library.search(TEXT, k=30, candidates=30)
            }

    with Library(tmp_path / "l", model=encoder) as library:
        write_random_images(tmp_path / "others", 24)
        library.add(*pictures, tmp_path / "others")
        cosines = {hit.path.stem: hit.score for hit in library.search(TEXT, k=30)}
    with_it, without = found(reader), found(plain)
    names = [path.stem for path in pictures]
    moved = np.array([with_it[name] - without[name] for name in names])  # type: ignore[operator]
    changed = expected - np.array([cosines[name] for name in names])
    # By as much as the two cosines differ, in standard deviations of those of the library:
    # as the evaluation counts it.
    deviation = np.std(list(cosines.values()))
    np.testing.assert_allclose(moved, 2.0 * changed / deviation, rtol=1e-3, atol=1e-3)
    assert np.abs(moved).min() > 1e-3


def test_a_model_that_learned_colours_corrects_vectors_that_did_not(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    model = tiny_uc2(parts)
    save_reader(tmp_path / "begun", parts, model)
    opened = load_cross_encoder(tmp_path / "begun")
    regions, _ = encode_regions(pictures, opened.backbone, opened.config.image_backbone).take(
        np.repeat(np.arange(len(COLOURS)), len(COLOURS))
    )
    texts = [opened.tokenizer.encode(f"a {name} picture") for name in COLOURS] * len(COLOURS)
    ids = torch.tensor([number for text in texts for number in text])
    text = Text(ids, Packing.of([len(one) for one in texts]))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(150):
        scores = model.score(text, model.embed_regions(regions)).view(len(COLOURS), -1)
        loss = F.cross_entropy(scores.T, torch.arange(len(COLOURS)))  # the picture of each text
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss < 0.02:
            break
    folder = save_reader(tmp_path / "model", parts, model, half=True)
    with Library(tmp_path / "l", model=ColourEncoder()) as library:
        library.add(*pictures)
        plain = [library.search(f"a {name} picture", k=1)[0].path.stem for name in COLOURS]
    assert len(set(plain)) == 1
    with Library(tmp_path / "l", model=ColourEncoder(), reranker=str(folder)) as library:
        found = [library.search(f"a {name} picture", k=1)[0].path.stem for name in COLOURS]
    assert found == list(COLOURS)


@pytest.fixture(scope="module")
def run(parts: Path, pictures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A UC2 by the published recipe, of a few steps, measured beside a dual encoder."""
    data = pictures[0].parent
    lines = [
        {"image": f"{name}.png", "captions": {"en": [f"a {name} picture"]}} for name in COLOURS
    ]
    (data / "told.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (data / "dual").mkdir()
    for name in ("pictures", "en"):
        np.save(data / "dual" / f"{name}.npy", np.random.default_rng(0).normal(size=(6, 4)))
    changes = [
        f"encoder={parts / 'encoder'}",
        f"eyes={{backbone: {parts / 'eyes'}, size: {SIZE}, views: 1}}",
        "train={manifest: told.jsonl}", "validation={manifest: told.jsonl}",
        "test={manifest: told.jsonl}", "adaptation=null", "longest_text=30",
        "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}", "pretraining.steps=2",
        "pretraining.matching_first=1",
        "pretraining.batch=4", "fine_tuning.batch=4", "fine_tuning.lookalikes=0", "loop.steps=2",
        "loop.precision=float32", "reranking={dual: dual, validation: dual, candidates: 3}",
    ]  # fmt: skip
    out = tmp_path_factory.mktemp("run") / "uc2"
    open_recipe("uc2-flickr8k", changes).run(data, out)
    return out


def test_a_run_is_opened_and_exported_whole(
    run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    reader = CrossEncoderReranker.open(run)
    trust = json.loads((run / "report.json").read_text())["validation"]["trust"]
    assert reader.dual_weight == trust
    assert CrossEncoderReranker.open(run, dual_weight=3).dual_weight == 3
    expected = reader.score(TEXT, reader.encode_images(pictures))
    done = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    assert done.stderr == "", "how far to trust vectors was measured"
    options = [
        "export",
        str(run),
        "--out",
        str(tmp_path / "x"),
        "--name",
        "mine",
        "--max-tokens",
        "9",
    ]
    refused = CliRunner().invoke(app, options)
    assert "which take no --name or --max-tokens: leave that out" in str(refused.exception)
    assert not (tmp_path / "x").exists()
    exported = load_file(tmp_path / "model" / "model.safetensors")
    assert {value.dtype for value in exported.values()} == {torch.float16}
    alone = CrossEncoderReranker.open(tmp_path / "model")
    assert alone.dual_weight == trust
    assert Path(alone.opened.config.image_backbone.backbone).is_relative_to(tmp_path)
    np.testing.assert_allclose(
        alone.score(TEXT, alone.encode_images(pictures)), expected, atol=0.02
    )
    # What was fine-tuned is opened, unless a stage is named.
    tuned = load_file(run / "fine_tuning" / "best" / "model.safetensors")
    assert torch.equal(reader.opened.model.state_dict()["match.weight"], tuned["match.weight"])
    earlier = CrossEncoderReranker.open(run / "pretraining").opened.model.state_dict()
    assert not torch.equal(earlier["match.weight"], tuned["match.weight"])


def test_what_imitated_a_teacher_is_opened_before_what_was_only_pretrained(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    taught = (tmp_path / "run" / "fine_tuning").rename(tmp_path / "run" / "imitation")
    expected = load_file(taught / "best" / "model.safetensors")["match.weight"]
    opened = load_cross_encoder(tmp_path / "run").model.state_dict()
    assert torch.equal(opened["match.weight"], expected)
    told = load_cross_encoder(tmp_path / "run", stages=WORD_STAGES).model.state_dict()
    assert not torch.equal(told["match.weight"], expected)
    shutil.rmtree(tmp_path / "run" / "pretraining")
    told = load_cross_encoder(tmp_path / "run", stages=WORD_STAGES).model.state_dict()
    assert torch.equal(told["match.weight"], expected)


def test_words_of_a_language_look_however_it_is_written(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    model = tiny_m3p(parts)
    torch.nn.init.normal_(model.languages.weight)
    explainer = Explainer.open(save_reader(tmp_path / "model", parts, model))
    english, *german = (
        explainer.explain(pictures[0], TEXT, language=code, method="attention").heatmaps
        for code in ("en", "de", "DE", "de-DE")
    )
    assert not np.allclose(english, german[0])
    for other in german[1:]:
        np.testing.assert_array_equal(other, german[0])
    assert explainer.explain(pictures[0], TEXT, language="fr").language_unknown
    with pytest.raises(PolyglanceError, match="a language code such as 'de'"):
        explainer.explain(pictures[0], TEXT, language="?")


def test_the_search_command_reads_again(
    run: Path, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "polyglance.search.model_info.load", lambda *names, **options: ColourEncoder()
    )
    with Library(tmp_path / "l", model=str(tmp_path)) as library:
        library.add(*pictures)
    command = ["search", "blue", "-l", str(tmp_path / "l"), "--cross-encoder", str(run)]
    done = CliRunner().invoke(app, [*command, "--candidates", "2"], catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["rerank", "score", "file"]
    assert [len(line.split()) for line in lines[1:]] == [3, 3, 2, 2, 2, 2]
    with pytest.raises(NotACrossEncoder, match="holds no trained UC2 or M3P"):
        CliRunner().invoke(app, [*command[:-1], str(tmp_path)], catch_exceptions=False)


def test_what_cannot_be_opened_is_said_plainly(parts: Path, run: Path, tmp_path: Path) -> None:
    folder = save_reader(tmp_path / "model", parts, tiny_uc2(parts))
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(DataError, match="export it again"):
        CrossEncoderReranker.open(folder)
    (folder / "config.json").write_text('{"kind": "pair", "model": 3}')
    with pytest.raises(DataError, match=r"config\.json"):
        CrossEncoderReranker.open(folder)
    stored = tmp_path / "stored"
    stored.mkdir()
    (stored / "recipe.yaml").write_text("kind: uc2\n")
    with pytest.raises(PolyglanceError, match="--features of 'polyglance export'"):
        CrossEncoderReranker.open(stored)


@pytest.mark.parametrize("kind", ["uc2", "m3p"])
def test_a_trained_model_is_measured_on_any_manifest(
    parts: Path, pictures: list[Path], tmp_path: Path, kind: str
) -> None:
    model = tiny_uc2(parts) if kind == "uc2" else tiny_m3p(parts)
    if isinstance(model, M3P):
        torch.nn.init.normal_(model.languages.weight)
    folder = save_reader(tmp_path / "reader", parts, model, trust=0.5)
    told = {
        path: {
            "en": (f"a {path.stem} picture", f"{path.stem} red"),
            "de": (f"picture {path.stem}",),
            "fr": (f"of {path.stem}",),  # which M3P has no embedding of
        }
        for path in pictures
    }
    records = [Record(image=str(path), captions=captions) for path, captions in told.items()]
    write_manifest(tmp_path / "m.jsonl", records)
    opened, encoder = load_cross_encoder(folder), ColourEncoder()
    every = evaluate_reader(opened, tmp_path / "m.jsonl", quiet=True)
    some = evaluate_reader(opened, tmp_path / "m.jsonl", encoder=encoder, candidates=3, quiet=True)
    assert (every.similarity, some.similarity) == ("pairs read", "candidates read")

    # The same by hand: each caption beside each picture, and of candidates by cosine the best.
    reader = CrossEncoderReranker.open(folder)
    seen = reader.encode_images(pictures)
    for language, result in every.languages.items():
        ranks, sorted_ranks = [], []
        vectors = encoder.encode_pictures(pictures)
        spread = np.std(vectors @ encoder.encode_texts(captions_in(told, language)).T)
        for number, path in enumerate(pictures):
            for text in told[path][language]:
                read = reader.score(text, seen, language=language)
                ranks.append(int((read > read[number]).sum()))
                cosines = vectors @ encoder.encode_texts([text])[0]
                kept = np.argsort(-cosines)[:3]
                total = read + 0.5 * cosines / spread
                missed = number not in kept
                sorted_ranks.append(99 if missed else int((total[kept] > total[number]).sum()))
        found = result.text_to_image.recalls
        assert len(ranks) == result.text_to_image.queries
        assert found[1] == pytest.approx(100 * np.mean(np.array(ranks) < 1))
        assert found[5] == pytest.approx(100 * np.mean(np.array(ranks) < 5))
        found = some.languages[language].text_to_image.recalls
        assert found[1] == pytest.approx(100 * np.mean(np.array(sorted_ranks) < 1))


def captions_in(told: dict[Path, dict[str, tuple[str, ...]]], language: str) -> list[str]:
    return [text for captions in told.values() for text in captions[language]]


def test_the_command_measures_readers_and_refuses_what_would_do_nothing(
    parts: Path, pictures: list[Path], tmp_path: Path
) -> None:
    folder = save_reader(tmp_path / "reader", parts, tiny_uc2(parts))
    records = [Record(image=str(p), captions={"en": (f"a {p.stem} picture",)}) for p in pictures]
    write_manifest(tmp_path / "m.jsonl", records)

    def invoke(*options: object) -> Result:
        return CliRunner().invoke(app, ["evaluate", str(tmp_path / "m.jsonl"), *map(str, options)])

    done = invoke("--cross-encoder", folder, "--json", tmp_path / "found.json", "-q")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["model"], found["similarity"]) == ("reader", "pairs read")
    assert "needs a model that re-ranks: add --cross-encoder" in str(
        invoke("--candidates", 3).exception
    )
    both = invoke("--cross-encoder", folder, "--encoder", "polyglance-small")
    assert "as --candidates, or leave --encoder out" in str(both.exception)
    done = invoke("--cross-encoder", folder, "--candidates", 3, "-q")
    assert done.exit_code == 0, done.output
