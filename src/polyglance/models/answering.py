"""Questions about pictures, answered by a class each: a head on the <s> of UC2.

UC2 takes visual question answering for "a multi-label classification problem, where the
model predicts answer from the candidate pool" (Zhou et al. 2021, section 4): the
question and the picture's regions are read as one sequence, and its first vector goes
through a head of two layers, as in UNITER, whose code theirs goes on from. The paper
trains a model a language, since answers differ; here the answers of all languages are
classes of one head, and whoever knows the language of a question looks at its classes.

Beside the head of classes, which the paper has, another tells what the answer means: a
vector, compared with the text encoder's own of each answer. Where "sofa" was answered
twice in training and "couch" ten times, the second helps the first.

A third looks for the answers in the picture. MMP, whose towers UC2 may begin with, has
learned from captions how near a word is to a picture; `Sight` keeps that as it is, and what
was read says how much it counts: "What animal is this?" asks for more of it than "Is it new?".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyglance.models.meeting import Meeting, MeetingConfig
from polyglance.models.uc2 import UC2
from polyglance.nn.joint import Regions, Text, first_of_each, joined

_FIRST_TRUST = 0.1
"""How much a standard deviation of nearness counts before anything was learned."""
_LEAST_SPREAD = 0.01
"""An answer that is equally near to all pictures tells nothing of one."""


class Sight(nn.Module):
    """How near each answer is to a picture, next to how near it is to pictures in general."""

    names: Tensor
    usual: Tensor
    spread: Tensor

    def __init__(self, config: MeetingConfig, answers: int) -> None:
        super().__init__()
        self.meeting = Meeting(config).requires_grad_(False)
        self.register_buffer("names", torch.zeros(answers, config.width))
        self.register_buffer("usual", torch.zeros(answers))
        self.register_buffer("spread", torch.ones(answers))

    @torch.no_grad()
    def begin_with(self, meeting: Meeting, names: Tensor, pictures: Tensor) -> None:
        """``names`` are unit vectors of answers, ``pictures`` of what is seen in general."""
        self.meeting.load_state_dict(meeting.state_dict())
        self.names.copy_(names)
        near = pictures @ names.T
        self.usual.copy_(near.mean(0))
        self.spread.copy_(near.std(0, correction=0).clamp_min(_LEAST_SPREAD))

    def forward(self, regions: Regions) -> Tensor:
        """In standard deviations, a row a picture."""
        # In full precision: what tells answers apart are small differences.
        with torch.autocast(regions.features.device.type, enabled=False):
            pictures = self.meeting.pictures(regions.features.float(), regions.packing)
            near: Tensor = (pictures @ self.names.T - self.usual) / self.spread
        return near


class Answering(nn.Module):
    """UC2 with a head of answers."""

    def __init__(
        self, reader: UC2, answers: int, *, dropout: float = 0.0, sight: MeetingConfig | None = None
    ) -> None:
        """``answers`` are the classes; ``dropout`` falls on what the head reads.

        With a ``sight`` answers are looked for in the picture as well.
        """
        super().__init__()
        self.reader = reader
        width, eps = reader.config.encoder.width, reader.config.encoder.norm_eps
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.LayerNorm(2 * width, eps),
            nn.Linear(2 * width, answers),
        )
        self.meaning = nn.Linear(2 * width, width)
        self.meanings = nn.Parameter(torch.zeros(answers, width))
        for layer in (*self.head, self.meaning):
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.sight = None if sight is None else Sight(sight, answers)
        if sight is not None:
            self.trust = nn.Linear(2 * width, 1)
            nn.init.zeros_(self.trust.weight)
            nn.init.constant_(self.trust.bias, _FIRST_TRUST)

    @torch.no_grad()
    def begin_with(self, worth: Tensor, meanings: Tensor | None = None) -> None:
        """Let the untrained head say of each answer what it is worth on average.

        Nearly all of hundreds of answers are wrong; to learn that much would take the
        first hundreds of steps (Lin et al. 2017, "Focal loss", section 3.3). ``meanings`` are
        vectors of answers, of which it matters where they differ.
        """
        if meanings is not None:
            apart = meanings - meanings.mean(0)
            self.meanings.copy_(nn.functional.normalize(apart, dim=1))
        last = self.head[-1]
        assert isinstance(last, nn.Linear)
        last.bias.copy_(torch.logit(worth.clamp(1e-4, 1 - 1e-4)))

    def forward(self, questions: Text, regions: Regions) -> Tensor:
        """Logits of all answers, a row a question; the n-th question is about the n-th picture.

        The last layer is computed for <s> alone, the one vector that is read.
        """
        reader = self.reader
        pairs = joined(reader.embed_text(questions), reader.embed_regions(regions))
        *layers, classes = self.head
        found = reader.pooler(first_of_each(reader.encoder, pairs))
        for layer in layers:
            found = layer(found)
        logits: Tensor = classes(found) + self.meaning(found) @ self.meanings.T
        if self.sight is not None:
            logits = logits + self.trust(found) * self.sight(regions)
        return logits
