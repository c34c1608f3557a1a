"""Visual question answering: a classifier over candidate answers on top of UC2.

UC2 treats VQA as "a multi-label classification problem, where the model predicts answer from
the candidate pool" (Zhou et al. 2021, section 4): question and regions form one sequence, and
the vector of <s> goes through a head of two layers, as in UNITER, whose code UC2 builds on. The
paper trains one model per language, since answers differ; here the answers of all languages are
classes of one head, and the caller restricts them to the question's language.

Two terms may be added to the paper's logits:

- answer embeddings: the head also predicts a vector, compared with the text encoder's vector
  of each answer, so that "couch" (ten training answers) helps "sofa" (two);
- an image similarity (`AnswerSimilarity`): the cosine of each answer with the image in the
  space of a dual encoder (MMP) that was trained on captions. The head predicts its weight,
  since "What animal is this?" needs it more than "Is it new?".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyglance.models.projection_heads import ProjectionHeads, ProjectionHeadsConfig
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import Regions, Text

_INITIAL_WEIGHT = 0.1
"""Weight of one standard deviation of similarity before training."""
_MIN_STD = 0.01
"""Bounds the scale of an answer that is equally similar to all images."""


class AnswerSimilarity(nn.Module):
    """Similarity of each answer to an image, normalised by its mean and deviation over images."""

    answer_vectors: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, config: ProjectionHeadsConfig, answers: int) -> None:
        super().__init__()
        self.projection_heads = ProjectionHeads(config).requires_grad_(False)
        self.register_buffer("answer_vectors", torch.zeros(answers, config.width))
        self.register_buffer("mean", torch.zeros(answers))
        self.register_buffer("std", torch.ones(answers))

    @torch.no_grad()
    def initialise(self, heads: ProjectionHeads, answers: Tensor, images: Tensor) -> None:
        """Copy a dual encoder's heads and measure how similar answers are to images in general.

        Args:
            heads: the projection heads of a trained dual encoder.
            answers: ``(answers, width)`` unit vectors.
            images: ``(images, width)`` unit vectors of a sample of images.
        """
        self.projection_heads.load_state_dict(heads.state_dict())
        self.answer_vectors.copy_(answers)
        similarities = images @ answers.T
        self.mean.copy_(similarities.mean(0))
        self.std.copy_(similarities.std(0, correction=0).clamp_min(_MIN_STD))

    def forward(self, regions: Regions) -> Tensor:
        """Return ``(images, answers)``, in standard deviations from each answer's mean."""
        # In full precision: answers differ by little.
        with torch.autocast(regions.features.device.type, enabled=False):
            images = self.projection_heads.encode_images(regions.features.float(), regions.packing)
            similarity: Tensor = (images @ self.answer_vectors.T - self.mean) / self.std
        return similarity


class VQAModel(nn.Module):
    """UC2 with a classifier over answers."""

    def __init__(
        self,
        cross_encoder: UC2,
        answers: int,
        *,
        head_width: int | None = None,
        dropout: float = 0.0,
        answer_embeddings: bool = True,
        similarity: ProjectionHeadsConfig | None = None,
    ) -> None:
        """Build the model.

        Args:
            cross_encoder: encodes question and image.
            answers: the number of classes.
            head_width: of the head's inner layer; None for twice the hidden size.
            dropout: on the head's input.
            answer_embeddings: compare a predicted vector with one of each answer; False for
                the paper's classifier alone.
            similarity: adds an `AnswerSimilarity` of this shape.
        """
        super().__init__()
        self.cross_encoder = cross_encoder
        encoder = cross_encoder.config.encoder
        width, eps = encoder.hidden_size, encoder.embedding_eps
        self.head_width = 2 * width if head_width is None else head_width
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(cross_encoder.config.pooled_size, self.head_width),
            nn.GELU(),
            nn.LayerNorm(self.head_width, eps),
            nn.Linear(self.head_width, answers),
        )
        self.answer_projection = nn.Linear(self.head_width, width) if answer_embeddings else None
        self.answer_embeddings = (
            nn.Parameter(torch.zeros(answers, width)) if answer_embeddings else None
        )
        for layer in (*self.head, self.answer_projection):
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.similarity = None if similarity is None else AnswerSimilarity(similarity, answers)
        if similarity is not None:
            self.similarity_weight = nn.Linear(self.head_width, 1)
            nn.init.zeros_(self.similarity_weight.weight)
            nn.init.constant_(self.similarity_weight.bias, _INITIAL_WEIGHT)

    @torch.no_grad()
    def initialise_head(
        self, mean_targets: Tensor | None, answer_embeddings: Tensor | None = None
    ) -> None:
        """Let the untrained head predict each answer's mean target, if they are given.

        Nearly all of hundreds of answers are wrong; learning that much would take the first
        hundreds of steps (Lin et al. 2017, "Focal loss", section 3.3). ``answer_embeddings``,
        ``(answers, hidden_size)``, are centred and scaled to unit length.
        """
        if answer_embeddings is not None and self.answer_embeddings is not None:
            centred = answer_embeddings - answer_embeddings.mean(0)
            self.answer_embeddings.copy_(nn.functional.normalize(centred, dim=1))
        if mean_targets is None:
            return
        classifier = self.head[-1]
        assert isinstance(classifier, nn.Linear)
        classifier.bias.copy_(torch.logit(mean_targets.clamp(1e-4, 1 - 1e-4)))

    @torch.no_grad()
    def fold_answer_embeddings(self) -> None:
        """Add the answer embeddings to the classifier, in place; the logits stay the same.

        Both are linear in the head's inner layer, so that one matrix does for two.
        """
        if self.answer_projection is None or self.answer_embeddings is None:
            return
        classifier = self.head[-1]
        assert isinstance(classifier, nn.Linear)
        embeddings, projection = self.answer_embeddings, self.answer_projection
        classifier.weight.add_(embeddings @ projection.weight)
        classifier.bias.add_(embeddings @ projection.bias)
        self.answer_projection = self.answer_embeddings = None

    def forward(self, questions: Text, regions: Regions) -> Tensor:
        """Return ``(questions, answers)`` logits; the n-th question is about the n-th image.

        The last layer is computed for <s> alone, the only vector in use.
        """
        model = self.cross_encoder
        *layers, classifier = self.head
        hidden = model.pooler(model.encode_pair(questions, model.embed_regions(regions)))
        for layer in layers:
            hidden = layer(hidden)
        logits: Tensor = classifier(hidden)
        if self.answer_projection is not None and self.answer_embeddings is not None:
            logits = logits + self.answer_projection(hidden) @ self.answer_embeddings.T
        if self.similarity is not None:
            logits = logits + self.similarity_weight(hidden) * self.similarity(regions)
        return logits
