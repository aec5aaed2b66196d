"""The retrieval task: scores a user's own item against the items of the step's other rows."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from distrain.errors import ModelError
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.loader.batch import Batch, Ragged
from distrain.models.heads.targets import Candidates, label_of
from distrain.models.heads.tasks import Task
from distrain.models.heads.towers import tower_width
from distrain.models.negative_sampling import FIRST_VALUE_ID, ItemDraws
from distrain.models.shapes import Flat, Shape, Value, flat

RetrievalLoss = Literal["softmax", "bpr"]

# The most pair scores in memory at once. If a step has more, the backward pass computes them again;
# those of a batch of 65,536 rows would take 17 GB.
_SCORES_AT_A_TIME = 4096 * 4096
_USERS_FROM = 1 << 32
"""Added to users' ids, so that they differ from items' ids, which are used for unknown users."""


@dataclass(frozen=True)
class _Queries:
    """Users' vectors that are compared with the candidates, each with the row's own item."""

    users: Tensor  # `[queries, dim]`
    items: Tensor  # `[queries, dim]`
    ids: Tensor  # of the items, `[queries]`, int64
    keys: Tensor  # `[queries]`, int64; queries with the same key are of one user
    labels: Tensor  # `[queries]`


class ItemRetrievalTask(Task):
    """Scores the vectors of a user and its own item against the vectors of other items.

    With u_i and v_i the vectors of row i's user and item, c_j those of the candidates, T the
    temperature and q the probability that an item is a candidate, a row with label 1 has the loss

        s_i  = u_i . v_i / T - log q(v_i)
        s_ij = u_i . c_j / T - log q(c_j)
        softmax: log(exp s_i + sum over j of exp s_ij) - s_i
        bpr:     mean over j of log(1 + exp(s_ij - s_i)), without q

    (Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations",
    RecSys 2019, eq. 3 to 6, for rewards of 0 and 1; Rendle et al., "BPR", UAI 2009.) The candidates
    are the items of the other rows, including rows with label 0. Candidates that are known to be
    right are excluded: with `item_id`, the row's own item in other rows; with `user_id` also all
    items of the same user's rows with label 1. Ids below 3, which `distrain prep` gives to unknown
    users, belong to no user. The correction by log q compensates for popular items being candidates
    more often than others. In a training step the candidates are those of all ranks.

    In training the branches may give several pairs of vectors per row, one after another. The first
    pair is the row's own user and item. The others are of the row's older events, newest first: the
    user's vector before the event, and the event's item. They are examples with label 1. The oldest
    event has no pair, since there is no event before it. So a row with n events has n pairs; a row
    without events has one. A row's loss is the sum over its pairs.

    Args:
        user: The branch of users' vectors.
        item: The branch of items' vectors, of the same width.
        item_id: The categorical column that identifies items; needed for `log_q`, `user_id` and
            `draws`.
        temperature: Above 0. Vectors of length 1 (`L2Norm`) need one well below 1.
        log_q: `None` for no correction; a tensor `[items]` of log q by item id; "batch": q is the
            item's share of the step's candidates; "stream": its share of all candidates since
            training began, which the model's buffer `seen` counts.
        target: The target whose label is used; `None` for the first target.
        user_id: The categorical column that identifies users.
        kind: "softmax" or "bpr".
        num_items: The number of rows of `seen`, for "stream".
        events: The list column of the items of a row's events.
        draws: Draws the candidates, instead of the rows' own items; q is the probability of
            drawing an item. `log_q` must be `None` then, and the item branch an `ItemTower`, which
            returns the vectors of drawn items.

    Shape:
        branches to `[rows, 2 * dim]`: user vectors, then item vectors.

    Raises:
        ModelError: An argument has a value that is not allowed, or `item_id` is missing.

    >>> from distrain.models.shapes import Branches
    >>> task = ItemRetrievalTask(item_id="movie", temperature=0.1, log_q="batch")
    >>> str(task.attach(Branches({"user": Flat(8), "item": Flat(8)})))
    '[rows, 16]'
    """

    rows_are_independent = False

    log_q: Tensor | None
    seen: Tensor

    metrics = (RETRIEVAL_METRIC,)  # the task does not separate labels 0 and 1

    def __init__(
        self,
        user: str = "user",
        item: str = "item",
        item_id: str | None = None,
        temperature: float = 1.0,
        log_q: Tensor | Literal["batch", "stream"] | None = None,
        target: str | None = None,
        *,
        user_id: str | None = None,
        kind: RetrievalLoss = "softmax",
        num_items: int | None = None,
        events: str | None = None,
        draws: ItemDraws | None = None,
    ):
        super().__init__()
        self.user, self.item = user, item
        self.item_id, self.user_id, self.events = item_id, user_id, events
        self.draws = draws
        self.temperature = temperature
        self.target = target
        self.kind = kind
        self.counts = log_q if isinstance(log_q, str) else None
        self._check_arguments(log_q, num_items)
        # log_q belongs to the data, not the model: it is not saved; predictions do not need it.
        kept = log_q.detach() if isinstance(log_q, Tensor) else None
        self.register_buffer("log_q", kept, persistent=False)
        if self.counts == "stream":
            self.register_buffer("seen", torch.zeros(num_items or 0, dtype=torch.int64))

    def _check_arguments(self, log_q: Tensor | str | None, num_items: int | None) -> None:
        if not self.temperature > 0:
            raise ModelError(f"a temperature must be above 0, not {self.temperature}")
        if self.kind not in get_args(RetrievalLoss):
            raise ModelError(
                f"unknown loss {self.kind!r} of an ItemRetrievalTask; use softmax or bpr"
            )
        if isinstance(log_q, str) and log_q not in ("batch", "stream"):
            raise ModelError(
                f"unknown log_q {log_q!r} of an ItemRetrievalTask",
                hint="Use a tensor of log probabilities by item id, 'batch', 'stream', or None.",
            )
        if isinstance(log_q, Tensor) and not log_q.is_meta and not bool(log_q.isfinite().all()):
            raise ModelError(
                "an ItemRetrievalTask's log_q is not finite",
                hint="Count every item at least once: the log of 0 is not finite.",
            )
        if log_q is not None and self.item_id is None:
            raise ModelError("an ItemRetrievalTask with log_q needs an item_id")
        if self.user_id is not None and self.item_id is None:
            raise ModelError("an ItemRetrievalTask with user_id needs an item_id")
        if self.draws is not None and (log_q is not None or self.item_id is None):
            raise ModelError(
                "an ItemRetrievalTask with draws needs an item_id, and cannot have a log_q",
                hint="Remove log_q: the probabilities of drawn items are corrected without it.",
            )
        if self.counts == "stream" and not num_items:
            raise ModelError("an ItemRetrievalTask with log_q 'stream' needs num_items")

    def build(self, input_shape: Shape) -> Shape:
        self.dim = tower_width(input_shape, self.user, self.item, self.label)
        return Flat(2 * self.dim)

    def forward(self, value: Value) -> Tensor:
        assert isinstance(value, dict)
        users, items = flat(value[self.user]), flat(value[self.item])
        own, drawn = items[:, : users.shape[1]], items[:, users.shape[1] :]
        pair = [torch.unflatten(side, 1, (-1, self.dim)) for side in (users, own)]
        pairs = torch.cat(pair, dim=2).flatten(1)
        return pairs if self.draws is None else torch.cat([pairs, drawn], dim=1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return self.loss_against(output, batch, self.candidates(output, batch), 0)

    def candidates(self, output: Tensor, batch: Batch) -> Candidates:
        queries = self._queries(output, batch)
        has_bought = queries.labels == 1
        keys = torch.where(has_bought, queries.keys, -1)
        known = torch.stack([keys, queries.ids], 1)
        if self.draws is None:
            return Candidates(queries.items, queries.ids, known)
        ids = self.draws.of(batch).values.long()
        width = len(ids) // max(1, len(output)) * self.dim
        assert len(ids) or not len(output), "negatives are drawn for batches with a key"
        return Candidates(output[:, -width:].reshape(-1, self.dim), ids, known)

    def observe(self, candidates: Candidates) -> None:
        if self.counts == "stream":
            self.seen.index_add_(0, candidates.ids, torch.ones_like(candidates.ids))

    def loss_against(
        self, output: Tensor, batch: Batch, candidates: Candidates, first: int
    ) -> Tensor:
        queries = self._queries(output, batch)
        own_q, log_q = self._log_q(queries.ids, candidates.ids, output.dtype)
        places = torch.arange(len(queries.users), device=output.device)
        at_a_time = max(1, _SCORES_AT_A_TIME // max(1, len(candidates.vectors)))
        total = output.new_zeros(())
        known = _KnownItems(candidates, queries.keys) if self.item_id is not None else None
        parts = torch.split(places, at_a_time)
        for part in parts:
            arguments = (queries, part, candidates, first, known, own_q, log_q)
            if len(parts) == 1:
                total = total + self._loss_of(*arguments)
            else:
                total = total + checkpoint(
                    self._loss_of, *arguments, use_reentrant=False, preserve_rng_state=False
                )
        return total

    def logits(self, output: Tensor) -> Tensor:
        """Return the scores of the rows' own pairs, u . v / T, `[rows]`."""
        users, items = self.vectors(output)
        return (users * items).sum(1) / self.temperature

    def vectors(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the users' and the items' vectors of an output, each `[rows, dim]`."""
        return output[:, : self.dim], output[:, self.dim : 2 * self.dim]

    def _queries(self, output: Tensor, batch: Batch) -> _Queries:
        drawn = 0 if self.draws is None or batch.key is None else self.draws.per_row * self.dim
        width = max(2 * self.dim, output.shape[1] - drawn)  # an empty batch has no drawn items
        pairs = torch.unflatten(output[:, :width], 1, (-1, 2 * self.dim))
        labels = label_of(batch, self.target).to(output.dtype)[:, None]
        ids = torch.zeros(len(output), 1, dtype=torch.int64, device=output.device)
        if self.item_id is not None:
            ids = batch[self.item_id].long()[:, None]
        is_present = None
        if pairs.shape[1] > 1:
            assert self.events is not None, "several vectors a row are those of its events"
            is_present, ids = _with_events(ids, batch.lists[self.events], pairs.shape[1])
            labels = torch.cat([labels, labels.new_ones(ids.shape)[:, 1:]], dim=1)
        keys = ids
        if self.user_id is not None:
            users = batch[self.user_id].long()[:, None]
            # All unknown users share few ids, so a row of an unknown user has its item as the key.
            keys = torch.where(users < FIRST_VALUE_ID, ids, users + _USERS_FROM)
        pairs, ids, keys, labels = (
            some.flatten(0, 1) if is_present is None else some[is_present]
            for some in (pairs, ids, keys, labels)
        )
        users, items = torch.split(pairs, self.dim, dim=1)
        return _Queries(users, items, ids, keys, labels)

    def _log_q(
        self, own: Tensor, candidates: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return log q of the queries' own items and of the candidates; `None`: no correction.

        `own` and `candidates` are item ids. q is the item's probability of being a candidate:
        that of `draws` if there are any, or else what the task's argument `log_q` says. There is no
        correction with BPR, nor without `draws` and `log_q`.
        """
        if self.kind == "bpr":
            return None, None
        if self.draws is not None:
            return self.draws.log_q(own).to(dtype), self.draws.log_q(candidates).to(dtype)
        if self.log_q is None and self.counts is None:
            return None, None
        if self.log_q is not None:
            return self.log_q.index_select(0, own), self.log_q.index_select(0, candidates)
        # In sorted order, an item's count is the distance between its first place and its end.
        ordered = candidates.sort().values
        pair = []
        for ids in (own.contiguous(), candidates.contiguous()):
            ends = torch.searchsorted(ordered, ids, right=True)
            counts = ends - torch.searchsorted(ordered, ids)
            total = torch.full((), len(candidates), device=ids.device)
            if self.counts == "stream":
                counts, total = counts + self.seen.index_select(0, ids), total + self.seen.sum()
            counts, total = (some.clamp(min=1).to(dtype) for some in (counts, total))
            pair.append(counts.log() - total.log())
        return pair[0], pair[1]

    def _loss_of(
        self,
        queries: _Queries,
        part: Tensor,
        candidates: Candidates,
        first: int,
        known: "_KnownItems | None",
        own_q: Tensor | None,
        log_q: Tensor | None,
    ) -> Tensor:
        users = queries.users.index_select(0, part)
        own = (users * queries.items.index_select(0, part)).sum(1) / self.temperature
        scores = users @ candidates.vectors.t() / self.temperature
        if own_q is not None and log_q is not None:
            own, scores = own - own_q.index_select(0, part), scores - log_q
        columns = torch.arange(len(candidates.vectors), device=part.device)
        # Drawn items belong to no row.
        own_places = part + first if self.draws is None else torch.full_like(part, -1)
        left_out = own_places[:, None] == columns
        if known is not None:
            left_out = left_out | known.of(part)
        if self.kind == "bpr":
            losses = functional.softplus(scores - own[:, None]).masked_fill(left_out, 0.0).sum(1)
            losses = losses / (~left_out).sum(1).clamp(min=1)
        else:
            scores = scores.masked_fill(left_out, -torch.inf)
            losses = torch.cat([own[:, None], scores], dim=1).logsumexp(1) - own
        return (queries.labels.index_select(0, part) * losses).sum()


class _KnownItems:
    """Computes for each query (a user's vector) which candidates are known items of its user.

    The shapes of its tensors do not depend on the range of the ids.
    """

    def __init__(self, candidates: Candidates, keys: Tensor):
        users, items = candidates.known.t().contiguous()
        # An id's number is its first place among the sorted ids.
        ordered = users.sort().values
        self._of_users = torch.searchsorted(ordered, users)
        self._of_queries = torch.searchsorted(ordered, keys.contiguous())
        ordered = torch.cat([items, candidates.ids]).sort().values
        self._of_items = torch.searchsorted(ordered, items)
        self._of_candidates = torch.searchsorted(ordered, candidates.ids.contiguous())
        self._sizes = (len(users), len(ordered))
        self._is_user = users >= 0

    def of(self, part: Tensor) -> Tensor:
        """Return a mask of known items, `[queries, candidates]`, for the queries at `part`."""
        users, items = self._sizes
        queries = self._of_queries.index_select(0, part)
        # All queries of a user share the row of one of them. The row after the last has no user.
        row_of = torch.full((users + 1,), len(part), device=part.device)
        row_of[queries] = torch.arange(len(part), device=part.device)
        of_users = row_of.index_select(0, self._of_users)
        rows = torch.where(self._is_user, of_users, len(part))
        had = torch.zeros(len(part) + 1, items, dtype=torch.bool, device=part.device)
        had.index_put_((rows, self._of_items), had.new_ones(()))
        had[len(part)] = False
        of_queries = had.index_select(0, row_of.index_select(0, queries))
        return of_queries.index_select(1, self._of_candidates)


def _with_events(own: Tensor, events: Ragged, places: int) -> tuple[Tensor, Tensor]:
    """Return a mask of the pairs that exist, and the item ids of all pairs: both `[rows, places]`.

    Pairs are those of `ItemRetrievalTask`. `own`, `[rows, 1]`, are the items of the rows
    themselves. Place 0 is the pair of the row's own item, place 1 that of the newest event, and so
    on. The oldest event has no pair, since no event precedes it; so a row with n events has n
    pairs, and a row without events has one.
    """
    ages = torch.arange(places, device=own.device)
    is_present = ages < events.lengths[:, None].clamp(min=1)
    older = (events.offsets[1:, None].long() - ages[1:]).clamp(min=0)
    return is_present, torch.cat([own, events.values[older].long()], dim=1)
