"""An MLP with several members, which share its layers: an ensemble in one network."""

import torch
from torch import Tensor, nn

from distrain.models.blocks.block import Block
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Flat, Shape, Value, Vectors, flat, some_width


class MemberMLP(Block):
    """Applies an MLP once per member; the members differ by factors of its inputs and outputs.

    A member multiplies each input value by its own factor, and each output value by another one.
    All factors are learnt. Those of the inputs begin as random numbers from the normal
    distribution, those of the outputs as 1. With the shared head of `MemberTask`, this is a variant
    of TabM-mini (Gorishniy et al., arXiv:2410.24210, section 3.3), in which members have no factors
    of outputs, but heads of their own.

    Shape:
        any flat shape to `[rows, members, widths[-1]]`.
    """

    def __init__(self, mlp: MLPBlock, members: int):
        super().__init__()
        self.mlp = mlp
        self.members = members

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        # The same numbers as `torch.randn`, which would load sympy (0.4 s) on the meta device.
        self.of_inputs = nn.Parameter(torch.normal(0.0, 1.0, (self.members, width)))
        output = self.mlp.attach(Flat(width))
        self.of_outputs = nn.Parameter(torch.ones(self.members, output.width))
        return Vectors(self.members, output.width)

    def forward(self, value: Value) -> Tensor:
        rows = flat(value).unsqueeze(1) * self.of_inputs
        output = flat(self.mlp(rows.flatten(0, 1)))
        return output.view(rows.shape[0], self.members, output.shape[1]) * self.of_outputs
