"""What happens before a model sees pictures: sentences about the same pictures come together.

Models with latent tokens learn these, once for all models that want the same
(SMALR, section 3.1); the others bring their words into one universal space (MULE's
first stage).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.config import check
from polyglance.models.smalr import SMALRConfig, latent_vocabulary
from polyglance.nn import latent_vocabulary as latent_code
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import LatentVocabulary
from polyglance.objectives import top_triplets as triplet_code
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.keys import fingerprint
from polyglance.training import hardening as hardening_code
from polyglance.training import loop as loop_code
from polyglance.training import smalr_tasks as task_code
from polyglance.training.checkpoints import model_tensors
from polyglance.training.hardening import FromEasyToHard
from polyglance.training.loop import LoopConfig, train
from polyglance.training.mixture import Mixture
from polyglance.training.smalr_tasks import AveragedSentences, CaptionGrids
from polyglance.weights.cache import make_once

_STATE, _SPENT = "latent.safetensors", "spent.json"
_CODE = (latent_code, triplet_code, hardening_code, loop_code, task_code)


@dataclass(frozen=True)
class Pretraining:
    """How long and how fast sentences come together."""

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

    def make(partial: Path) -> None:
        seconds = _bring_together(latent, captions, settings, rule, easy_share, seed, folder)
        save_file(model_tensors(latent), partial / _STATE)
        (partial / _SPENT).write_text(json.dumps({"seconds": seconds}), encoding="utf-8")

    table = captions.captions
    asked = [
        settings, rule, easy_share, seed, config.latent_tokens, config.universal_width,
        config.explore, config.candidates, config.choice_gradient, captions.sentences_each,
        captions.languages_each,
    ]  # fmt: skip
    name = fingerprint(
        asked, captions.languages, vectors.cpu().numpy(), table.ids, table.offsets, table.owners,
        table.languages, *_CODE,
    )  # fmt: skip
    target = cache / f"latent-{name}"
    make_once(target, lambda path: (path / _SPENT).is_file(), make)
    state = load_file(target / _STATE, device=str(vectors.device))
    latent.load_state_dict(state)
    spent: float = json.loads((target / _SPENT).read_text(encoding="utf-8"))["seconds"]
    return latent.eval(), spent


def align_words(
    words: HybridEmbedding,
    captions: CaptionGrids,
    settings: Pretraining,
    *,
    rule: TripletRule,
    easy_share: float,
    seed: int,
    folder: Path,
) -> tuple[int, float]:
    """MULE's first stage: projections alone learn, the words' own vectors stay as they are.

    Returns how many parameters that moved, and how many seconds it took.
    """
    words.own.requires_grad_(False)
    moved = sum(p.numel() for p in words.parameters() if p.requires_grad)
    seconds = _bring_together(words, captions, settings, rule, easy_share, seed, folder)
    words.own.requires_grad_(True)
    return moved, seconds


def _bring_together(
    words: nn.Module,
    captions: CaptionGrids,
    settings: Pretraining,
    rule: TripletRule,
    easy_share: float,
    seed: int,
    folder: Path,
) -> float:
    """Train words so that averaged sentences about a picture lie together; returns the seconds."""
    task = AveragedSentences(words, captions, batch=settings.batch, rule=rule)

    def obey(rule: TripletRule) -> None:
        task.rule = rule

    hardening = FromEasyToHard(
        task,
        obey,
        rule,
        candidates=task.batch * captions.sentences_each,
        steps=round(easy_share * settings.steps),
    )
    loop = LoopConfig(
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        schedule="cosine",
        seed=seed,
        save_every=0,
    )
    return train(words, Mixture({"sentences": hardening}), loop, folder).seconds
