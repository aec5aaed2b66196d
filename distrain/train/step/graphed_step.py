"""The training step as a CUDA graph: one launch instead of hundreds.

All shapes of such a step follow from the ranks' numbers of rows and the capacities of sharded
tables (`embeddings/fixed_shape.py`), and all values that change from step to step are in tensors.
So the recorded kernels of one step can be replayed for all steps with the same numbers of rows.
`Recorder` records them for numbers of rows that recur; other steps, such as an epoch's last one,
run the same kernels one by one.

A separate graph (`request_rows`) requests a batch's rows from the owners of sharded tables. The
caller queues it before the step of the previous batch. The answer shows whether a rank needed more
rows than the capacity. The host reads the answer before it queues the batch's own step, long after
the device has computed it. If the capacity was too small, all ranks increase it and request the
rows again: no step uses an answer in which rows are missing.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from distrain.jobs.spec.training import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.branch import Branch
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.padded import PaddedRoutes
from distrain.models.embeddings.route import Route
from distrain.train.step.clipping import scales
from distrain.train.step.dense import DenseTraining
from distrain.train.step.graph_conditions import check_graph, model_facts
from distrain.train.step.host_copy import HostCopy
from distrain.train.step.loss_share import make_share_of_loss
from distrain.train.step.recorder import Recorder, StepGraph
from distrain.train.step.routing import BatchRequests
from distrain.train.step.step import sparse_optimizer
from distrain.train.timing.phases import PEERS, PhaseClock, waiting


class GraphedStep:
    """Trains like `TrainStep`, with shapes known in advance and without waiting for the device.

    Args:
        max_rows: The maximum rows of a rank's batch.
        make_graph: Creates graphs; tests pass another one than CUDA's.
    """

    def __init__(
        self,
        model: ClickModel,
        train: TrainSpec,
        num_ranks: int,
        max_rows: int,
        make_graph: Callable[[], StepGraph] | None = None,
    ):
        self._device = next(model.dense.parameters()).device
        check_graph(train, self._device if make_graph is None else None, model_facts(model))
        self.model = model
        self.dense = DenseTraining(model.dense, train, num_ranks, captured=True)
        self.sparse_optimizer = sparse_optimizer(model.embeddings, train)
        self._tables = FixedTables(model.embeddings, self.sparse_optimizer, max_rows)
        # Embeddings rounded to bf16 are written, read and summed in half as many bytes.
        rounds = train.precision == "bf16" and getattr(model.dense, "only_multiplies", False)
        self._leaf_dtype = torch.bfloat16 if rounds else None
        self._clip_grad_norm = train.clip_grad_norm
        self._apart = train.clip_groups == "apart"
        self._count: Callable[[tuple[Tensor, ...], Batch], None] = lambda scores, batch: None
        self._counting = Branch(self._device)
        # Adam's bias correction needs float64.
        self._lr = torch.zeros((), dtype=torch.float64, device=self._device)
        self._table_lr = torch.zeros_like(self._lr)
        self._global_rows = torch.ones((), dtype=torch.float32, device=self._device)
        self._one = torch.ones((), dtype=torch.float32, device=self._device)
        self._numbers: dict[int, float] = {}
        self._recorder = Recorder(model.embeddings.peers, train.cuda_graph == "auto", make_graph)
        self._capacities: tuple[tuple[int, ...], ...] = ()

    def __call__(
        self,
        batch: Batch,
        global_rows: int,
        lr: float,
        clock: PhaseClock,
        route: Route | BatchRequests | None = None,
        table_lr: float | None = None,
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Train on one batch; see `TrainStep`.

        The next step overwrites the result. The time counts as phase `forward_backward`, except for
        waits for the owners' answers (`exchange`), and the dense update if it is not in the graph
        (`optimizer`). `route` is the result of `request_rows`; a single rank may pass `None`.
        """
        assert not isinstance(route, Route)
        self.model.check_columns(batch)
        with clock.phase("exchange") if self.needs_requests else nullcontext():
            asked = self.request_rows(batch, (batch.num_rows,)) if route is None else route
            asked = self._answered(batch, asked)
        with clock.phase("forward_backward"):
            self._set(self._lr, lr)
            self._set(self._table_lr, lr if table_lr is None else table_lr)
            self._set(self._global_rows, global_rows)
            self._tables.begin_step()
            self.dense.optimizer.begin_step(self.sparse_optimizer.num_steps)
            loss_sum, scale, *scores = self._recorder.call(
                "step",
                asked.rank_rows,
                (*_inputs_of(batch), *asked.routes.tensors),
                lambda inputs: self._run(*_refilled(batch, asked.routes, inputs)),
            )
        if not self.dense.optimizer.capturable:
            with clock.phase("optimizer"):
                self.dense.step(lr, scale if self._clip_grad_norm is not None else None)
        return tuple(scores), loss_sum

    def count_by(self, count: Callable[[tuple[Tensor, ...], Batch], None]) -> None:
        """Count each batch's scores with `count`, beside the backward pass, also in the graph.

        Call it before the first step: recorded graphs keep the function that they were recorded
        with.
        """
        self._count = count

    @property
    def needs_requests(self) -> bool:
        """Whether tables are sharded, so that `request_rows` is a collective operation."""
        return self._tables.needs_requests

    def request_rows(self, batch: Batch, rank_rows: tuple[int, ...]) -> BatchRequests:
        """Request a batch's rows from the owners of sharded tables; collective, does not wait.

        If no table is sharded, nothing is requested.

        Args:
            rank_rows: The number of rows of each rank's batch.

        Raises:
            ValueError: The batch has another number of rows than `rank_rows` says.
        """
        if batch.num_rows != rank_rows[self.model.embeddings.peers.rank]:
            raise ValueError(f"a batch of {batch.num_rows} rows among {rank_rows}")
        if not self.needs_requests:
            return BatchRequests(rank_rows, PaddedRoutes(()), None)
        if self._capacities != self._tables.capacities:  # capacities only grow
            self._capacities = self._tables.capacities
            self._recorder.forget()
        ids = self.model.table_ids(batch)[0].T.contiguous()
        wanted, *answers = self._recorder.call(
            "ask", rank_rows, (ids,), lambda inputs: self._tables.request_rows(inputs[0].T)
        )
        # The next call overwrites the answers before the step of this batch.
        kept = [answer.clone() for answer in answers]
        return BatchRequests(rank_rows, self._tables.routes_of(kept), HostCopy(wanted))

    def _answered(self, batch: Batch, asked: BatchRequests) -> BatchRequests:
        """Return requests that fit the capacity: `asked`, or new ones with a larger capacity.

        A collective operation. The requests are repeated until the capacity suffices. All ranks
        read the same maximum over the ranks, so all make the same requests.
        """
        while asked.wanted is not None:
            with waiting(PEERS):
                wanted = asked.wanted.read().tolist()
            self._tables.raise_capacity(wanted)
            if asked.routes.capacities == self._tables.capacities:
                break
            asked = self.request_rows(batch, asked.rank_rows)
        return asked

    def release(self) -> None:
        """Release all graphs: NCCL's communicators cannot end while a graph holds operations."""
        self._recorder.forget()

    def _set(self, scalar: Tensor, value: float) -> None:
        """Set a scalar on the device; launch no kernel if it has this value already."""
        if self._numbers.get(id(scalar)) != value:
            self._numbers[id(scalar)] = value
            scalar.fill_(value)

    def _run(self, batch: Batch, padded: PaddedRoutes) -> tuple[Tensor, ...]:
        """Make one step, in a form that a graph can record.

        Returns the sum of the losses, the factor that clips the dense gradients (1 without
        clipping), and the scores of each target.
        """
        self.dense.zero_grad()
        task, peers = self.model.task, self.model.embeddings.peers
        weights = task.weight_sums(batch)
        share_of_loss = make_share_of_loss(task, weights, peers, self._global_rows)
        ids, _ = self.model.table_ids(batch)
        route = self._tables.route(ids, padded)
        leaves = self._tables.lookup(route, self._leaf_dtype)
        output = self.dense.forward(leaves, batch.continuous)
        scores = task.scores(output.detach())
        with self._counting.on_side_stream():
            self._count(scores, batch)
        loss_sum, share = share_of_loss(output, batch)
        self.dense.backward(share)
        self.dense.start_sync()
        scale, grads = self._one, [leaf.grad for leaf in leaves]
        if self._clip_grad_norm is None:
            self._tables.update(route, grads, self._table_lr)
            self.dense.finish_sync()
        else:
            touched = self._tables.exchange(route, self._tables.collect(route, grads))
            self.dense.finish_sync()
            stores = self.model.embeddings.stores
            scale, of_rows = scales(
                self.dense.grad_sq_norm(), stores, touched, self._clip_grad_norm, self._apart
            )
            self._tables.apply(touched, self._table_lr, of_rows)
        if self.dense.optimizer.capturable:
            self.dense.step(self._lr, scale if self._clip_grad_norm is not None else None)
        self._counting.join()
        return loss_sum.detach(), scale, *scores


def _inputs_of(batch: Batch) -> tuple[Tensor, ...]:
    """Return the tensors of a batch that a step reads, contiguous, columns first."""
    labels = batch.label if batch.labels is None else batch.labels
    assert labels is not None
    weights = (tensor for tensor in (batch.weight, batch.task_weights) if tensor is not None)
    read = (batch.categorical, batch.continuous, labels, *weights)
    return tuple(tensor.t().contiguous() for tensor in read)


def _refilled(
    batch: Batch, routes: PaddedRoutes, inputs: Sequence[Tensor]
) -> tuple[Batch, PaddedRoutes]:
    """Return `batch` and `routes` with their tensors replaced by `inputs`, the memory of a graph.

    `inputs` begins with the tensors of `_inputs_of`; the others are those of the routes.
    """
    categorical, continuous, labels, *others = inputs
    weights = others[: len(others) - len(routes.tensors)]
    both = iter(weights)
    task_labels = None if batch.labels is None else labels.t()
    refilled = replace(
        batch,
        categorical=categorical.t(),
        continuous=continuous.t(),
        label=labels if task_labels is None else task_labels[:, 0],
        labels=task_labels,
        weight=None if batch.weight is None else next(both),
        task_weights=None if batch.task_weights is None else next(both).t(),
    )
    return refilled, PaddedRoutes.of(routes.capacities, others[len(weights) :])
