"""The pre-training task: random clips, the subtitles nearest in time, one language each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from helpers.steps import losses_of
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.mmp import tasks
from polyglance.recipes.mmp.config import ClipSampling
from polyglance.recipes.mmp.tasks import SubtitleTask
from polyglance.records import Cue, Record

SECONDS = 60


class Numbers:
    """A text is its ids; what is not a number is unknown and dropped."""

    unk_id = 3

    def encode_batch(self, texts: list[str], *, max_length: int) -> list[list[int]]:
        return [
            [int(word) for word in text.split() if word.isdigit()][:max_length] for text in texts
        ]


def video(name: str = "v", languages: tuple[str, ...] = ("en", "de", "zh")) -> Record:
    """In each language, something is said every second second; the words tell when."""
    cues = {
        language: tuple(Cue(s, s + 1, str(100 * number + s)) for s in range(0, SECONDS, 2))
        for number, language in enumerate(languages)
    }
    return Record(video=name, subtitles=cues)


def seconds_of(record: Record) -> np.ndarray:
    """The feature of a second is its number."""
    return np.arange(SECONDS, dtype=np.float32)[:, None].repeat(6, axis=1)


def make(clips: ClipSampling, videos: list[Record] | None = None, **options: Any) -> SubtitleTask:
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=400,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        dropout=0.0,
    )
    config = MMPConfig(
        encoder=encoder, text_layer=None, frozen_layers=0, visual_width=6, width=16, dropout=0.0
    )
    settings = {"objective": MMPObjective(intra=False), "batch": 4, "max_text_tokens": 8} | options
    tokenizer: Any = Numbers()
    videos = [video()] if videos is None else videos
    objective = settings.pop("objective")
    return SubtitleTask(
        MMP(config), videos, seconds_of, tokenizer, objective, sampling=clips, **settings
    )


def test_clip_text_is_its_subtitles() -> None:
    task = make(ClipSampling(5, 5))
    generator = np.random.default_rng(0)
    starts = []
    for _ in range(600):
        clip = task.sample_clip(video(languages=("en",)), generator)
        assert len(clip.features) == 5
        first = int(clip.features[0, 0])
        assert np.array_equal(clip.features[:, 0], first + np.arange(5))
        said = [int(word) for word in clip.text.split()]
        assert said == [s for s in range(first, first + 5) if s % 2 == 0]
        starts.append(first)
    assert set(starts) == set(range(SECONDS - 5 + 1))


def test_clip_without_subtitles_takes_the_nearest() -> None:
    lone = Record(video="v", subtitles={"en": (Cue(2, 3, "7"), Cue(50, 51, "9"))})
    task, generator = make(ClipSampling(1, 1)), np.random.default_rng(0)
    for _ in range(100):
        clip = task.sample_clip(lone, generator)
        # 26 to 27 s is as far from both: then the earlier.
        assert clip.text == ("7" if clip.features[0, 0] <= 26 else "9")


def test_clip_lengths_are_uniform_and_within_the_video() -> None:
    task, generator = make(ClipSampling(10, 40)), np.random.default_rng(0)
    lengths = [len(task.sample_clip(video(), generator).features) for _ in range(600)]
    assert min(lengths) == 10
    assert max(lengths) == 40
    assert np.mean(lengths) == pytest.approx(25, abs=1.5)
    whole = make(ClipSampling(500, 900))
    assert len(whole.sample_clip(video(), generator).features) == SECONDS


def test_features_per_second() -> None:
    task, generator = make(ClipSampling(4, 4, features_per_second=0.5)), np.random.default_rng(0)
    long = Record(video="v", subtitles={"en": tuple(Cue(s, s + 1, str(s)) for s in range(120))})
    for _ in range(50):
        clip = task.sample_clip(long, generator)  # 60 features are now 120 seconds
        first = int(clip.features[0, 0])
        assert clip.features[:, 0].tolist() == [first, first + 1]
        assert clip.text.split() == [str(2 * first + s) for s in range(4)]


def test_languages_are_drawn_equally_often() -> None:
    task, generator = make(ClipSampling(9, 9)), np.random.default_rng(0)
    drawn = [task.sample_clip(video(), generator) for _ in range(900)]
    for clip in drawn:
        hundreds = {int(word) // 100 for word in clip.text.split()}
        assert hundreds == {("en", "de", "zh").index(clip.language)}
    counts = Counter(clip.language for clip in drawn)
    assert all(250 < counts[language] < 350 for language in ("en", "de", "zh"))
    some = make(ClipSampling(9, 9), languages=("de", "zh"))
    assert {some.sample_clip(video(), generator).language for _ in range(60)} == {"de", "zh"}


def test_languages_without_cues_are_not_drawn() -> None:
    said = video().subtitles
    half_mute = Record(video="v", subtitles={"fr": (), **said, "sw": ()})
    task, generator = make(ClipSampling(9, 9)), np.random.default_rng(0)
    drawn = [task.sample_clip(half_mute, generator) for _ in range(60)]
    assert {clip.language for clip in drawn} == set(said)
    assert all(clip.text for clip in drawn)


def test_batch_has_distinct_videos(monkeypatch: pytest.MonkeyPatch) -> None:
    videos = [video(str(number)) for number in range(6)]
    task = make(ClipSampling(1, 30), videos, objective=MMPObjective(mask_id=399))
    seen: list[Any] = []

    def spy(model: MMP, features: Any, visuals: Any, captions: Any, *rest: Any) -> Any:
        seen.append((features, visuals, captions))
        return original(model, features, visuals, captions, *rest)

    original = tasks.mmp_losses
    monkeypatch.setattr(tasks, "mmp_losses", spy)
    drawn: list[str] = []
    monkeypatch.setattr(
        task, "sample_clip", lambda record, rng: drawn.append(record.video) or draw(record, rng)
    )
    draw = SubtitleTask.sample_clip.__get__(task)
    losses = losses_of(task, np.random.default_rng(1))
    assert set(losses) == {"inter", "intra"}  # equations 1 and 3, no cross-lingual pairs
    ((features, visuals, captions),) = seen
    assert len(set(drawn)) == 4
    assert len(visuals) == 4
    assert len(features) == visuals.num_tokens
    assert [len(text.packing) for text in captions] == [4]
    assert captions[0].packing.max_seqlen <= 8
    torch.stack(list(losses.values())).sum().backward()


def test_empty_tokenisation_becomes_the_unknown_token() -> None:
    mute = Record(video="m", subtitles={"en": (Cue(0, 60, "hm"),)})
    task = make(ClipSampling(5, 5), [mute, video()])
    assert torch.isfinite(losses_of(task, np.random.default_rng(0))["inter"])


def test_invalid_settings_are_rejected() -> None:
    task = make(ClipSampling())
    task.read_features = lambda record: np.zeros((0, 6), np.float32)
    with pytest.raises(PolyglanceError, match="v has no features"):
        task.sample_clip(video(), np.random.default_rng(0))
    with pytest.raises(PolyglanceError, match="no video has features and subtitles"):
        make(ClipSampling(), [])
    with pytest.raises(PolyglanceError, match=r"set objective\.cross to false"):
        make(ClipSampling(), objective=MMPObjective(cross=True))
    for wrong in ((0, 5), (6, 5), (-1, -1)):
        with pytest.raises(PolyglanceError, match="min_seconds at most max_seconds"):
            ClipSampling(*wrong)
