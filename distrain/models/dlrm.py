"""The deep learning recommendation model (arXiv:1906.00091)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from distrain.models.blocks import DotInteraction, mlp


class DlrmDense(nn.Module):
    """Bottom MLP, dot products of all pairs of vectors, top MLP, one logit.

    The continuous columns pass through the bottom MLP and become one more vector beside the
    embeddings. The top MLP sees that vector and the dot products of all pairs. Every layer of both
    MLPs ends in a ReLU.

    Where `bottom`'s last width is not the embeddings', a linear layer without ReLU brings it there;
    the defaults (64 wide above embeddings of 16) need it, the Merlin notebook's 64 above 64 does
    not. Without continuous columns there is no bottom MLP: the embeddings interact by themselves.

    Args:
        num_embeddings: How many embeddings a row has.
        embedding_dim: Their width.
        num_continuous: How many continuous columns there are; 0 is fine with 2 embeddings or more.
        bottom: The bottom MLP's widths.
        top: The top MLP's widths.

    Shape:
        embedded: one group, `[rows, num_embeddings, embedding_dim]`;
        continuous: `[rows, num_continuous]`; output: `[rows]`, logits.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        num_continuous: int,
        bottom: Sequence[int],
        top: Sequence[int],
    ):
        super().__init__()
        self.bottom: nn.Sequential | None = None
        if num_continuous:
            self.bottom = mlp(num_continuous, *bottom)
            last = (num_continuous, *bottom)[-1]
            if last != embedding_dim:
                self.bottom.append(nn.Linear(last, embedding_dim))
        self.interaction = DotInteraction(num_embeddings + (self.bottom is not None))
        deep_width = 0 if self.bottom is None else embedding_dim
        widths = (deep_width + self.interaction.num_pairs, *top)
        self.top = mlp(*widths)
        self.logit = nn.Linear(widths[-1], 1)

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor) -> Tensor:
        """The logits, `[rows]`."""
        (vectors,) = embedded
        if self.bottom is None:
            inputs = self.interaction(vectors)
        else:
            deep = self.bottom(continuous)
            pairs = self.interaction(torch.cat([deep.unsqueeze(1), vectors], dim=1))
            inputs = torch.cat([deep, pairs], dim=1)
        logits: Tensor = self.logit(self.top(inputs))
        return logits.squeeze(1)
