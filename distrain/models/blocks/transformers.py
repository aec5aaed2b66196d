"""Transformer layers over a row's events; in BST the target is also a token, in SASRec not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.loader.batch import Ragged
from distrain.models.blocks.block import Block, Chain
from distrain.models.blocks.event_sequences import EventBlock, RowGroups, of_rows, padded, with_last
from distrain.models.blocks.functional import Linear, activation_layer
from distrain.models.shapes import Features, Flat, GroupedRows, Shape, flat, some_width

Queries = Literal["all", "causal", "newest"]
"""Which tokens attend: "all": each token, to all tokens of its row; "causal": each token, to itself
and older tokens; "newest": only the newest token, to all tokens."""


class _Layer(nn.Module):
    """Self-attention, then two linear layers, each with a residual (arXiv:1706.03762)."""

    def __init__(
        self, width: int, heads: int, activation: str, dropout: float, norm_first: bool
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm_first = norm_first
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.joined = nn.Linear(width, width, bias=False)
        self.feed = nn.Sequential(
            Linear(width, width), activation_layer(activation), Linear(width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, groups: RowGroups, queries: Queries) -> Tensor:
        """Return the outputs of all tokens, `[tokens, width]`.

        With the queries "newest", returns only those of each row's newest token, `[rows, width]`.
        """
        first, second = self.norms
        attended = self._attended(first(tokens) if self.norm_first else tokens, groups, queries)
        query_tokens = groups.newest(tokens) if queries == "newest" else tokens
        query_tokens = query_tokens + self.drop(attended)
        if not self.norm_first:
            query_tokens = first(query_tokens)
        fed: Tensor = query_tokens + self.drop(
            self.feed(second(query_tokens) if self.norm_first else query_tokens)
        )
        return fed if self.norm_first else cast(Tensor, second(fed))

    def _attended(self, tokens: Tensor, groups: RowGroups, queries: Queries) -> Tensor:
        width = tokens.shape[1]
        if queries == "newest":
            of_query, of_others = self.qkv.weight.tensor_split([width])
            newest = functional.linear(groups.newest(tokens), of_query)
            query_groups = groups.split(newest[:, None])
            others = groups.pad(functional.linear(tokens, of_others))
        else:
            rows = groups.pad(self.qkv(tokens))
            query_groups = [group[..., :width] for group in rows]
            others = [group[..., width:] for group in rows]
        of_groups = zip(query_groups, others, groups.counts, strict=True)
        outputs = [self._mixed(*group, queries == "causal") for group in of_groups]
        values = groups.join(outputs)[:, 0] if queries == "newest" else groups.unpad(outputs)
        joined: Tensor = self.joined(values)
        return joined

    def _mixed(self, query: Tensor, others: Tensor, counts: Tensor, is_causal: bool) -> Tensor:
        q, k, v = (of_heads(x, self.heads) for x in (query, *others.chunk(2, dim=2)))
        # Padding comes after a row's events, so no event attends to it.
        places = torch.arange(k.shape[2], device=k.device)
        mask = None if is_causal else (places < counts.clamp(min=1)[:, None])[:, None, None]
        mixed = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        return mixed.transpose(1, 2).flatten(2)


class _Transformer(EventBlock):
    """The common part of transformers: layers, and learnt vectors of positions.

    Args:
        heads: Number of heads of each layer, which share the vectors' width.
        layers: Number of transformer layers.
        dropout: The share of values that training sets to 0, in each layer's two outputs and in the
            tokens.

    Raises:
        ModelError: The errors of `EventBlock`; or the width is not a multiple of `heads`.
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

    def build_layers(self, input_shape: Shape) -> int:
        width = self.build_vectors(input_shape)
        check_heads(self.label, width, self.heads)
        positions = self.max_length + self.positions_beside_events
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.layers = nn.ModuleList(
            _Layer(width, self.heads, self.activation, self.drop.p, self.norm_first)
            for _ in range(self.num_layers)
        )
        return width

    def placed(self, tokens: Ragged) -> Tensor:
        """Return the tokens plus the vectors of their positions; position 0 is the newest token."""
        ages = tokens.offsets[1:].long()[tokens.row_of_values]
        ages = ages - 1 - torch.arange(tokens.values.shape[0], device=ages.device)
        ages = ages.clamp(max=self.positions.shape[0] - 1)  # older tokens are never used
        placed: Tensor = self.drop(tokens.values + of_rows(self.positions, ages))
        return placed


class TargetTransformer(_Transformer):
    """Applies transformer layers to the target and its events (arXiv:1905.06874).

    The target is the first token, the newest event the second, and so on. Outputs are concatenated,
    with zeros for missing events. A position's vector is added to its token; the paper derives it
    from the time between event and target.

    Args:
        grouped: Return `GroupedRows`, which omit the zeros of missing events, for an `MLPBlock`
            above.

    Shape:
        columns that include the events to `[rows, (max_length + 1) * width]`.
    """

    activation = "leaky_relu"
    norm_first = False
    positions_beside_events = 1

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        heads: int = 1,
        layers: int = 1,
        dropout: float = 0.0,
        *,
        grouped: bool = False,
    ):
        super().__init__(events, targets, heads, layers, dropout)
        self.grouped = grouped

    def build(self, input_shape: Shape) -> Shape:
        return Flat((self.build_layers(input_shape)) * (self.max_length + 1))

    def forward(self, value: Features) -> Tensor | GroupedRows:
        target, events = self.vectors(value)
        rows = with_last(events, target)
        groups = RowGroups(rows, self.max_length + 1)
        tokens = self.placed(rows)
        for layer in self.layers:
            tokens = layer(tokens, groups, "all")
        if self.grouped and not torch.compiler.is_compiling():
            return groups.side_by_side(tokens)
        return padded(tokens, rows.offsets, self.max_length + 1, newest_first=True).flatten(1)


class _CausalTransformer(_Transformer):
    """Layers in which each event attends to itself and to older events (arXiv:1808.09781).

    A position's vector is added to its event; position 0 is the newest event's.
    """

    def build_layers(self, input_shape: Shape) -> int:
        width = super().build_layers(input_shape)
        self.norm = nn.LayerNorm(width)
        return width

    def states(self, value: Features, *, every: bool) -> tuple[Tensor, Tensor]:
        """Return the target's vector, `[rows, width]`, and the newest event's, `[rows, 1, width]`.

        The latter is the event's *state*, the normalised output of the layers; zeros for a row
        without events. With `every`, the second result has the states of all events, newest first,
        `[rows, length, width]`, with zeros for missing events.
        """
        target, rows = self.vectors(value)
        groups = RowGroups(rows, self.max_length)
        tokens = self.placed(rows)
        *lower, last = self.layers
        for layer in lower:
            tokens = layer(tokens, groups, "causal")
        if every:
            states = self.norm(last(tokens, groups, "causal"))
            return target, padded(states, rows.offsets, self.longest(rows), newest_first=True)
        states = self.norm(last(tokens, groups, "newest")) * (rows.lengths > 0)[:, None]
        return target, states[:, None]


class CausalTransformer(_CausalTransformer):
    """Applies causal layers to the events; returns the newest output, alone and times the target.

    Each event attends to itself and to older events (arXiv:1808.09781), but not to the target. The
    result is the newest event's output, then its product with the target's vector, element by
    element; the sum of the product is the paper's score. A row without events gets zeros. A
    position's vector is added to its event; position 0 is the newest event's.

    Shape:
        columns that include the events to `[rows, 2 * width]`.
    """

    def build(self, input_shape: Shape) -> Shape:
        return Flat(2 * self.build_layers(input_shape))

    def forward(self, value: Features) -> Tensor:
        target, states = self.states(value, every=False)
        state = states[:, 0]
        return torch.cat([state, state * target], dim=1)


class HistoryVector(_CausalTransformer):
    """A user vector for item retrieval: the newest event's output of causal layers.

    A row without events gets zeros. The events' vectors are multiplied by the square root of their
    width, as in the authors' code. Training with dot products keeps embeddings small, and without
    the factor the vectors of positions would dominate them.

    Args:
        every: In training, append the vectors of the older events, newest first, with zeros for
            missing events: the user's vectors before later events.

    Shape:
        columns that include the events to `[rows, width]`. In training with `every`, `[rows, length
        * width]`, with length the largest number of a row's events in the batch.
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

    def build(self, input_shape: Shape) -> Shape:
        self.width = self.build_layers(input_shape)
        return Flat(self.width)

    def vectors(self, value: Features) -> tuple[Tensor, Ragged]:
        target, events = super().vectors(value)
        return target, replace(events, values=events.values * self.width**0.5)

    def forward(self, value: Features) -> Tensor:
        return self.states(value, every=self.every and self.training)[1].flatten(1)


class NextVector(EventBlock):
    """Returns the vector of the target: the item that follows a row's events.

    Args:
        every: In training, append the vectors of the events except the oldest, newest first. Each
            is the item that follows an event of `HistoryVector`, in the same order.

    Shape:
        columns that include the events to `[rows, width]`. In training with `every`, `[rows, length
        * width]`, with length the largest number of a row's events in the batch.
    """

    def __init__(self, events: str, targets: Mapping[str, str], *, every: bool = False):
        super().__init__(events, targets)
        self.every = every

    def build(self, input_shape: Shape) -> Shape:
        return Flat(self.build_fields(input_shape))

    def forward(self, value: Features) -> Tensor:
        target, events = self.fields(value)
        if not (self.every and self.training):
            return target
        length = self.longest(events)
        newest = padded(events.values, events.offsets, length, newest_first=True)
        return torch.cat([target[:, None], newest[:, :-1]], dim=1).flatten(1)


class ItemTower(Block):
    """Applies layers to a row's item, and in training also to the items drawn for the row.

    Args:
        item: The block that returns the embeddings of the row's item.
        above: The layers; without any, the embeddings are returned.

    Shape:
        columns to `[rows, width]`. In training, the outputs for the row's drawn items follow in the
        same row.
    """

    def __init__(self, item: Block, above: Block | None = None):
        super().__init__()
        self.item = item
        self.above = Chain([] if above is None else [above])

    def build(self, input_shape: Shape) -> Shape:
        shape = self.item.attach(input_shape)
        return Flat(some_width(self.above.attach(Flat(some_width(shape, self.label))), self.label))

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


def of_heads(values: Tensor, heads: int) -> Tensor:
    """Reshape `[rows, length, width]` to `[rows, heads, length, width / heads]`."""
    rows, length, width = values.shape
    return values.view(rows, length, heads, width // heads).transpose(1, 2)
