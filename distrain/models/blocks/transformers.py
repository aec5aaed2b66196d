"""Transformer layers over events, with their target among them (BST) or after them (SASRec)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.blocks.block import Block, Chain
from distrain.models.blocks.events import EventBlock, of_rows, padded
from distrain.models.blocks.functional import activation_layer
from distrain.models.shapes import Features, Flat, Shape, flat, some_width


class _Layer(nn.Module):
    """Multi-head self-attention, then two linear layers, each beside its input (1706.03762)."""

    def __init__(
        self, width: int, heads: int, activation: str, dropout: float, norm_first: bool
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm_first = norm_first
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.joined = nn.Linear(width, width, bias=False)
        self.feed = nn.Sequential(
            nn.Linear(width, width), activation_layer(activation), nn.Linear(width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        first, second = self.norms
        if self.norm_first:
            tokens = tokens + self.drop(self._attended(first(tokens), mask, is_causal))
            tokens = tokens + self.drop(self.feed(second(tokens)))
            return tokens
        tokens = first(tokens + self.drop(self._attended(tokens, mask, is_causal)))
        result: Tensor = second(tokens + self.drop(self.feed(tokens)))
        return result

    def _attended(self, tokens: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        of_heads = self.qkv(tokens).unflatten(2, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = of_heads.unbind(2)
        found = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal
        )
        joined: Tensor = self.joined(found.transpose(1, 2).flatten(2))
        return joined


class _Transformer(EventBlock):
    """What the transformers have in common: layers, and learnt vectors of positions.

    Args:
        heads: Of each layer; they share the vectors' width.
        dropout: Of each layer's two outputs, and of the tokens.

    Raises:
        ModelError: Besides those of `EventBlock`, the width is no multiple of `heads`.
    """

    activation = "relu"
    norm_first = True
    positions_beside_events = 0

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        heads: int = 1,
        layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__(events, targets)
        self.heads = heads
        self.num_layers = layers
        self.drop = nn.Dropout(dropout)

    def build_layers(self, given: Shape) -> int:
        width = self.build_vectors(given)
        check_heads(self.label, width, self.heads)
        positions = self.max_length + self.positions_beside_events
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.layers = nn.ModuleList(
            _Layer(width, self.heads, self.activation, self.drop.p, self.norm_first)
            for _ in range(self.num_layers)
        )
        return width


class TargetTransformer(_Transformer):
    """The target and its events through transformer layers, side by side (arXiv:1905.06874).

    The target is the first token, the newest event the second, and so on; what they give stands
    side by side, with zeros for events that are not there. A position's vector is added to its
    token; the paper makes it of the time between event and target.

    Shape:
        columns with such events to `[rows, (max_length + 1) * width]`.
    """

    activation = "leaky_relu"
    norm_first = False
    positions_beside_events = 1

    def build(self, given: Shape) -> Shape:
        return Flat((self.build_layers(given)) * (self.max_length + 1))

    def forward(self, value: Features) -> Tensor:
        target, events, offsets = self.vectors(value)
        length = self.longest(offsets)
        newest = padded(events, offsets, length, newest_first=True)
        tokens = torch.cat([target[:, None], newest], dim=1) + self.positions[: length + 1]
        there = torch.arange(length + 1, device=offsets.device) <= offsets.diff()[:, None]
        tokens = self.drop(tokens)
        for layer in self.layers:
            tokens = layer(tokens, there[:, None, None], False)
        tokens = tokens * there[..., None]
        return functional.pad(tokens, (0, 0, 0, self.max_length - length)).flatten(1)


class _CausalTransformer(_Transformer):
    """Layers in which each event sees itself and the older ones (arXiv:1808.09781).

    A position's vector is added to its event, the last one to the oldest.
    """

    def build_layers(self, given: Shape) -> int:
        width = super().build_layers(given)
        self.norm = nn.LayerNorm(width)
        return width

    def states(self, value: Features, *, every: bool) -> tuple[Tensor, Tensor]:
        """The target's vector, and the newest event's state, `[rows, 1, width]`.

        With `every` those of all events, newest first, `[rows, length, width]`. Of events that are
        not there they are zeros.
        """
        target, events, offsets = self.vectors(value)
        length = self.longest(offsets)
        lengths = offsets.diff().clamp(max=length)[:, None].long()
        ages = (lengths - 1 - torch.arange(length, device=offsets.device)).clamp(min=0)
        tokens = padded(events, offsets, length) + functional.embedding(ages, self.positions)
        tokens = self.drop(tokens)
        # Padding stands after a row's events, so none of them sees it.
        for layer in self.layers:
            tokens = layer(tokens, None, True)
        places = torch.arange(length if every else 1, device=offsets.device)
        rows = torch.arange(target.shape[0], device=offsets.device)[:, None]
        found = of_rows(tokens.flatten(0, 1), rows * length + (lengths - 1 - places).clamp(min=0))
        return target, self.norm(found) * (lengths > places)[..., None]


class CausalTransformer(_CausalTransformer):
    """The newest event's vector after causal layers, and its product with the target's.

    Each event sees itself and the older ones (arXiv:1808.09781); the target sees none, so the sum
    of the product is the paper's score. A row without events gets zeros. A position's vector is
    added to its event, the last one to the oldest.

    Shape:
        columns with such events to `[rows, 2 * width]`.
    """

    def build(self, given: Shape) -> Shape:
        return Flat(2 * self.build_layers(given))

    def forward(self, value: Features) -> Tensor:
        target, states = self.states(value, every=False)
        state = states[:, 0]
        return torch.cat([state, state * target], dim=1)


class HistoryVector(_CausalTransformer):
    """The newest event's vector after causal layers: what a user is like, to find items for.

    A row without events gets zeros.

    Args:
        every: In training also the older events' vectors, newest first, as many as the longest of
            the batch's rows has events.

    Shape:
        columns with such events to `[rows, width]`.
    """

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        heads: int = 1,
        layers: int = 1,
        dropout: float = 0.0,
        *,
        every: bool = False,
    ):
        super().__init__(events, targets, heads, layers, dropout)
        self.every = every

    def build(self, given: Shape) -> Shape:
        return Flat(self.build_layers(given))

    def forward(self, value: Features) -> Tensor:
        return self.states(value, every=self.every and self.training)[1].flatten(1)


class NextVector(EventBlock):
    """The target's vector: of the item that comes after a row's events.

    Args:
        every: In training also the vectors of the items that came after the older events, at the
            places of `HistoryVector`.

    Shape:
        columns with such events to `[rows, width]`.
    """

    def __init__(self, events: str, targets: Mapping[str, str], *, every: bool = False):
        super().__init__(events, targets)
        self.every = every

    def build(self, given: Shape) -> Shape:
        return Flat(self.build_fields(given))

    def forward(self, value: Features) -> Tensor:
        target, events, offsets = self.fields(value)
        if not (self.every and self.training):
            return target
        newest = padded(events, offsets, self.longest(offsets), newest_first=True)
        return torch.cat([target[:, None], newest[:, :-1]], dim=1).flatten(1)


class ItemTower(Block):
    """A row's item through some layers; in training those drawn for the row too, side by side.

    Args:
        item: Gives the embeddings of the row's item, as wide as its table.
        above: The layers; none for embeddings as they are.

    Shape:
        columns to what the layers give.
    """

    def __init__(self, item: Block, above: Block | None = None):
        super().__init__()
        self.item = item
        self.above = Chain([] if above is None else [above])

    def build(self, given: Shape) -> Shape:
        found = self.item.attach(given)
        return Flat(some_width(self.above.attach(Flat(some_width(found, self.label))), self.label))

    def forward(self, value: Features) -> Tensor:
        item: Tensor = self.above(flat(self.item(value)))
        if value.drawn is None or not (self.training and len(item)):
            return item
        drawn: Tensor = self.above(value.drawn)
        return torch.cat([item, drawn.reshape(len(item), -1)], dim=1)


def check_heads(label: str, width: int, heads: int) -> None:
    if width % heads:
        raise ModelError(
            f"{label} has {heads} heads, which do not divide the events' width {width}",
            hint="The width is that of the target's embeddings, side by side.",
        )
