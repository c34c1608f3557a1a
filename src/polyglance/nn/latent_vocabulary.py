"""Learning which words share a token: SMALR's pre-training of a latent vocabulary (section 3.1)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ChoiceGradient = Literal["straight-through", "weighted"]


class LatentVocabulary(nn.Module):
    """Latent vectors, and a layer that scores them for a word from the word's own features.

    A word becomes the token that scores best. In training, with probability
    ``explore``, it becomes one of its best ``candidates`` at random instead, "so that
    spurious mappings are not learned". The draw is one for all places of a word in a
    batch, which meets each try with all that the batch says of the word.

    The paper leaves open how the scores of a hard choice learn. Over the softmax of
    the candidates' scores,

    - ``weighted`` takes the chosen vector times its share, as sparse experts do;
    - ``straight-through`` takes the chosen vector as it is, and backwards acts as if
      it had been the mean of all candidates (Bengio et al. 2013). In the toy world
      the words crowd into few tokens under it, and recall is less than half.
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
        """``features`` are the word vectors, one row a word of the lexicon."""
        super().__init__()
        self.explore, self.candidates = explore, min(candidates, tokens)
        self.gradient: ChoiceGradient = gradient
        self.register_buffer("features", features, persistent=False)
        self.scores = nn.Linear(features.shape[1], tokens)
        self.latent = nn.Parameter(torch.randn(tokens, width) * width**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """The latent vector of each word, of the shape ``(words, width)``."""
        # Scores of all tokens are many: each word of a batch is scored once.
        words, again = torch.unique(ids, return_inverse=True)
        # Never in half precision: tokens that score alike to three digits are many.
        with torch.autocast(ids.device.type, enabled=False):
            scores, tokens = self.scores(self.features[words]).topk(self.candidates)
        place = self.choose(len(words))
        chosen = F.one_hot(place, self.candidates).to(scores.dtype)
        share = scores.softmax(1)
        if self.gradient == "weighted":
            mixture = chosen * share
        else:
            mixture = chosen + (share - share.detach())
        rows = torch.einsum("wc,wcd->wd", mixture, self.latent[tokens])
        return F.embedding(again, rows)

    def choose(self, words: int) -> Tensor:
        """For each of so many words, which of its candidates it becomes; 0 is the best."""
        device = self.latent.device
        if not self.training:
            return torch.zeros(words, dtype=torch.int64, device=device)
        anyone = torch.randint(self.candidates, (words,), device=device)
        return torch.where(torch.rand(words, device=device) < self.explore, anyone, 0)

    def assign(self) -> Tensor:
        """The token of every word of the lexicon, by the best score."""
        tokens: Tensor = self.chooser()(self.features)
        return tokens

    def chooser(self) -> TokenChooser:
        """What was learned of words, to be kept for those that come later."""
        return TokenChooser(self.scores.weight.detach(), self.scores.bias.detach())


class TokenChooser(nn.Module):
    """Which token a word becomes, told from its vector; it learns no more.

    A language that comes later has rare words of its own, which are assigned by what
    the others taught. Their vectors must be of the same space. Checkpoints do not hold
    it: pre-training has left the same each time that a run goes on.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def only(self, tokens: Tensor) -> TokenChooser:
        """A choice among these tokens, which are counted anew."""
        return TokenChooser(self.weight[tokens], self.bias[tokens])

    @torch.no_grad()
    def forward(self, vectors: Tensor, block: int = 4096) -> Tensor:
        """The token of each vector, so many at a time: there are many scores."""
        parts = torch.split(vectors.to(self.weight), block)
        return torch.cat([F.linear(part, self.weight, self.bias).argmax(1) for part in parts])
