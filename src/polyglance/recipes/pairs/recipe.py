"""What recipes of models that read a sentence beside a picture have in common: M3P and UC2."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from polyglance.config import check
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.common import files_missing, keep, not_there
from polyglance.recipes.pairs.aligning import Alignment
from polyglance.recipes.pairs.imitating import Imitation
from polyglance.recipes.pairs.measuring import Reranking
from polyglance.recipes.pairs.region_splits import Described, Eyes, SplitReader
from polyglance.recipes.pairs.towers import towers_of
from polyglance.text import Tokenizer
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class PairRecipe:
    """Where such a model begins, what it reads, and how it is measured."""

    towers: str | None = None
    """A dual encoder whose sentences and eyes to begin with, by name or folder; it is taken apart
    into RUN/towers. None for ``encoder``, ``eyes.backbone`` and ``reranking.meeting``."""
    encoder: str = "e5-small"
    """Known weights, or a folder as transformers saves XLM-R or mBERT."""
    dropout: float | None = 0.1
    longest_text: int = 64
    longest_regions: int = 50
    whole_first: bool = True
    """Take the vector of the whole picture for the first region."""
    eyes: Eyes | None = None
    """Look at the pictures themselves, which have no labels then; None to take stored features."""
    train: Described = field(default_factory=lambda: Described("train.jsonl", "features"))
    more: tuple[Described, ...] = ()
    """Further pictures to train on."""
    validation: Described | None = None
    test: Described | None = None
    alignment: Alignment | None = None
    """Reading pictures and sentences apart before all else; None for not at all, as the papers."""
    imitation: Imitation | None = None
    """What a dual encoder teaches before fine-tuning; None for nothing."""
    initialise_from: str | None = None
    """A checkpoint, or the folder of a stage of another run, such as RUN/pretraining; or the file
    of a published one, see `polyglance.recipes.pairs.untrained`. M3P's languages may be others:
    those it knew keep their embeddings."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=5e-5, betas=(0.9, 0.98))
    )
    """Of fine-tuning; the stages before have their own length and rate."""
    new_rate: float = 1.0
    """How many times faster than the encoder all that is new beside it learns."""
    validate_on: int = 200
    """Pictures of the validation, a caption each in every language, that choose the checkpoint."""
    test_on: int | None = None
    """Pictures of the test; None for all."""
    all_pairs: bool = True
    """Measure by reading every pair of the test."""
    reranking: Reranking | None = None
    """A dual encoder whose candidates are read again; None for none."""

    def __post_init__(self) -> None:
        at_least_one = ("longest_regions", "validate_on", "test_on")
        check(self, lambda value: value >= 1, "1 or more", *at_least_one)
        check(self, lambda value: value >= 3, "3 or more", "longest_text")
        check(self, lambda value: value > 0, "a number above 0", "new_rate")
        if self.towers is not None and self.eyes is None:
            raise PolyglanceError("towers has eyes of its own: say how they look in eyes")
        if self.reranking is not None and self.reranking.meeting and self.eyes is None:
            raise PolyglanceError(
                "reranking.meeting needs eyes, the picture network of the dual encoder"
            )

    @property
    def manifests(self) -> tuple[str, ...]:
        """The files of captions that it is trained and measured on."""
        parts = (self.train, *self.more, self.validation, self.test)
        return tuple(part.manifest for part in parts if part is not None)

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the data that it is trained by."""
        return self.manifests

    def begin(self, kind: str, data: Path, run: Path) -> Self:
        """Lay it beside its run; returns it as it is trained by, with towers.

        Data that is missing is found out before anything is made, all of it at once.
        """
        self.check_trainable()
        if missing := self.missing(data):
            raise DataError("; ".join(missing))
        keep(self, kind, run)
        begun = self.with_towers(run)
        if begun.reranking is not None:
            begun.reranking.check_folders(data, begun.eyes)
        return begun

    def check_trainable(self) -> None:
        """Refuse settings that contradict one another; runs by them can be opened all the same."""

    def missing(self, data: Path) -> list[str]:
        """What is to be there before training, and is not: a sentence for each kind of thing."""
        parts = (self.train, *self.more, self.validation, self.test)
        stores = {part.features for part in parts if part is not None and self.eyes is None}
        found = files_missing(data, self.files) + not_there(
            [data / name for name in sorted(stores) if not (data / name / "store.json").is_file()],
            "there is no store of features; make it by polyglance features extract, as the head of"
            " the recipe says",
        )
        if self.reranking is not None:
            found += self.reranking.missing(data)
        return found

    def with_towers(self, run: Path) -> Self:
        """The same with the encoder and the eyes of a dual encoder that is taken apart."""
        if self.towers is None or self.eyes is None:
            return self
        towers, reranking = towers_of(self.towers, run), self.reranking
        if reranking is not None:
            meeting = None if towers.meeting is None else str(towers.meeting)
            reranking = replace(reranking, meeting=meeting)
        return replace(
            self,
            towers=None,
            encoder=str(towers.text),
            eyes=replace(self.eyes, backbone=str(towers.pictures)),
            reranking=reranking,
        )

    def reader(self, data: Path, tokenizer: Tokenizer, device: str) -> SplitReader:
        """What reads the parts of the data that are named here."""
        return SplitReader(
            data,
            tokenizer,
            longest_text=self.longest_text,
            longest_regions=self.longest_regions,
            whole_first=self.whole_first,
            eyes=self.eyes,
            seed=self.loop.seed,
            device=device,
        )
