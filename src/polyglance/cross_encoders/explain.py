"""Explain a cross-encoder's prediction: which parts of an image each word of a sentence uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.cross_encoders.model_folder import (
    WORD_STAGES,
    NotACrossEncoder,
    load_cross_encoder,
    system_of,
)
from polyglance.cross_encoders.object_tags import append_tags
from polyglance.cross_encoders.regions import ImageBackboneConfig, encode_regions
from polyglance.cross_encoders.rerank import language_tensor
from polyglance.cross_encoders.vqa import VQA
from polyglance.encoders.attribution import Attribution, Method
from polyglance.errors import PolyglanceError
from polyglance.languages import check_language, is_spaceless
from polyglance.models.attribution import (
    STEPS,
    answer_attribution,
    attention_to_regions,
    word_attribution,
)
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.text import Tokenizer
from polyglance.text.sentence_words import last_word_read, split_words
from polyglance.utils.progress import progress
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

_TRAIN = "train one with 'polyglance train uc2-flickr8k --data DATA --out RUN' and give --model RUN"


class Explainer:
    """Attributes the words of a sentence, or an answer, to parts of an image."""

    def __init__(
        self,
        model: CrossEncoderModel,
        tokenizer: Tokenizer,
        backbone: TorchBackbone,
        image_backbone: ImageBackboneConfig,
        *,
        max_text_tokens: int = 60,
        predicts_words: bool = True,
        vqa: VQA | None = None,
    ) -> None:
        """Assemble an explainer.

        Args:
            model: the cross-encoder; of a question-answering model, its own.
            tokenizer: of the sentences.
            backbone: computes regions.
            image_backbone: how the backbone is applied.
            max_text_tokens: longer sentences are truncated.
            predicts_words: whether the model was trained to predict masked words.
            vqa: the question-answering model, if it is one.
        """
        self.model, self.tokenizer, self.backbone = model.eval(), tokenizer, backbone
        self.image_backbone, self.max_text_tokens = image_backbone, max_text_tokens
        self.predicts_words, self.vqa = predicts_words, vqa
        self.model.requires_grad_(False)

    @classmethod
    def open(
        cls, folder: str | Path | None, *, backbone: str | None = None, device: str = "cpu"
    ) -> Explainer:
        """Open a run, a stage of one, an exported folder, or a question-answering model.

        Args:
            folder: the model.
            backbone: as for `load_cross_encoder`.
            device: a device of torch.

        Returns:
            The explainer.
        """
        if folder is None:
            raise PolyglanceError(f"no model to explain is shipped: {_TRAIN}")
        try:
            loaded = load_cross_encoder(
                folder, stages=WORD_STAGES, backbone=backbone, device=device
            )
        except NotACrossEncoder as error:
            path = Path(folder).expanduser()
            if "vqa" not in (system_of(path), system_of(path / "model")):
                raise PolyglanceError(
                    f"{path} holds no model to explain, neither UC2 or M3P nor one that answers"
                    f" questions: {_TRAIN}, or use 'polyglance train vqa-en-vi --data DATA --out"
                    " RUN'"
                ) from error
            if backbone is not None:
                raise PolyglanceError(
                    f"{path} brings its own image backbone and takes no --backbone: leave it out"
                ) from error
            vqa = VQA.open(folder, device=device)
            return cls(
                vqa.model.cross_encoder,
                vqa.tokenizer,
                vqa.backbone,
                vqa.image_backbone,
                max_text_tokens=vqa.config.max_text_tokens,
                vqa=vqa,
            )
        return cls(
            loaded.model,
            loaded.tokenizer,
            loaded.backbone,
            loaded.image_backbone,
            max_text_tokens=loaded.config.max_text_tokens,
            predicts_words=loaded.config.predicts_words,
        )

    def explain(
        self,
        image: str | Path | Image,
        sentence: str,
        *,
        language: str | None = None,
        method: Method = "relevance",
        layers: Sequence[int] = (),
        max_words: int | None = None,
        steps: int = STEPS,
        quiet: bool = True,
    ) -> Attribution:
        """Attribute each word of a sentence to parts of an image.

        A question-answering model was not trained to predict words: with ``relevance`` its
        answer is attributed, with ``attention`` the words of the question. Any other model that
        does not predict words is explained by attention (see `Attribution.method`).

        Args:
            image: a file, or an open image.
            sentence: a caption or question.
            language: its language, for models with language embeddings and for scripts
                without spaces.
            method: contributions to predicting the masked word, or attention weights.
            layers: layers whose attention is averaged, from 1; none for all.
            max_words: explain the first so many words; relevance takes time for each.
            steps: points of the path that gradients are taken at.
            quiet: show no progress bar.

        Returns:
            One heatmap per word.
        """
        num_layers = self.model.config.encoder.num_layers
        if any(not 1 <= layer <= num_layers for layer in layers):
            raise PolyglanceError(f"the model has layers from 1 to {num_layers}")
        encoding = self.tokenizer.encode_with_spans(sentence, max_length=self.max_text_tokens)
        code = check_language(language) if language else None
        spaces = not (code and is_spaceless(code))
        words = split_words(sentence, encoding, spaces=spaces)
        if not words:
            raise PolyglanceError(f"there is no word in {sentence!r} to explain")
        truncated_after = last_word_read(
            sentence, self.tokenizer, self.max_text_tokens, spaces=spaces
        )
        words = words[:max_words]
        if self.vqa is not None and method == "relevance":
            answer = self._explain_answer(self.vqa, image, sentence, language, steps, quiet)
            return replace(answer, truncated_after=truncated_after)
        if not self.predicts_words:
            method = "attention"
        if self.vqa is not None and self.vqa.tagger is not None:
            # Tags follow the sentence, so that the positions of its words stay the same.
            tagged = append_tags(sentence, self.vqa.tagger.tag([image])[0])
            encoding = self.tokenizer.encode_with_spans(tagged, max_length=self.max_text_tokens)
        languages = language_tensor(self.model, code, 1)
        language_unknown = bool(self.model.embedded_languages) and languages is None
        packing = Packing.of([len(encoding.ids)])
        text = Text(torch.tensor(encoding.ids), packing, languages).to(self.backbone.device)
        table = encode_regions([image], self.backbone, self.image_backbone)
        regions, _ = table.take(np.array([0]))
        names, positions = [name for name, _ in words], [own for _, own in words]
        if method == "attention":
            credit = attention_to_regions(self.model, text, regions, positions, layers)
        else:
            mask = self.tokenizer.mask_id
            if mask is None:
                raise PolyglanceError("the tokenizer has no mask: use --method attention")
            by_word = []
            with progress(_title(code), len(positions), quiet=quiet) as advance:
                for own in positions:
                    by_word.append(word_attribution(self.model, text, regions, [own], mask, steps))
                    advance(1)
            credit = torch.cat(by_word)
        heatmaps = _positive(_as_grid(credit))
        return Attribution(language, names, heatmaps, method, truncated_after, language_unknown)

    def _explain_answer(
        self,
        vqa: VQA,
        image: str | Path | Image,
        question: str,
        language: str | None,
        steps: int,
        quiet: bool,
    ) -> Attribution:
        """Attribute the first answer of `VQA.ask`, averaged over all views of the image."""
        text, views = vqa.encode_question(question, image), vqa.encode_image(image)
        (best,) = vqa.answers(text, views, language or vqa.detect_language(question), k=1)
        class_id = vqa.vocabulary.names.index((best.language, best.text))
        credit = []
        with progress(_title(best.language), len(views), quiet=quiet) as advance:
            for view, regions in enumerate(views):
                contribution = answer_attribution(vqa.model, text, regions, class_id, steps)
                cells = _as_grid(contribution[None])
                # Every second view is mirrored.
                credit.append(cells.flip(2) if view % 2 else cells)
                advance(1)
        # The logit is the mean over all views, and so is each region's contribution to it.
        mean = torch.stack(credit).mean(0)
        return Attribution(language, [f"→ {best.text}"], _positive(mean))


def _title(language: str | None) -> str:
    """Return the label of a progress bar."""
    return f"Explaining ({language})" if language else "Explaining"


def _as_grid(credit: Tensor) -> Tensor:
    """Reshape ``(words, 1 + cells)`` to ``(words, rows, columns)`` without the global region."""
    side = round((credit.shape[1] - 1) ** 0.5)
    return credit[:, 1:].reshape(-1, side, side)


def _positive(cells: Tensor) -> NDArray[np.float32]:
    """Drop contributions against a word."""
    return cells.clamp(min=0).float().cpu().numpy()
