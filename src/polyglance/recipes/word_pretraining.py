"""Latent tokens before a model is trained: learned once, shared by all models that want them."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from polyglance.config import check
from polyglance.models.smalr import SMALRConfig, latent_vocabulary
from polyglance.nn.latent_vocabulary import LatentVocabulary
from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.checkpoints import model_tensors
from polyglance.training.hardening import FromEasyToHard
from polyglance.training.loop import LoopConfig, train
from polyglance.training.mixture import Mixture
from polyglance.training.smalr_tasks import AveragedSentences, CaptionGrids
from polyglance.weights.cache import make_once

_STATE = "latent.safetensors"


@dataclass(frozen=True)
class Pretraining:
    """How latent tokens are learned (SMALR, section 3.1)."""

    steps: int = 300
    learning_rate: float = 1e-3
    batch: int = 256
    """Pictures whose sentences are compared."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: value >= 0, "0 or more", "steps")
        check(self, lambda value: value > 0, "a number above 0", "learning_rate")


def pretrained_latent(
    config: SMALRConfig,
    vectors: Tensor,
    captions: CaptionGrids,
    settings: Pretraining,
    *,
    rule: TripletRule,
    easy_share: float,
    seed: int,
    folder: Path,
    cache: Path,
) -> tuple[LatentVocabulary, float]:
    """A latent vocabulary that has learned from captions, and how many seconds that took.

    It is looked for in ``cache`` first: models that differ in what they do with
    their tokens share them.
    """
    torch.manual_seed(seed)
    latent = latent_vocabulary(config, vectors).to(vectors.device)
    begin = time.monotonic()

    task = AveragedSentences(latent, captions, batch=settings.batch, rule=rule)

    def obey(rule: TripletRule) -> None:
        task.rule = rule

    hardening = FromEasyToHard(
        task,
        obey,
        rule,
        candidates=task.batch * captions.sentences_each,
        steps=round(easy_share * settings.steps),
    )

    def make(partial: Path) -> None:
        train(
            latent,
            Mixture({"sentences": hardening}),
            LoopConfig(
                steps=settings.steps,
                learning_rate=settings.learning_rate,
                schedule="cosine",
                seed=seed,
                save_every=0,
            ),
            folder,
        )
        save_file(model_tensors(latent), partial / _STATE)

    asked = [
        asdict(settings), asdict(rule), easy_share, seed, config.latent_tokens,
        config.universal_width, config.explore, config.candidates, config.choice_gradient,
        captions.sentences_each, captions.languages_each, captions.languages.tolist(),
    ]  # fmt: skip
    name = hashlib.sha256(json.dumps(asked).encode())
    name.update(vectors.cpu().numpy().tobytes())
    name.update(captions.captions.ids.tobytes())
    target = cache / f"latent-{name.hexdigest()[:16]}"
    make_once(target, lambda path: (path / _STATE).is_file(), make)
    state = load_file(target / _STATE, device=str(vectors.device))
    latent.load_state_dict(state)
    return latent.eval(), time.monotonic() - begin
