"""Layers shared by several tasks: mixtures of experts, weighted by gates."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.functional import linear_over
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Branches, Shape, Value, flat, flat_parts, some_width


class _Experts(Block):
    """Networks with the same layers that read the same input; returns `[rows, experts, width]`."""

    def __init__(self, count: int, hidden: Sequence[int]):
        super().__init__()
        self.networks = nn.ModuleList(MLPBlock(hidden) for _ in range(count))

    def build(self, input_shape: Shape) -> Shape:
        for network in self.networks:
            assert isinstance(network, MLPBlock)
            shape = network.attach(input_shape)
        return shape

    def forward(self, value: Value) -> Tensor:
        return torch.stack([flat(network(value)) for network in self.networks], dim=1)


def _mixed(gate: nn.Module, value: Value, experts: Tensor) -> Tensor:
    """Return the sum of the experts' outputs, weighted by a gate's softmax: `[rows, width]`.

    `experts` is `[rows, experts, width]`.
    """
    assert isinstance(gate, nn.Linear)
    shares = linear_over(gate, flat_parts(value)).softmax(dim=1)
    return (shares[:, :, None] * experts).sum(1)


def _check(names: Sequence[str], hidden: Sequence[int], who: str, **counts: int) -> None:
    counts |= {"names of tasks": len(names), "layers in an expert": len(hidden)}
    few = ", ".join(f"{count} {name}" for name, count in counts.items() if count < 1)
    if few:
        raise ModelError(f"a {who} cannot have {few}", hint="It needs one or more of each.")


class MMoEBlock(Block):
    """Experts that are weighted by each task with its own gate: multi-gate mixture of experts.

    With E_i(x) the experts, task k has

        f_k(x) = sum over i of softmax(W_k x)_i E_i(x)

    (Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018, eq. 5 to 7). Gates have no bias.

    Args:
        names: Names of the tasks.
        experts: Number of experts.
        hidden: Layer widths of each expert, which end in an activation.

    Shape:
        any flat shape to branches of the names, each `[rows, hidden[-1]]`.

    Raises:
        ModelError: There are no names, no experts, or no layers.

    >>> from distrain.models.shapes import Flat
    >>> block = MMoEBlock(["click", "price"], experts=3, hidden=[8, 4])
    >>> str(block.attach(Flat(5)))
    '{click: [rows, 4], price: [rows, 4]}'
    """

    def __init__(self, names: Sequence[str], experts: int = 8, hidden: Sequence[int] = (64,)):
        super().__init__()
        _check(names, hidden, "MMoEBlock", experts=experts)
        self.names = tuple(names)
        self.experts = _Experts(experts, hidden)
        self.count = experts

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        shape = self.experts.attach(input_shape)
        self.gates = nn.ModuleList(nn.Linear(width, self.count, bias=False) for _ in self.names)
        return Branches(dict.fromkeys(self.names, shape))

    def forward(self, value: Value) -> dict[str, Value]:
        experts = self.experts(value)
        pairs = zip(self.names, self.gates, strict=True)
        return {name: _mixed(gate, value, experts) for name, gate in pairs}


class PLEBlock(Block):
    """Task-specific and shared experts in each layer: progressive layered extraction.

    In each layer, x_k is the input of task k and x_s the input of the shared experts. With S_k(x)
    the outputs of the experts of task k (over x_k) and of the shared experts (over x_s),

        g_k(x) = softmax(W_k x_k) S_k(x)

    is the next layer's x_k. The next layer's x_s is computed likewise, with a gate over all experts
    of all tasks; the last layer has no such gate (Tang et al., "Progressive Layered Extraction
    (PLE)", RecSys 2020, eq. 1 to 5). One layer is the paper's customised gate control. Gates have
    no bias.

    Args:
        names: Names of the tasks.
        layers: Number of layers.
        experts: Number of experts of each task in each layer.
        shared_experts: Number of shared experts in each layer.
        hidden: Layer widths of each expert, which end in an activation.

    Shape:
        any flat shape to branches of the names, each `[rows, hidden[-1]]`.

    Raises:
        ModelError: There are no names, no experts, or no layers.

    >>> from distrain.models.shapes import Flat
    >>> block = PLEBlock(["click", "price"], layers=2, hidden=[4])
    >>> str(block.attach(Flat(5)))
    '{click: [rows, 4], price: [rows, 4]}'
    """

    def __init__(
        self,
        names: Sequence[str],
        layers: int = 2,
        experts: int = 2,
        shared_experts: int = 2,
        hidden: Sequence[int] = (64,),
    ):
        super().__init__()
        counts = {"layers": layers, "experts": experts, "shared experts": shared_experts}
        _check(names, hidden, "PLEBlock", **counts)
        self.names = tuple(names)
        last = layers - 1
        self.layers = nn.ModuleList(
            _PLELayer(self.names, experts, shared_experts, hidden, number == last)
            for number in range(layers)
        )

    def build(self, input_shape: Shape) -> Shape:
        some_width(input_shape, self.label)
        shapes: Shape = Branches(dict.fromkeys([*self.names, ""], input_shape))
        for layer in self.layers:
            assert isinstance(layer, _PLELayer)
            shapes = layer.attach(shapes)
        return shapes

    def forward(self, value: Value) -> Value:
        values: Value = dict.fromkeys([*self.names, ""], value)
        for layer in self.layers:
            values = layer(values)
        return values


class _PLELayer(Block):
    """One layer of `PLEBlock`, from branches to branches: one for each task, "" for shared experts.

    The last layer returns no branch "".
    """

    def __init__(
        self, names: tuple[str, ...], own: int, shared: int, hidden: Sequence[int], is_last: bool
    ):
        super().__init__()
        self.names = names
        self.gated = names if is_last else (*names, "")
        self.experts = nn.ModuleList(_Experts(own, hidden) for _ in names)
        self.shared = _Experts(shared, hidden)
        self.sizes = dict.fromkeys(names, own + shared) | {"": own * len(names) + shared}

    def build(self, input_shape: Shape) -> Shape:
        assert isinstance(input_shape, Branches)
        shape = self.shared.attach(input_shape.shapes[""])
        for name, experts in zip(self.names, self.experts, strict=True):
            assert isinstance(experts, _Experts)
            experts.attach(input_shape.shapes[name])
        self.gates = nn.ModuleList(
            nn.Linear(input_shape.shapes[name].width, self.sizes[name], bias=False)
            for name in self.gated
        )
        return Branches(dict.fromkeys(self.gated, shape))

    def forward(self, value: Value) -> dict[str, Value]:
        assert isinstance(value, dict)
        shared = self.shared(value[""])
        pairs = zip(self.names, self.experts, strict=True)
        own = {name: experts(value[name]) for name, experts in pairs}
        seen = {name: torch.cat([own[name], shared], dim=1) for name in self.names}
        if "" in self.gated:
            seen[""] = torch.cat([*own.values(), shared], dim=1)
        gates = zip(self.gated, self.gates, strict=True)
        return {name: _mixed(gate, value[name], seen[name]) for name, gate in gates}
