"""Pre-training on captions alone, before a model sees images.

Models with latent tokens learn these, once for all models with the same settings (SMALR,
section 3.1); the others project their words into one universal space (MULE's first stage).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.models.smalr import SMALRConfig, latent_vocabulary
from polyglance.nn import latent_vocabulary as latent_code
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import LatentVocabulary
from polyglance.nn.pretrained import model_tensors
from polyglance.objectives import top_triplets as triplet_code
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.smalr import tasks as task_code
from polyglance.recipes.smalr.config import PretrainingConfig
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SentenceAlignmentTask
from polyglance.training import loop as loop_code
from polyglance.training import triplet_curriculum as curriculum_code
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture
from polyglance.training.triplet_curriculum import TripletCurriculum
from polyglance.utils.fingerprint import fingerprint
from polyglance.weights.cache import make_once

_STATE, _SECONDS = "latent.safetensors", "seconds.json"
_CODE = (latent_code, triplet_code, curriculum_code, loop_code, task_code)


def pretrain_latent(
    config: SMALRConfig,
    vectors: Tensor,
    captions: CaptionGridSampler,
    settings: PretrainingConfig,
    *,
    rule: TripletRule,
    hard_negative_warmup: float,
    seed: int,
    folder: Path,
    cache_dir: Path,
) -> tuple[LatentVocabulary, float]:
    """Return a pre-trained latent vocabulary and the seconds that its training took.

    Args:
        config: Of the model.
        vectors: Word vectors, ``(words, width)``.
        captions: Draws training captions.
        settings: Of the pre-training.
        rule: Triplet rule.
        hard_negative_warmup: Fraction of the steps for the triplet curriculum.
        seed: Of weights and draws.
        folder: Run folder of the pre-training.
        cache_dir: Keeps the result, for other models with the same settings.
    """
    torch.manual_seed(seed)
    latent = latent_vocabulary(config, vectors).to(vectors.device)

    def make(partial: Path) -> None:
        seconds = _train(latent, captions, settings, rule, hard_negative_warmup, seed, folder)
        save_file(model_tensors(latent), partial / _STATE)
        (partial / _SECONDS).write_text(json.dumps({"seconds": seconds}), encoding="utf-8")

    table = captions.captions
    name = fingerprint(
        [
            settings, rule, hard_negative_warmup, seed, config.latent_tokens,
            config.universal_width, config.explore, config.candidates, config.choice_gradient,
            captions.captions_per_language, captions.languages_per_step,
        ],
        captions.languages, vectors.cpu().numpy(), table.token_ids, table.offsets,
        table.record_ids, table.language_ids, *_CODE,
    )  # fmt: skip
    target = cache_dir / f"latent-{name}"
    make_once(target, lambda path: (path / _SECONDS).is_file(), make)
    state = load_file(target / _STATE, device=str(vectors.device))
    latent.load_state_dict(state)
    seconds: float = json.loads((target / _SECONDS).read_text(encoding="utf-8"))["seconds"]
    return latent.eval(), seconds


def align_words(
    words: HybridEmbedding,
    captions: CaptionGridSampler,
    settings: PretrainingConfig,
    *,
    rule: TripletRule,
    hard_negative_warmup: float,
    seed: int,
    folder: Path,
) -> tuple[int, float]:
    """Run MULE's first stage: train the projections, with the words' own vectors frozen.

    Args:
        words: Trained in place.
        captions: Draws training captions.
        settings: Of the pre-training.
        rule: Triplet rule.
        hard_negative_warmup: Fraction of the steps for the triplet curriculum.
        seed: Of the draws.
        folder: Run folder of the pre-training.

    Returns:
        The number of trained parameters, and the seconds that it took.
    """
    words.own.requires_grad_(False)
    num_parameters = sum(p.numel() for p in words.parameters() if p.requires_grad)
    seconds = _train(words, captions, settings, rule, hard_negative_warmup, seed, folder)
    words.own.requires_grad_(True)
    return num_parameters, seconds


def _train(
    words: nn.Module,
    captions: CaptionGridSampler,
    settings: PretrainingConfig,
    rule: TripletRule,
    hard_negative_warmup: float,
    seed: int,
    folder: Path,
) -> float:
    """Train words on `SentenceAlignmentTask`; return the seconds that it took."""
    task = SentenceAlignmentTask(words, captions, batch=settings.batch, rule=rule)
    curriculum = TripletCurriculum(
        task,
        task.set_rule,
        rule,
        candidates=task.batch * captions.captions_per_language,
        steps=round(hard_negative_warmup * settings.steps),
    )
    loop = pretraining_loop(settings, seed)
    return train_loop(words, Mixture({"sentences": curriculum}), loop, folder).seconds


def pretraining_loop(settings: PretrainingConfig, seed: int) -> LoopConfig:
    """Return how pre-training optimises."""
    return LoopConfig(
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        schedule="cosine",
        seed=seed,
        save_every=0,
    )
