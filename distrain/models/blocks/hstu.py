"""Hierarchical sequential transduction units: pointwise attention over a row's events (HSTU)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.models.blocks.events import EventBlock, padded
from distrain.models.blocks.transformers import check_heads
from distrain.models.shapes import Features, Flat, Shape

_TIME_BUCKETS = 64  # from a second on, each 1.35 times the one before
_LOG_OF_A_BUCKET = 0.301


class _Unit(nn.Module):
    """`Y = f2(norm(A V) * U) + X` with `A = silu(Q K' + bias) / n` (arXiv:2402.17152, 3.1)."""

    of_time: nn.Parameter | None

    def __init__(self, width: int, heads: int, num_places: int, has_times: bool, dropout: float):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.uvqk = nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.of_place = nn.Parameter(0.02 * torch.randn(num_places))
        times = nn.Parameter(0.02 * torch.randn(_TIME_BUCKETS)) if has_times else None
        self.register_parameter("of_time", times)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, tokens: Tensor, sees: Tensor, lengths: Tensor, gaps: Tensor | None, first_only: bool
    ) -> Tensor:
        """Of tokens `[rows, length, width]`, of which the first sees all others."""
        count = tokens.shape[1]
        all_four = functional.silu(self.uvqk(self.norms[0](tokens))).chunk(4, dim=2)
        u, v, q, k = (self._of_heads(one) for one in all_four)
        if first_only:
            tokens, u, q = tokens[:, :1], u[:, :, :1], q[:, :, :1]
        places = torch.arange(count, device=tokens.device)
        apart = (places - places[: q.shape[2], None]).clamp(min=0)
        bias = self.of_place[apart]
        if gaps is not None and self.of_time is not None:
            bias = bias + functional.embedding(gaps[:, : q.shape[2]], self.of_time[:, None])[..., 0]
        bias = bias[:, None] if bias.dim() == 3 else bias
        weights = functional.silu(q @ k.transpose(2, 3) + bias) * sees[:, None, : q.shape[2]]
        found = ((weights / lengths[:, None, None, None]) @ v).transpose(1, 2).flatten(2)
        gated = self.norms[1](found) * u.transpose(1, 2).flatten(2)
        result: Tensor = tokens + self.out(self.drop(gated))
        return result

    def _of_heads(self, values: Tensor) -> Tensor:
        rows, count, width = values.shape
        return values.view(rows, count, self.heads, width // self.heads).transpose(1, 2)


class HSTUBlock(EventBlock):
    """The target's vector after units of pointwise attention over its events (arXiv:2402.17152).

    Each token sees itself and the older ones, the target all. A weight is the SiLU of a product,
    plus a bias of the distance of both places and one of the logarithm of their distance in time,
    where the schema tags a list `time_difference`; it is divided by the number of the row's tokens.

    Args:
        heads: Of each unit; they share the vectors' width.
        dropout: Before each unit's output layer.

    Shape:
        columns with such events to `[rows, width]`.

    Raises:
        ModelError: Besides those of `EventBlock`, the width is no multiple of `heads`.
    """

    takes_times = False

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        heads: int = 1,
        layers: int = 2,
        dropout: float = 0.0,
    ):
        super().__init__(events, targets)
        self.heads = heads
        self.num_layers = layers
        self.dropout = dropout

    def build(self, given: Shape) -> Shape:
        width = self.build_vectors(given)
        check_heads(self.label, width, self.heads)
        self.units = nn.ModuleList(
            _Unit(width, self.heads, self.max_length + 1, bool(self._times), self.dropout)
            for _ in range(self.num_layers)
        )
        return Flat(width)

    def forward(self, value: Features) -> Tensor:
        target, events, offsets = self.vectors(value)
        length = self.longest(offsets)
        # The target is the first token, the newest event the second, and so on.
        newest = padded(events, offsets, length, newest_first=True)
        tokens = torch.cat([target[:, None], newest], dim=1)
        lengths = offsets.diff().clamp(max=length) + 1
        places = torch.arange(length + 1, device=offsets.device)
        is_older = places >= places[:, None]
        sees = is_older & (places < lengths[:, None])[:, None]
        gaps = self._gaps(value, offsets, length)
        for number, unit in enumerate(self.units):
            tokens = unit(tokens, sees, lengths, gaps, number == len(self.units) - 1)
        return tokens[:, 0]

    def _gaps(self, value: Features, offsets: Tensor, length: int) -> Tensor | None:
        """The buckets of the seconds between each two tokens, `[rows, length + 1, length + 1]`."""
        if not self._times:
            return None
        seconds = value.events[self._place].numbers[:, self._times[:1]]
        ages = padded(seconds, offsets, length, newest_first=True)[..., 0]
        ages = functional.pad(ages, (1, 0))  # the target's
        apart = (ages[:, None] - ages[:, :, None]).abs().clamp(min=1)
        return (apart.log() / _LOG_OF_A_BUCKET).long().clamp(max=_TIME_BUCKETS - 1)
