"""A killed run of a word model ends with the weights of an undisturbed one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers.interruptions import interrupt_before_step
from helpers.toy_smalr_corpus import RECIPE
from polyglance.recipes.smalr.train import train


@pytest.mark.parametrize("step", [1, 3])
def test_a_killed_run_resumes_to_the_bit(
    toy_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Step 1 is that of the pre-training of latent tokens, step 3 of the training."""
    recipe = replace(
        RECIPE,
        loop=replace(RECIPE.loop, steps=4, validate_every=0, save_every=2),
        pretraining=replace(RECIPE.pretraining, steps=2),
        evaluate_test=False,
    )
    ignore = shutil.ignore_patterns("latent-*")
    for name in ("whole", "killed"):
        cache = shutil.copytree(toy_corpus / "cache", tmp_path / f"cache-{name}", ignore=ignore)
        own = replace(recipe, cache_dir=str(cache))
        if name == "killed":
            interrupt_before_step(monkeypatch, step)
            with pytest.raises(KeyboardInterrupt):
                train(own, toy_corpus, tmp_path / name)
        train(own, toy_corpus, tmp_path / name)
    (file,) = (tmp_path / "whole" / "words").glob("*.safetensors")
    ours, theirs = load_file(tmp_path / "killed" / "words" / file.name), load_file(file)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
