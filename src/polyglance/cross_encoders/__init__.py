"""Trained cross-encoders: score and re-rank images, answer questions, explain words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.model_folder import CONFIG, system_of
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.cross_encoders.vqa import VQA
from polyglance.encoders import Picture
from polyglance.encoders.answers import Answer
from polyglance.encoders.attribution import Attribution
from polyglance.encoders.inputs import as_list, picture_from_memory
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Answer", "Attribution", "CrossEncoder"]


class CrossEncoder:
    """A model that reads a text beside an image: UC2, M3P, or one that answers questions."""

    def __init__(
        self, folder: str | Path, *, backbone: str | None = None, device: str = "cpu"
    ) -> None:
        """Open a model folder.

        Args:
            folder: a run of `polyglance train`, or what `polyglance export` wrote.
            backbone: image backbone, by name or folder, for a run that knows only its name.
            device: a device of torch.
        """
        path = Path(folder).expanduser()
        # A run of question answering keeps its model in a folder of its own.
        self.folder = path / "model" if (path / "model" / CONFIG).is_file() else path
        self.backbone, self.device = backbone, device
        self.answers_questions = system_of(self.folder) == "vqa"
        if self.answers_questions:
            if backbone is not None:
                raise PolyglanceError(
                    f"{path} brings its own image backbone: leave the argument backbone out"
                )
            self._vqa  # noqa: B018 (opened now, so that a broken folder fails here)
        else:
            self._reranker  # noqa: B018

    def score(
        self,
        text: str,
        images: Sequence[Picture],
        *,
        language: str | None = None,
    ) -> NDArray[np.float32]:
        """Return how well a text fits each image, ``(images,)``; higher is better.

        Args:
            text: a query or caption.
            images: files, their bytes, open images, or pixels (height, width, RGB).
            language: the text's language, for models with language embeddings.
        """
        if self.answers_questions:
            raise PolyglanceError(f"{self.folder} answers questions and scores no texts: use ask()")
        reranker = self._reranker
        opened = [_file_or_image(image) for image in as_list(images)]
        return reranker.score(text, reranker.encode_images(opened), language=language)

    def ask(
        self, image: Picture, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """Answer a question about an image.

        Args:
            image: a file, its bytes, an open image, or pixels (height, width, RGB).
            question: in any language of the model.
            language: of the answers; None for the question's own.
            k: how many answers.

        Returns:
            The ``k`` most probable answers, best first.
        """
        if not self.answers_questions:
            raise PolyglanceError(
                f"{self.folder} answers no questions: train a model that does with 'polyglance"
                " train vqa-en-vi --data DATA --out RUN'"
            )
        return self._vqa.ask(_file_or_image(image), question, language=language, k=k)

    def explain(self, image: Picture, sentence: str, *, language: str | None = None) -> Attribution:
        """Attribute each word of a sentence, or the answer to a question, to parts of an image."""
        return self._explainer.explain(_file_or_image(image), sentence, language=language)

    @cached_property
    def _reranker(self) -> CrossEncoderReranker:
        return CrossEncoderReranker.open(self.folder, backbone=self.backbone, device=self.device)

    @cached_property
    def _vqa(self) -> VQA:
        return VQA.open(self.folder, device=self.device)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer.open(self.folder, backbone=self.backbone, device=self.device)


def _file_or_image(picture: Picture) -> str | Path | Image:
    """Return bytes and pixels as an image; files and images as they are."""
    if isinstance(picture, bytes | np.ndarray):
        return picture_from_memory(picture)
    return picture
