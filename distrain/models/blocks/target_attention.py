"""Attention of a target over a row's events (DIN), without padding."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Ragged
from distrain.models.blocks.events import EventBlock, of_rows, sum_of_rows
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Features, Flat, Shape


class TargetAttention(EventBlock):
    """The sum of a row's events, each weighed by an MLP of it and the target (arXiv:1706.06978).

    The MLP takes `[q, k, q - k, q * k]` of the target's vector q and the event's k, and its output
    is the weight as it is: without a softmax, as in the paper (section 4.3). A row without events
    gets zeros.

    Args:
        hidden: Widths of the MLP's hidden layers.
        activation: One of `ACTIVATIONS`, or "dice".

    Shape:
        columns with such events to `[rows, width]`, as wide as the target's embeddings.
    """

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        hidden: Sequence[int] = (80, 40),
        activation: str = "dice",
    ):
        super().__init__(events, targets)
        self.weigh = MLPBlock([*hidden, 1], activation, no_activation_last_layer=True)

    def build(self, given: Shape) -> Shape:
        width = self.build_vectors(given)
        self.weigh.attach(Flat(4 * width, self.label))
        return Flat(width)

    def forward(self, value: Features) -> Tensor:
        target, keys, offsets = self.vectors(value)
        first, *others = self.weigh.layers
        assert isinstance(first, nn.Linear)
        of_q, of_k, of_difference, of_product = first.weight.chunk(4, dim=1)
        rows = Ragged(keys, offsets).row_of_values
        # The first layer without copies side by side, and what it makes of q once a row.
        asked = functional.linear(target, of_q + of_difference, first.bias)
        weights = torch.addmm(of_rows(asked, rows), keys, (of_k - of_difference).t())
        weights = torch.addmm(weights, of_rows(target, rows) * keys, of_product.t())
        for layer in others:
            weights = layer(weights)
        return sum_of_rows(weights * keys, offsets)
