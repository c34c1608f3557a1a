"""M3P's data: code-switched captions, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.config import (
    CaptionedImages,
    RerankingConfig,
    TextFile,
)
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.recipes.m3p import data as m3p_data_module
from polyglance.recipes.m3p.config import CodeSwitching, FineTuning, M3PRecipe
from polyglance.recipes.m3p.data import load_data
from polyglance.recipes.m3p.train import build_model, build_stages, train
from polyglance.training.mixture import step_generator


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_the_share_alpha_of_captions_is_code_switched(
    data: Path, recipe: M3PRecipe, alpha: float
) -> None:
    config = replace(recipe.code_switching, alpha=alpha, variants=3)
    source = load_data(replace(recipe, code_switching=config), data, "cpu").code_switched_captions(
        config, seed=0
    )
    rows = source.sample(np.resize(source.images, 4000), step_generator(0, 0))
    # Each caption is followed by its variants.
    assert np.mean(rows % 4 > 0) == pytest.approx(alpha, abs=0.04)


def test_every_seed_switches_other_words(data: Path, recipe: M3PRecipe) -> None:
    def token_ids(seed: int) -> list[int]:
        seeded = replace(
            recipe,
            fine_tuning=FineTuning(code_switched=True),
            loop=replace(recipe.loop, seed=seed),
        )
        m3p_data = load_data(seeded, data, "cpu")
        stages = build_stages(seeded, build_model(seeded, m3p_data), m3p_data)
        task: Any = stages[-1].tasks.tasks["mct"]
        table: CaptionTable = task.captions.table
        return table.token_ids.tolist()

    assert token_ids(0) == token_ids(0)
    assert token_ids(0) != token_ids(1)


def test_large_texts_are_memory_mapped(
    data: Path, recipe: M3PRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = replace(recipe, streaming=StreamingConfig(cache_dir=str(tmp_path / "cache")))
    texts = load_data(mapped, data, "cpu").texts
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(m3p_data_module, "LARGE_MANIFEST", 0)
    for attempt in ("tokenised", "opened again"):
        large = load_data(mapped, data, "cpu").texts
        assert texts is not None
        assert large is not None
        assert isinstance(large.token_ids, np.memmap), attempt
        for name in ("token_ids", "offsets", "record_ids", "language_ids"):
            np.testing.assert_array_equal(getattr(large, name), getattr(texts, name))
        assert (large.language_codes, large.num_records) == (
            texts.language_codes,
            texts.num_records,
        )
        # From now on, whoever reads the sentences again fails.
        monkeypatch.setattr(m3p_data_module, "read_dataset", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ()}, "xMLM needs texts"),
        ({"code_switching": CodeSwitching()}, "needs languages to switch to"),
        ({"labels": 3}, "the feature store has more"),
        ({"initialise_from": "nowhere"}, "no checkpoint to start from"),
        ({"reranking": RerankingConfig("nowhere")}, "no embeddings of the dual encoder"),
    ],
)
def test_missing_data_is_reported(
    data: Path, recipe: M3PRecipe, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        train(replace(recipe, **changes), data, tmp_path)


def test_everything_missing_is_named_at_once_and_nothing_is_written(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    changed = replace(
        recipe,
        train=CaptionedImages("train.jsonl", "nowhere"),
        validation=CaptionedImages("dev.jsonl", "regions"),
        texts=(TextFile("novel.jsonl"),),
        code_switching=CodeSwitching("none/{source}-{target}.tsv", ("de", "fr")),
        reranking=RerankingConfig("far"),
    )
    with pytest.raises(PolyglanceError) as caught:
        train(changed, data, tmp_path / "run")
    message = str(caught.value)
    files = f"{data / 'dev.jsonl'}, {data / 'novel.jsonl'}: there is no such"
    assert message.startswith(files)
    for name in (
        "nowhere: there is no feature store", "far: there are no emb", "en-de.tsv", "en-fr.tsv",
    ):  # fmt: skip
        assert name in message
    assert message.count("text align --dictionary") == 1
    assert not (tmp_path / "run").exists()


def test_dictionaries_are_needed_only_for_code_switching(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    missing = replace(recipe, code_switching=CodeSwitching("none/{source}-{target}.tsv", ("de",)))
    assert recipe.pretraining is not None
    plain = replace(missing, pretraining=replace(recipe.pretraining, code_switched=False))
    assert plain.missing_files(data) == []
    assert load_data(plain, data, "cpu").switcher is None
    assert missing.missing_files(data)
    assert replace(plain, fine_tuning=FineTuning(code_switched=True)).missing_files(data)
    # Any file of a dictd dictionary may be named; all of them must exist.
    for suffix in (".index", ".dict.dz"):
        (tmp_path / f"en-de{suffix}").write_bytes(b"")
    for suffix in (".index", ".dict.dz", ".dict"):
        named = replace(
            missing, code_switching=CodeSwitching("{source}-{target}" + suffix, ("de",))
        )
        assert not any("dictionary" in sentence for sentence in named.missing_files(tmp_path))
    (tmp_path / "en-de.index").unlink()
    assert any("dictionary" in sentence for sentence in named.missing_files(tmp_path))


def test_languages_without_captions_fail_before_training(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    with pytest.raises(PolyglanceError, match="no caption is in cs"):
        train(replace(recipe, fine_tuning=FineTuning(languages=("cs",))), data, tmp_path)
    assert not (tmp_path / "pretraining").exists()


def test_code_switching_takes_english_captions_only(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    french = replace(recipe, fine_tuning=FineTuning(code_switched=True, languages=("fr",)))
    with pytest.raises(PolyglanceError, match=r"leave fine_tuning\.languages out"):
        train(french, data, tmp_path)
    replace(recipe, fine_tuning=FineTuning(code_switched=True, languages=("en",))).check_trainable()
