"""One training step: look up, run the dense layers, exchange, update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.jobs.spec.training import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.averaging import Averaging
from distrain.models.embeddings.collection import EmbeddingCollection, TouchedRows
from distrain.models.embeddings.route import Route
from distrain.models.embeddings.sparse_optimizer import SparseOptimizer
from distrain.models.row_independence import rows_are_independent
from distrain.train.step.clipping import scales
from distrain.train.step.dense import DenseTraining
from distrain.train.step.loss_share import ShareOfLoss, make_share_of_loss
from distrain.train.step.routing import BatchRequests
from distrain.train.timing.phases import PhaseClock


class TrainStep:
    """Trains a model batch by batch, together with the other ranks.

    The loss is the mean over the global batch. Each rank's share of it is the sum of its rows'
    losses divided by the rows of all ranks. So gradients are added up over the ranks, not averaged,
    and ranks may have different numbers of rows, also none. If rows have weights, the divisor of
    each target is the sum of its weights, which the ranks add up before the forward pass.

    Creating an instance is a collective operation: all ranks begin with rank 0's dense parameters.

    Args:
        model: On its device, where it must stay: its dense parameters become views of one vector.
        num_ranks: The number of ranks; above 1, a process group must exist.
    """

    def __init__(self, model: ClickModel, train: TrainSpec, num_ranks: int):
        self.model = model
        compares = model.task.compares_rows
        if compares and train.micro_batches not in ("auto", 1):
            raise SpecError(
                "train.micro_batches is not possible here: the loss compares all rows of a step",
                where={
                    "task": type(model.task).__name__,
                    "train.micro_batches": train.micro_batches,
                },
                hint="Leave train.micro_batches out, or lower train.global_batch_size.",
            )
        # Before the exchange of gradients adds hooks, which do not belong to the model.
        independent = rows_are_independent(model.dense)
        self.dense = DenseTraining(model.dense, train, num_ranks)
        self.sparse_optimizer = sparse_optimizer(model.embeddings, train)
        self._slicing = slicing_of(
            train,
            on_cpu=self.dense.device.type == "cpu",
            rows_are_independent=independent,
            num_threads=torch.get_num_threads(),
        )
        self._clip_grad_norm = train.clip_grad_norm
        self._apart = train.clip_groups == "apart"

    def __call__(
        self,
        batch: Batch,
        global_rows: int,
        lr: float,
        clock: PhaseClock,
        route: Route | BatchRequests | None = None,
        table_lr: float | None = None,
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Train on one batch; a collective operation: every rank calls it in every step.

        Args:
            batch: This rank's rows, with labels, on the model's device.
            global_rows: Rows of this step over all ranks.
            route: The batch's route, if it was made ahead; either all ranks pass one, or none.
            table_lr: The learning rate of the tables; `None` for that of the dense layers.

        Returns:
            The scores of each target before the update, as in `Task.scores`, and the sum of
            the rows' losses, a scalar, all detached and on the device.
        """
        assert not isinstance(route, BatchRequests)
        self.model.check_columns(batch)
        rows_lr = lr if table_lr is None else table_lr
        tables = self.model.embeddings
        with clock.phase("forward_backward"):
            self.dense.zero_grad()
            if route is None:
                route = tables.route(*self.model.table_ids(batch))
        with clock.phase("exchange" if tables.fetches_from_peers else "forward_backward"):
            rows = tables.fetch(route)
        weights = self.model.task.weight_sums(batch)
        with clock.phase("forward_backward" if weights is None else "exchange"):
            share = make_share_of_loss(self.model.task, weights, tables.peers, global_rows)
        with clock.phase("forward_backward"):
            scores, loss_sum, finish = self._forward_backward(batch, route, rows, share)
        with clock.phase("exchange"):
            touched = finish()
        if self._clip_grad_norm is None:  # rows need not wait for the dense gradients
            self._update_rows(touched, rows_lr, 1.0, clock)
        with clock.phase("exchange"):
            self.dense.finish_sync()
        scale = None
        if self._clip_grad_norm is not None:
            with clock.phase("optimizer"):
                scale, of_rows = scales(
                    self.dense.grad_sq_norm(),
                    tables.stores,
                    touched,
                    self._clip_grad_norm,
                    self._apart,
                )
            self._update_rows(touched, rows_lr, of_rows, clock)
        with clock.phase("optimizer"):
            self.dense.optimizer.begin_step(self.sparse_optimizer.num_steps)
            self.dense.step(lr, scale)
        return scores, loss_sum

    def release(self) -> None:
        """Do nothing; `GraphedStep` releases its graphs here."""

    def _update_rows(
        self, touched: Sequence[TouchedRows], lr: float, scale: float | Tensor, clock: PhaseClock
    ) -> None:
        with clock.phase("optimizer"):
            self.sparse_optimizer.apply(touched, lr, scale=scale)

    def _forward_backward(
        self, batch: Batch, route: Route, rows: Sequence[Tensor], share_of_loss: ShareOfLoss
    ) -> tuple[tuple[Tensor, ...], Tensor, Callable[[], tuple[TouchedRows, ...]]]:
        """Return scores, the sum of losses, and a function that returns the tables' gradients.

        On return, the exchanges of the tables' and of the dense gradients have begun, in the same
        order on all ranks. The function completes the exchange of the tables' gradients. `rows` are
        the table rows from `fetch`.
        """
        tables = self.model.embeddings
        scores: list[tuple[Tensor, ...]] = []
        losses: list[Tensor] = []
        sums: tuple[Tensor, ...] | None = None
        *earlier, last = self._slicing.slices(batch.num_rows)
        for part in earlier:
            leaves = self._one_slice(batch, route, rows, part, share_of_loss, scores, losses)
            sums = tables.collect(route, [leaf.grad for leaf in leaves], part, sums)
            del leaves  # the next slice uses their memory, which is still in the caches
        leaves = self._one_slice(batch, route, rows, last, share_of_loss, scores, losses, last=True)
        self.dense.start_sync()
        sums = tables.collect(route, [leaf.grad for leaf in leaves], last, sums)
        finish = tables.begin_exchange(route, sums)
        if len(scores) == 1:
            return scores[0], losses[0], finish
        whole = tuple(map(torch.cat, zip(*scores, strict=True)))
        return whole, torch.stack(losses).sum(), finish

    def _one_slice(
        self,
        batch: Batch,
        route: Route,
        rows: Sequence[Tensor],
        part: slice,
        share_of_loss: ShareOfLoss,
        scores: list[tuple[Tensor, ...]],
        losses: list[Tensor],
        last: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run forward and backward for the rows `part`; append their scores and sum of losses.

        Returns the looked-up embeddings, whose `.grad` the backward pass has set.
        """
        task, few = self.model.task, batch.part(part)
        embedded = self.model.embeddings.expand(route, rows, part)
        self.dense.begin_slice(last)
        output = self.dense.forward(embedded, few.continuous, self.model.inputs.event_lists(few))
        loss, share = share_of_loss(output, few)
        self.dense.backward(share)
        scores.append(task.scores(output.detach()))
        losses.append(loss.detach())
        return embedded


def sparse_optimizer(tables: EmbeddingCollection, train: TrainSpec) -> SparseOptimizer:
    options = train.of_tables
    return SparseOptimizer(
        tables,
        options.kind,
        eps=options.eps,
        betas=options.betas,
        initial_accumulator_value=options.initial_accumulator_value or 0.0,
        seed=train.seed,
        averaging=None if train.ema is None else Averaging(train.ema),
        weight_decay=train.table_weight_decay,
    )


ROWS_PER_THREAD = 4096
"""Rows of a slice for each thread: if layers are some hundred values wide, the tensors of a slice
fit the CPU's caches."""
_FEWEST_SLICES = 4
"""`auto` does not cut a batch into fewer slices: there is little gain, and with slices no
computation overlaps the exchange of rows."""


@dataclass(frozen=True)
class Slicing:
    """Cuts batches into `count` slices or, if that is `None`, into slices of about `rows` rows.

    Without `count`, the number of slices is `num_rows / rows`, rounded to the nearest integer. A
    batch is not cut if that is below `_FEWEST_SLICES`. The batches of a job's ranks differ by a few
    rows; because of the rounding, all ranks usually have equally many slices. If not, sums are
    added in another order, but all ranks exchange in the same order.
    """

    count: int | None
    rows: int = 0

    def count_of(self, num_rows: int) -> int:
        """Return the number of slices of a batch of `num_rows` rows.

        >>> cut = Slicing(None, rows=100)
        >>> [cut.count_of(rows) for rows in (0, 349, 350, 396, 404, 1149)]
        [1, 1, 4, 4, 4, 11]
        """
        if self.count is not None:
            return self.count
        fitting = (num_rows + self.rows // 2) // self.rows
        return fitting if fitting >= _FEWEST_SLICES else 1

    def most_rows(self, num_rows: int) -> int:
        """Return the number of rows of the largest slice of a batch of `num_rows` rows.

        >>> cut = Slicing(None, rows=100)
        >>> [cut.most_rows(rows) for rows in (150, 349, 400, 5040)]
        [150, 349, 100, 101]
        """
        return -(-num_rows // self.count_of(num_rows))

    def slices(self, num_rows: int) -> list[slice]:
        """Return slices of nearly equal length, which may be empty.

        >>> Slicing(2).slices(5)
        [slice(0, 2, None), slice(2, 5, None)]
        """
        count = self.count_of(num_rows)
        bounds = [num_rows * i // count for i in range(count + 1)]
        return [slice(low, high) for low, high in pairwise(bounds)]


def slicing_of(
    train: TrainSpec, *, on_cpu: bool, rows_are_independent: bool, num_threads: int
) -> Slicing:
    """Return a rank's slicing according to `train.micro_batches`.

    The order of sums, and so the last bits of results, depends on the slicing. Therefore the
    slicing is determined by the arguments alone, not by the machine.
    """
    if train.micro_batches != "auto":
        return Slicing(train.micro_batches)
    if train.cuda_graph is True or not on_cpu or not rows_are_independent:
        return Slicing(1)
    return Slicing(None, ROWS_PER_THREAD * num_threads)
