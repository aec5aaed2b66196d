"""Hierarchical sequential transduction units: pointwise attention over a row's events (HSTU)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from distrain.models.blocks.event_sequences import EventBlock, RowGroups, with_last
from distrain.models.blocks.functional import Linear
from distrain.models.blocks.transformers import check_heads, of_heads
from distrain.models.shapes import Features, Flat, Shape

_TIME_BUCKETS = 64  # Bucket limits begin at one second, and each is 1.35 times the previous one.
_LOG_OF_A_BUCKET = 0.301
# The most attention weights in memory at once. On a CPU they fit its caches. On a GPU, each block
# costs about a hundred kernel launches; 2^26 weights take 256 MiB in fp32.
_MOST_WEIGHTS = 1 << 20
_MOST_ON_GPU = 1 << 26


class _Unit(nn.Module):
    """One layer of HSTU: `Y = f2(norm(A V) * U) + X`, with `A = silu(Q K' + bias) / n`.

    X are the tokens of a row, n their number, and f2 a linear layer. U, V, Q and K are the SiLU of
    linear functions of the normalised X (arXiv:2402.17152, section 3.1).
    """

    of_time: nn.Parameter | None

    def __init__(self, width: int, heads: int, num_places: int, has_times: bool, dropout: float):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.uvqk = nn.Linear(width, 4 * width, bias=False)
        self.out = Linear(width, width)
        self.of_place = nn.Parameter(0.02 * torch.randn(num_places))
        times = nn.Parameter(0.02 * torch.randn(_TIME_BUCKETS)) if has_times else None
        self.register_parameter("of_time", times)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, tokens: Tensor, groups: RowGroups, ages: Sequence[Tensor | None], last_only: bool
    ) -> Tensor:
        """Return the outputs of all tokens, `[tokens, width]`, or of each row's last token only.

        `ages` has for each group the seconds between each token and the row's last token, `[rows,
        length]`; `None` without times.
        """
        of_u, of_v, of_q, of_k = self.uvqk.weight.chunk(4)
        normed = self.norms[0](tokens)
        others = groups.pad(_projected(normed, of_k, of_v))
        if last_only:
            tokens, normed = groups.newest(tokens), groups.newest(normed)
        gate, query = _projected(normed, of_u, of_q).chunk(2, dim=1)
        queries = groups.split(query[:, None]) if last_only else groups.pad(query)
        of_groups = zip(queries, others, groups.counts, ages, strict=True)
        outputs = [self._attended(*group, last_only) for group in of_groups]
        values = groups.join(outputs)[:, 0] if last_only else groups.unpad(outputs)
        result: Tensor = tokens + self.out(self.drop(self.norms[1](values) * gate))
        return result

    def _attended(
        self, query: Tensor, others: Tensor, counts: Tensor, ages: Tensor | None, last_only: bool
    ) -> Tensor:
        """Return the attention's output in one group, `[rows, queries, width]`.

        The queries are all tokens, or with `last_only` each row's last one. `others`, `[rows,
        length, 2 * width]`, has each token's key and value, and `counts`, `[rows]`, the rows'
        numbers of tokens. If there are many weights, they are computed in blocks, and again in the
        backward pass.
        """
        rows, length, _ = others.shape
        if last_only:  # one weight per token
            return self._weighed(query, others, counts[:, None] - 1, counts, ages)
        places = torch.arange(length, device=counts.device)[None]
        most = _MOST_WEIGHTS if others.is_cpu else _MOST_ON_GPU
        if torch.compiler.is_compiling() or rows * length**2 * self.heads <= most:
            return self._weighed(query, others, places, counts, ages)
        few_rows = max(1, most // (length**2 * self.heads))
        few_queries = max(1, most // (length * self.heads * few_rows))
        outputs = []
        for row in range(0, rows, few_rows):
            own = slice(row, row + few_rows)
            blocks = []
            for first in range(0, length, few_queries):
                query_part, seen = slice(first, first + few_queries), slice(first + few_queries)
                # The backward pass recomputes the weights, block by block.
                block = checkpoint(
                    self._weighed,
                    query[own, query_part],
                    others[own, seen],
                    places[:, query_part],
                    counts[own],
                    None if ages is None else ages[own, seen],
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
                blocks.append(block)
            outputs.append(torch.cat(blocks, dim=1))
        return torch.cat(outputs)

    def _weighed(
        self, query: Tensor, others: Tensor, places: Tensor, counts: Tensor, ages: Tensor | None
    ) -> Tensor:
        """Return the attention's output for some queries, `[rows, queries, width]`.

        `others` and `counts` are those of `_attended`. `places` are the queries' positions in their
        rows, `[rows, queries]` or `[1, queries]`. A query attends to the tokens up to its own
        position. If `ages` is `None`, the weights have no bias for times.
        """
        q, k, v = (of_heads(x, self.heads) for x in (query, *others.chunk(2, dim=2)))
        apart = places[:, :, None] - torch.arange(others.shape[1], device=places.device)
        bias = functional.embedding(apart.clamp(min=0), self.of_place[:, None])[..., 0]
        if ages is not None and self.of_time is not None:
            own = ages.gather(1, places.expand(ages.shape[0], -1))
            gaps = _buckets(own[:, :, None] - ages[:, None])
            bias = bias + functional.embedding(gaps, self.of_time[:, None])[..., 0]
        weights = functional.silu(q @ k.transpose(2, 3) + bias[:, None]) * (apart >= 0)[:, None]
        weighted = (weights @ v).transpose(1, 2).flatten(2)
        return torch.div(weighted, counts[:, None, None])


def _projected(values: Tensor, *weights: Tensor) -> Tensor:
    return functional.silu(functional.linear(values, torch.cat(weights)))


def _buckets(seconds: Tensor) -> Tensor:
    logs = seconds.abs().clamp(min=1).log() / _LOG_OF_A_BUCKET
    return logs.long().clamp(max=_TIME_BUCKETS - 1)


class HSTUBlock(EventBlock):
    """Attends pointwise over a row's events; returns the target's vector (arXiv:2402.17152).

    Each event attends to itself and earlier events; the target attends to itself and all events. A
    weight is the SiLU of the product of query and key plus a learnt bias for the distance of the
    positions. If the schema tags a list `time_difference`, a bias for the logarithm of the distance
    in time is added too. Weights are divided by the row's number of tokens (the events and the
    target).

    Args:
        heads: Number of heads of each unit, which share the vectors' width.
        layers: Number of units, one after another.
        dropout: The share of values that training sets to 0 before each unit's output layer.

    Shape:
        columns that include the events to `[rows, width]`.

    Raises:
        ModelError: The errors of `EventBlock`; or the width is not a multiple of `heads`.
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

    def build(self, input_shape: Shape) -> Shape:
        width = self.build_vectors(input_shape)
        check_heads(self.label, width, self.heads)
        self.units = nn.ModuleList(
            _Unit(width, self.heads, self.max_length + 1, bool(self._times), self.dropout)
            for _ in range(self.num_layers)
        )
        return Flat(width)

    def forward(self, value: Features) -> Tensor:
        target, events = self.vectors(value)
        rows = with_last(events, target)
        groups = RowGroups(rows, self.max_length + 1)
        ages: Sequence[Tensor | None] = [None] * len(groups.counts)
        if self._times:
            place, numbers = self._times[0], value.events[self._place].numbers
            seconds = replace(events, values=numbers[:, place : place + 1])
            of_target = seconds.values.new_zeros(target.shape[0], 1)
            ages = [group[..., 0] for group in groups.pad(with_last(seconds, of_target).values)]
        tokens = rows.values
        for number, unit in enumerate(self.units):
            tokens = unit(tokens, groups, ages, number == len(self.units) - 1)
        return tokens
