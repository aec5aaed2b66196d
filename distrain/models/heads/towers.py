"""Tasks over a user's and an item's vector: click or not, and in-batch retrieval."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.heads.targets import label_of
from distrain.models.heads.tasks import LabelTask, Task
from distrain.models.shapes import Branches, Flat, Shape, Value, flat, some_width


def tower_width(given: Shape, user: str, item: str, who: str) -> int:
    """The width of the vectors of the branches `user` and `item` in the input of the task `who`."""
    shapes = given.shapes if isinstance(given, Branches) else {}
    if not {user, item} <= set(shapes):
        raise ModelError(
            f"{who} takes branches {user!r} and {item!r}, and {given.made_by} gives {given}",
            hint="Let a ParallelBlock give a dictionary: aggregation=None.",
        )
    width = some_width(shapes[user], who)
    if width != shapes[item].width:
        one, two = (
            f"{name!r} of {shapes[name].made_by} is {shapes[name].width} wide"
            for name in (user, item)
        )
        raise ModelError(f"{who} multiplies vectors of one width: {one}, {two}")
    return width


class DotProductTask(LabelTask):
    """Binary cross entropy of a user's vector times an item's: `logit = u . v / T + b`.

    The temperature is the only factor, so the items with the greatest products are those with the
    greatest probabilities. The bias b starts at 0.

    Args:
        user: The branch of users' vectors.
        item: The branch of items' vectors, as wide.
        temperature: Above 0, else `ModelError`.
        target: `None` for the first one.

    Shape:
        branches to `[rows]`.

    >>> task = DotProductTask()
    >>> shape = task.attach(Branches({"user": Flat(2), "item": Flat(2)}))
    >>> task({"user": torch.tensor([[1.0, 2.0]]), "item": torch.tensor([[3.0, 4.0]])}).tolist()
    [11.0]
    """

    def __init__(
        self,
        user: str = "user",
        item: str = "item",
        temperature: float = 1.0,
        target: str | None = None,
    ):
        super().__init__(target, None)
        if not temperature > 0:
            raise ModelError(f"a temperature is above 0, not {temperature}")
        self.user, self.item = user, item
        self.temperature = temperature

    def build(self, given: Shape) -> Shape:
        tower_width(given, self.user, self.item, self.label)
        self.bias = nn.Parameter(torch.zeros(1))
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        assert isinstance(value, dict)
        products = (flat(value[self.user]) * flat(value[self.item])).sum(1)
        return products / self.temperature + self.bias

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output, label, reduction=reduction)

    def logits(self, output: Tensor) -> Tensor:
        return output


# A batch of more users than these never holds the scores of all its pairs at once, and computes
# them twice: a batch of 65,536 would need 17 GB of scores.
_USERS_AT_A_TIME = 4096


class ItemRetrievalTask(Task):
    """In-batch sampled softmax over a user's and an item's vector.

    With u_i and v_j the vectors of rows i and j, T the temperature and q_j the probability that
    item j is in a place of a batch, a row with label 1 has the loss

        s_ij = u_i . v_j / T - log q_j
        loss_i = -log(exp s_ii / sum over j of exp s_ij)

    (Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations",
    RecSys 2019, eq. 3 to 6, for rewards of 0 and 1). All rows' items are candidates, those of rows
    with label 0 too; but not an item that equals the row's own, in another row: such accidental
    hits are left out of the sum, where `item_id` says what the items are. The correction by log q
    undoes that popular items are negatives more often than others.

    The candidates are those of one rank's batch, or micro-batch.

    Args:
        user: The branch of users' vectors.
        item: The branch of items' vectors, as wide.
        item_id: The categorical column that tells items apart; needed for `log_q`, and to leave out
            accidental hits.
        temperature: Above 0. Vectors of length 1 (`L2Norm`) want one well below 1.
        log_q: `None` for no correction; a tensor `[items]` of log q by item id; or "batch": q_j is
            the share of the batch's rows that have item j.
        target: Whose label; `None` for the first target.

    Shape:
        branches to `[rows, 2 * dim]`: user vectors, then item vectors.

    Raises:
        ModelError: An argument has none of the values it may have, or `item_id` is missing.

    >>> task = ItemRetrievalTask(item_id="movie", temperature=0.1, log_q="batch")
    >>> str(task.attach(Branches({"user": Flat(8), "item": Flat(8)})))
    '[rows, 16]'
    """

    rows_are_independent = False

    log_q: Tensor | None

    metrics = ()  # labels 0 and 1 are not what it tells apart

    def __init__(
        self,
        user: str = "user",
        item: str = "item",
        item_id: str | None = None,
        temperature: float = 1.0,
        log_q: Tensor | Literal["batch"] | None = None,
        target: str | None = None,
    ):
        super().__init__()
        if not temperature > 0:
            raise ModelError(f"a temperature is above 0, not {temperature}")
        if isinstance(log_q, str) and log_q != "batch":
            raise ModelError(
                f"an ItemRetrievalTask has no log_q {log_q!r}",
                hint="Take a tensor of log probabilities by item id, 'batch', or None.",
            )
        if isinstance(log_q, Tensor) and not log_q.is_meta and not bool(log_q.isfinite().all()):
            raise ModelError(
                "an ItemRetrievalTask's log_q is not finite",
                hint="Count every item at least once: an item without a row has no log.",
            )
        if log_q is not None and item_id is None:
            raise ModelError("an ItemRetrievalTask corrects by log_q only with an item_id")
        self.user, self.item, self.item_id = user, item, item_id
        self.temperature = temperature
        self.target = target
        self.counts_in_batch = isinstance(log_q, str)
        # Of the data, not of the model: it is not saved, and predictions do not need it.
        kept = log_q.detach() if isinstance(log_q, Tensor) else None
        self.register_buffer("log_q", kept, persistent=False)

    def build(self, given: Shape) -> Shape:
        self.dim = tower_width(given, self.user, self.item, self.label)
        return Flat(2 * self.dim)

    def forward(self, value: Value) -> Tensor:
        assert isinstance(value, dict)
        return torch.cat([flat(value[self.user]), flat(value[self.item])], dim=1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        users, items = self.vectors(output)
        ids = None if self.item_id is None else batch[self.item_id].long()
        log_q = None if ids is None else self._log_q(ids)
        labels = label_of(batch, self.target).to(output.dtype)
        rows = torch.arange(len(output), device=output.device)
        pieces = [torch.split(x, _USERS_AT_A_TIME) for x in (users, labels, rows)]
        total = output.new_zeros(())
        for users_part, labels_part, rows_part in zip(*pieces, strict=True):
            arguments = (users_part, labels_part, rows_part, items, ids, log_q)
            if len(pieces[0]) == 1:
                total = total + self._loss_of(*arguments)
            else:
                total = total + checkpoint(
                    self._loss_of, *arguments, use_reentrant=False, preserve_rng_state=False
                )
        return total

    def logits(self, output: Tensor) -> Tensor:
        """The scores of the rows' own pairs, u . v / T."""
        users, items = self.vectors(output)
        return (users * items).sum(1) / self.temperature

    def vectors(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The users' and the items' vectors of an output, each `[rows, dim]`."""
        return output[:, : self.dim], output[:, self.dim :]

    def _log_q(self, ids: Tensor) -> Tensor | None:
        if self.log_q is not None:
            return self.log_q.index_select(0, ids)
        if not self.counts_in_batch:
            return None
        # Sorted, an item's count is the distance between the places before and after it.
        ordered = ids.sort().values
        counts = torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)
        return counts.log() - math.log(max(1, len(ids)))

    def _loss_of(
        self,
        users: Tensor,
        labels: Tensor,
        rows: Tensor,
        items: Tensor,
        ids: Tensor | None,
        log_q: Tensor | None,
    ) -> Tensor:
        scores = users @ items.t() / self.temperature
        if log_q is not None:
            scores = scores - log_q
        own = scores.gather(1, rows[:, None]).squeeze(1)
        if ids is not None:
            columns = torch.arange(len(ids), device=ids.device)
            is_hit = (ids.index_select(0, rows)[:, None] == ids) & (rows[:, None] != columns)
            scores = scores.masked_fill(is_hit, -torch.inf)
        return (labels * (scores.logsumexp(1) - own)).sum()
