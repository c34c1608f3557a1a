"""Visual question answering with a trained model: what `polyglance ask` opens.

``RUN/model`` is a folder as described in `polyglance.cross_encoders.model_folder`, with the
words of the training questions in ``lexicon.json``, by which the language of a question is
detected, and a model card in ``README.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError

from polyglance.cross_encoders.model_folder import (
    CONFIG,
    ModelFolderConfig,
    copy_weights,
    read_model,
    write_model,
)
from polyglance.cross_encoders.object_tags import ObjectTagger, ObjectTagsConfig, append_tags
from polyglance.cross_encoders.regions import (
    ImageBackboneConfig,
    encode_regions_tta,
    open_image_backbone,
)
from polyglance.encoders.answers import Answer, AnswerVocabulary
from polyglance.errors import DataError, PolyglanceError
from polyglance.languages import check_language
from polyglance.models.projection_heads import ProjectionHeadsConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.meta import on_meta_device
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing
from polyglance.objectives.vqa import AnswerLoss, answer_probabilities
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.detection import detect_language
from polyglance.text.lexicon import Lexicon
from polyglance.text.sentence_words import last_word_read
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

_DETECTOR = "detector"
_TRAIN = "polyglance train vqa-en-vi --data DATA --out RUN"


@dataclass(frozen=True, kw_only=True)
class VQAConfig(ModelFolderConfig):
    """What ``config.json`` holds for a question-answering model."""

    system: str = "vqa"
    model: UC2Config
    answers: dict[str, tuple[str, ...]]
    """The answers by language; their order is that of the classes."""
    loss: AnswerLoss
    answer_embeddings: bool = True
    """Whether the model compares a predicted vector with one of each answer."""
    head_width: int | None = None
    """Of the head's inner layer; None for twice the hidden size."""
    projection_heads: ProjectionHeadsConfig | None = None
    """Of a model that compares answers with the image in a dual encoder's space."""
    object_tags: ObjectTagsConfig | None = None
    """Of a model whose questions are followed by object tags."""


def write_vqa_model(
    folder: Path,
    model: VQAModel,
    tokenizer: Tokenizer,
    config: VQAConfig,
    questions: Mapping[str, Sequence[str]],
) -> None:
    """Write a model folder with its image backbone and, if it has one, its detector.

    Args:
        folder: what to write.
        model: the trained model.
        tokenizer: saved beside it.
        config: saved as ``config.json``.
        questions: the training questions by language, to detect the language of others.
    """
    if (tags := config.object_tags) is not None:
        copy_weights(tags.detector, folder / _DETECTOR)
        config = replace(config, object_tags=replace(tags, detector=_DETECTOR))
    write_model(folder, model, tokenizer, config)
    Lexicon.from_texts(questions).save(folder)


class VQA:
    """A trained model that answers questions about images."""

    def __init__(
        self,
        model: VQAModel,
        tokenizer: Tokenizer,
        backbone: TorchBackbone,
        config: VQAConfig,
        tagger: ObjectTagger | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """Assemble a model.

        Args:
            model: scores all answers.
            tokenizer: of the questions.
            backbone: computes regions.
            config: what the folder says.
            tagger: appends object tags to questions, if the model was trained so.
            lexicon: detects the language of questions; without it, answers come in any.
        """
        self.model, self.tokenizer, self.backbone = model.eval(), tokenizer, backbone
        self.config, self.tagger, self.lexicon = config, tagger, lexicon
        self.vocabulary = AnswerVocabulary(config.answers)

    @classmethod
    def open(cls, folder: str | Path | None, *, device: str = "cpu") -> VQA:
        """Open ``RUN/model``, or the run itself."""
        if folder is None:
            raise PolyglanceError(
                f"no question-answering model is shipped: train one with '{_TRAIN}' and give"
                " --model RUN/model"
            )
        path = Path(folder).expanduser()
        path = path / "model" if (path / "model" / CONFIG).is_file() else path
        try:
            config, state = read_model(path, VQAConfig)
            answers = AnswerVocabulary(config.answers)
            with on_meta_device():
                model = VQAModel(
                    UC2(config.model),
                    len(answers),
                    head_width=config.head_width,
                    answer_embeddings=config.answer_embeddings,
                    similarity=config.projection_heads,
                )
            model.load_state_dict(state, assign=True)
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            detail = " ".join(str(error).split())[:200]
            raise DataError(
                f"{path} holds no question-answering model ({detail}): train one with '{_TRAIN}'"
            ) from error
        except PolyglanceError as error:
            raise DataError(f"{path / CONFIG}: {error}") from error
        if config.image_backbone is None:
            raise DataError(
                f"{path} was trained on regions of an external detector, which new images lack:"
                " ask a model that was trained with an image_backbone"
            )
        tagger = None
        if config.object_tags is not None:
            own = replace(config.object_tags, detector=str(path / _DETECTOR))
            tagger = ObjectTagger(own, device=device)
        lexicon = Lexicon.open(path) if (path / "lexicon.json").is_file() else None
        backbone = open_image_backbone(config.image_backbone, device)
        return cls(model.to(device), open_tokenizer(path), backbone, config, tagger, lexicon)

    @property
    def image_backbone(self) -> ImageBackboneConfig:
        """How the backbone is applied."""
        assert self.config.image_backbone is not None
        return self.config.image_backbone

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of its answers."""
        return tuple(self.vocabulary.by_language)

    def ask(
        self, image: str | Path | Image, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """Answer a question about an image.

        Args:
            image: a file, or an open image.
            question: in any language of the model.
            language: of the answers; None for the question's own.
            k: how many answers.

        Returns:
            The ``k`` most probable answers, best first.
        """
        if not question.strip():
            raise PolyglanceError("the question is empty: ask one in " + ", ".join(self.languages))
        language = self.detect_language(question) if language is None else language
        text = self.encode_question(question, image)
        return self.answers(text, self.encode_image(image), language, k)

    def encode_image(self, image: str | Path | Image) -> list[Regions]:
        """Return an image's regions in each view of test-time augmentation."""
        table = encode_regions_tta([image], self.backbone, self.image_backbone)
        return [table.take(np.array([0]), view=view)[0] for view in range(table.views)]

    def encode_question(self, question: str, image: str | Path | Image) -> Text:
        """Tokenize a question, followed by the image's tags if the model takes them."""
        tags = "" if self.tagger is None else self.tagger.tag([image])[0]
        tagged = append_tags(question, tags)
        ids = self.tokenizer.encode(tagged, max_length=self.config.max_text_tokens)
        return Text(torch.tensor(ids), Packing.of([len(ids)])).to(self.backbone.device)

    def last_word_read(self, question: str) -> str | None:
        """Return the last word that is read of a question that is too long, else None."""
        return last_word_read(question, self.tokenizer, self.config.max_text_tokens)

    def detect_language(self, question: str) -> str | None:
        """Return the language of a question among the model's own, or None without a lexicon."""
        return None if self.lexicon is None else detect_language(question, self.lexicon)

    @torch.no_grad()
    def answers(
        self, text: Text, views: Sequence[Regions], language: str | None, k: int
    ) -> Sequence[Answer]:
        """Answer an encoded question.

        Args:
            text: what `encode_question` returned.
            views: what `encode_image` returned; logits are averaged over them.
            language: of the answers; None for any.
            k: how many answers.

        Returns:
            The ``k`` most probable answers, best first.
        """
        logits = torch.stack([self.model(text, regions) for regions in views]).mean(0)
        probabilities = answer_probabilities(logits, self.config.loss)[0].cpu().numpy()
        code = None if language is None else check_language(language)
        return self.vocabulary.best(probabilities, code, k)
