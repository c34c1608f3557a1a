"""SMALR's pre-training of a latent vocabulary: which words share a token (section 3.1)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ChoiceGradient = Literal["straight-through", "weighted"]


class LatentVocabulary(nn.Module):
    """Latent vectors, and a layer that scores them for a word from its pretrained vector.

    A word is represented by its best-scoring token. In training, with probability
    ``explore``, it is one of its best ``candidates`` at random instead, "so that spurious
    mappings are not learned". One draw holds for all occurrences of a word in a batch, so that
    each trial gets the whole batch's evidence about the word.

    The paper leaves open how gradients pass a hard choice. Over the softmax of the candidates'
    scores,

    - ``weighted`` multiplies the chosen vector by its probability, as sparse experts do;
    - ``straight-through`` uses the chosen vector unscaled, and the gradient of the mean over
      all candidates (Bengio et al. 2013). On the toy data words then collapse to few tokens,
      and recall is less than half.
    """

    features: Tensor

    def __init__(
        self,
        features: Tensor,
        *,
        tokens: int = 40_000,
        width: int = 512,
        explore: float = 0.2,
        candidates: int = 20,
        gradient: ChoiceGradient = "weighted",
    ) -> None:
        """Build the scoring layer and random latent vectors.

        Args:
            features: pretrained word vectors, ``(words, vector size)``.
            tokens: the number of latent tokens.
            width: the size of a latent vector.
            explore: the probability of a random candidate in training.
            candidates: how many of the best tokens that is drawn from.
            gradient: how gradients pass the choice.
        """
        super().__init__()
        self.explore, self.candidates = explore, min(candidates, tokens)
        self.gradient: ChoiceGradient = gradient
        self.register_buffer("features", features, persistent=False)
        self.scores = nn.Linear(features.shape[1], tokens)
        self.latent = nn.Parameter(torch.randn(tokens, width) * width**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the latent vector of each word id, ``(words, width)``."""
        # There are many tokens to score: each word of a batch is scored once.
        words, inverse = torch.unique(ids, return_inverse=True)
        # Never in half precision: many tokens score alike to three digits.
        with torch.autocast(ids.device.type, enabled=False):
            scores, tokens = self.scores(self.features[words]).topk(self.candidates)
        choice = self.choose(len(words))
        chosen = F.one_hot(choice, self.candidates).to(scores.dtype)
        probability = scores.softmax(1)
        if self.gradient == "weighted":
            mixture = chosen * probability
        else:
            mixture = chosen + (probability - probability.detach())
        rows = torch.einsum("wc,wcd->wd", mixture, self.latent[tokens])
        return F.embedding(inverse, rows)

    def choose(self, words: int) -> Tensor:
        """Draw a candidate for each of ``words`` words, ``(words,)``; 0 is the best."""
        device = self.latent.device
        if not self.training:
            return torch.zeros(words, dtype=torch.int64, device=device)
        random = torch.randint(self.candidates, (words,), device=device)
        return torch.where(torch.rand(words, device=device) < self.explore, random, 0)

    def assign(self) -> Tensor:
        """Return the best-scoring token of every word of the lexicon, ``(words,)``."""
        tokens: Tensor = self.chooser()(self.features)
        return tokens

    def chooser(self) -> TokenChooser:
        """Return the scoring layer, frozen, to assign tokens to words added later."""
        return TokenChooser(self.scores.weight.detach(), self.scores.bias.detach())


class TokenChooser(nn.Module):
    """A frozen scoring layer that assigns latent tokens to words by their vectors.

    The rare words of a language added later get their tokens from it; their vectors must be of
    the same space. Checkpoints do not hold it: a resumed run has it from pre-training.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def only(self, tokens: Tensor) -> TokenChooser:
        """Return a chooser among these tokens, renumbered from 0."""
        return TokenChooser(self.weight[tokens], self.bias[tokens])

    @torch.no_grad()
    def forward(self, vectors: Tensor, block: int = 4096) -> Tensor:
        """Return the token of each vector, ``(n,)``, in blocks to bound the memory."""
        parts = torch.split(vectors.to(self.weight), block)
        return torch.cat([F.linear(part, self.weight, self.bias).argmax(1) for part in parts])
