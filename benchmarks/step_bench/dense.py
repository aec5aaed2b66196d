"""The dense parts in plain torch for the peers, with the same layers and sizes as distrain's."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

NUM_COLUMNS = 26
NUM_CONTINUOUS = 13
HIDDEN = (128, 128, 128)
BOTTOM, TOP = (128, 64), (64, 128, 256)
CROSSES, DEEP = 3, (128, 128)
LR = 0.01


def mlp_dense(dim: int) -> Any:
    """Return the MLP of the notebooks: from `parts`, each `[rows, width]`, to logits `[rows]`.

    The first layer takes the parts one by one (`torch.addmm`), as distrain's does, so a peer whose
    embeddings are one block need not copy them to append the continuous values.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(NUM_COLUMNS * dim + NUM_CONTINUOUS, HIDDEN[0])
            layers: list[nn.Module] = [nn.ReLU(inplace=True)]
            for width_in, width_out in pairwise(HIDDEN):
                layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
            self.rest = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 1))

        def forward(self, parts: Sequence[Any]) -> Any:
            weights = self.first.weight.split([part.shape[1] for part in parts], dim=1)
            hidden = functional.linear(parts[0], weights[0], self.first.bias)
            for part, weight in zip(parts[1:], weights[1:], strict=True):
                hidden = torch.addmm(hidden, part, weight.t())
            return self.rest(hidden).squeeze(1)

    return Mlp()


def loss_of(logits: Any, label: Any) -> Any:
    """Return the binary cross-entropy, the mean over the rows."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(logits, label)
