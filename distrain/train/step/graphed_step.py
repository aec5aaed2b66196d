"""The training step as a CUDA graph: one launch instead of some hundred.

Every shape of such a step follows from the number of rows of its batch
(`embeddings/fixed_shape.py`), and all that changes from step to step is in tensors, so the kernels
of one step, recorded, are those of all. Batches of a size that recurs are recorded after a few
warm-up steps; other sizes, such as an epoch's last batch, run the same kernels one by one.

What ranks ask each other for of spread tables comes from outside (`ask`), where the host may wait;
the rows and their sums travel inside, as much of both in each step. Where a batch wants more than
there was space for, the steps from there on are others: they warm up and are recorded anew.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.jobs.spec.training import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.click import ClickModel
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.padded import PaddedRoutes
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.route import Route
from distrain.models.heads.tasks import Task
from distrain.train.step.clipping import scales
from distrain.train.step.dense import DenseTraining
from distrain.train.step.loss_share import loss_against_all, sums_over_ranks, weighted_share
from distrain.train.step.step import sparse_optimizer
from distrain.train.timing.phases import PhaseClock

WARM_UP_STEPS = 3
"""Steps of a size before it is recorded: libraries set themselves up in the first ones."""

_MOST_GRAPHS = 4

_log = logging.getLogger("distrain")


class StepGraph(Protocol):
    """A recording of what a function does to tensors."""

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None: ...

    def replay(self) -> tuple[Tensor, ...]:
        """Repeat the recording on its tensors' present values; gives the call's result."""


class CudaStepGraph:
    """A CUDA graph. Graphs that never run at the same time share one pool of memory."""

    def __init__(self, pool: tuple[int, int] | None = None):
        self._graph = torch.cuda.CUDAGraph()
        self._pool = pool
        self._result: tuple[Tensor, ...] = ()

    def record(self, run: Callable[[], tuple[Tensor, ...]]) -> None:
        """Record a call; a wait or a read-back in it is an error of CUDA."""
        stream = torch.cuda.current_stream()
        # Objects of an older graph that are freed amid a recording end it; torch collects none.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            # Other threads, such as the loader's, may go on allocating meanwhile.
            with torch.cuda.graph(
                self._graph,
                pool=self._pool,  # type: ignore[arg-type]
                capture_error_mode="thread_local",
            ):
                self._result = run()
        except RuntimeError:
            self._forget()
            raise
        finally:  # torch leaves its own stream current where a recording fails
            torch.cuda.set_stream(stream)
            if collects:
                gc.enable()

    def _forget(self) -> None:
        """Let torch's allocator and generator know that a failed recording is over.

        torch tells neither. The allocator would free nothing more that another stream has used, and
        the generator would refuse to draw.
        """
        device = torch.cuda.current_device()
        if self._pool is not None:
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, self._pool)
        generator = torch.cuda.default_generators[device]
        generator.graphsafe_set_state(generator.clone_state())

    def replay(self) -> tuple[Tensor, ...]:
        """Launch it; the result's tensors are overwritten by the next replay."""
        self._graph.replay()
        return self._result


@dataclass
class _Recorded:
    graph: StepGraph
    batch: Batch
    padded: PaddedRoutes

    def fill(self, batch: Batch, padded: PaddedRoutes) -> None:
        targets = (*_read_of(self.batch), *self.padded.tensors)
        for target, source in zip(targets, (*_read_of(batch), *padded.tensors), strict=True):
            target.copy_(source)


class GraphedStep:
    """Does what `TrainStep` does, in shapes known beforehand, without a wait for the device.

    Args:
        max_rows: The most rows that a rank's batch has.
        make_graph: Makes graphs; another one than CUDA's is for tests.
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
        check_graph(train, self._device if make_graph is None else None, model.embeddings)
        if num_ranks > 1 and type(model.task).candidates is not Task.candidates:
            raise SpecError(
                "train.cuda_graph cannot be had here: the loss compares rows of all ranks",
                where={"task": type(model.task).__name__},
                hint="Set train.cuda_graph to false, or take one rank.",
            )
        self.model = model
        self.dense = DenseTraining(model.dense, train, num_ranks, captured=True)
        self.sparse_optimizer = sparse_optimizer(model.embeddings, train)
        self._tables = FixedTables(model.embeddings, self.sparse_optimizer, max_rows)
        # Rounded here, they are written, read and summed in half as many bytes.
        rounds = train.precision == "bf16" and getattr(model.dense, "only_multiplies", False)
        self._leaf_dtype = torch.bfloat16 if rounds else None
        self._clip_grad_norm = train.clip_grad_norm
        self._apart = train.clip_groups == "apart"
        self._count: Callable[[tuple[Tensor, ...], Batch], None] = lambda scores, batch: None
        # Adam corrects it in float64.
        self._lr = torch.zeros((), dtype=torch.float64, device=self._device)
        self._table_lr = torch.zeros_like(self._lr)
        self._global_rows = torch.ones((), dtype=torch.float32, device=self._device)
        self._weight_sums: Tensor | None = None
        self._one = torch.ones((), dtype=torch.float32, device=self._device)
        self._seen: Counter[int] = Counter()
        self._recorded: dict[int, _Recorded] = {}
        self._rooms: tuple[tuple[int, ...], ...] = ()
        self._pool: tuple[int, int] | None = None
        self._may_give_up = train.cuda_graph == "auto"
        self._gave_up = False
        self._make_graph = make_graph or self._cuda_graph

    def __call__(
        self,
        batch: Batch,
        global_rows: int,
        lr: float,
        clock: PhaseClock,
        route: Route | PaddedRoutes | None = None,
        table_lr: float | None = None,
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Train on one batch; see `TrainStep`.

        The next step overwrites the result. All of the step's time counts as `forward_backward`,
        but for the dense update where that is not in the graph. `route` is the result of `ask`;
        `None` asks here.
        """
        assert not isinstance(route, Route)
        self.model.check_columns(batch)
        with clock.phase("forward_backward"):
            self._lr.fill_(lr)
            self._table_lr.fill_(lr if table_lr is None else table_lr)
            self._global_rows.fill_(global_rows)
            self._add_weights_up(batch)
            padded = self.ask(batch) if route is None else route
            recorded = self._recorded_for(batch, padded)
            if recorded is None:
                result = self._run(batch, padded)
            else:
                recorded.fill(batch, padded)
                result = recorded.graph.replay()
        loss_sum, scale, *scores = result
        if not self.dense.optimizer.capturable:
            with clock.phase("optimizer"):
                self.dense.step(lr, scale if self._clip_grad_norm is not None else None)
        return tuple(scores), loss_sum

    def count_by(self, count: Callable[[tuple[Tensor, ...], Batch], None]) -> None:
        """Have each batch's scores counted as a part of the step, and so of its graph."""
        self._count = count

    @property
    def asks(self) -> bool:
        """Whether tables are spread over ranks, so that `ask` makes the ranks talk."""
        return self._tables.asks

    def ask(self, batch: Batch) -> PaddedRoutes:
        """Ask other ranks for the rows of a batch, maybe ahead; see `FixedTables.ask`."""
        return self._tables.ask(self.model.table_ids(batch)[0])

    def averaged(self) -> AbstractContextManager[None]:
        """As of `TrainStep`: there are no averages here."""
        return nullcontext()

    def take_averages(self) -> None:
        """As `averaged`."""

    def read_steps(self) -> None:
        """Set the sparse optimizer's number of steps, before saving; waits for the device."""
        self._tables.read_steps()

    def write_steps(self) -> None:
        """Take over the sparse optimizer's number of steps, after loading."""
        self._tables.write_steps()

    def _run(self, batch: Batch, padded: PaddedRoutes) -> tuple[Tensor, ...]:
        """Return the sum of losses, the factor that clips gradients, and each target's scores."""
        self.dense.zero_grad()
        ids, _ = self.model.table_ids(batch)
        route = self._tables.route(ids, padded)
        leaves = self._tables.lookup(route, self._leaf_dtype)
        output = self.dense.forward(leaves, batch.continuous)
        loss_sum, share = self._loss(output, batch)
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
        scores = self.model.task.scores(output.detach())
        self._count(scores, batch)
        return loss_sum.detach(), scale, *scores

    def _add_weights_up(self, batch: Batch) -> None:
        """Set the divisors of weighted losses, outside of the graph, which holds no gather."""
        weights = self.model.task.weight_sums(batch)
        if weights is None:
            return
        sums = sums_over_ranks(weights, self.model.embeddings.peers)
        if self._weight_sums is None:
            self._weight_sums = torch.empty_like(sums)
        self._weight_sums.copy_(sums)

    def _loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        task = self.model.task
        if self._weight_sums is not None:
            return weighted_share(task, output, batch, self._weight_sums)
        offered = task.candidates(output, batch)
        if offered is None:
            loss_sum = task.loss(output, batch)
        else:
            loss_sum, _ = loss_against_all(task, output, batch, offered, Peers())
        return loss_sum, loss_sum / self._global_rows

    def _recorded_for(self, batch: Batch, padded: PaddedRoutes) -> _Recorded | None:
        """Return the graph for batches of this size, if there is one or it is time to make one."""
        if padded.capacities != self._rooms:  # they grow, and never shrink
            self._rooms = padded.capacities
            self._recorded.clear()
            self._seen.clear()
        size = batch.num_rows
        if size in self._recorded or size == 0 or self._gave_up:
            return self._recorded.get(size)
        self._seen[size] += 1
        if self._seen[size] <= WARM_UP_STEPS or len(self._recorded) == _MOST_GRAPHS:
            return None
        recorded = _Recorded(self._make_graph(), _copy_of(batch), padded.clone())
        try:
            recorded.graph.record(lambda: self._run(recorded.batch, recorded.padded))
        except RuntimeError as error:
            if not self._may_give_up:
                raise
            _log.warning(
                "the step cannot be recorded as a CUDA graph, and its kernels are launched one by "
                "one: %s. Set train.cuda_graph to false.",
                str(error).strip().split("\n")[0],
            )
            self._gave_up = True
            return None
        self._recorded[size] = recorded
        return recorded

    def _cuda_graph(self) -> StepGraph:
        # A pool ends with its last graph: torch refuses to record into it while any of its memory
        # is still in use, such as the last result's.
        if not self._recorded:
            self._pool = torch.cuda.graph_pool_handle()
        return CudaStepGraph(self._pool)


def _read_of(batch: Batch) -> tuple[Tensor, ...]:
    """Return the tensors of a batch that a step reads; all labels or the only one."""
    labels = batch.label if batch.labels is None else batch.labels
    assert labels is not None
    weights = (tensor for tensor in (batch.weight, batch.task_weights) if tensor is not None)
    return batch.categorical, batch.continuous, labels, *weights


def _copy_of(batch: Batch) -> Batch:
    def copied(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.clone()

    labels = copied(batch.labels)
    return replace(
        batch,
        categorical=batch.categorical.clone(),
        continuous=batch.continuous.clone(),
        label=copied(batch.label) if labels is None else labels[:, 0],
        labels=labels,
        weight=copied(batch.weight),
        task_weights=copied(batch.task_weights),
    )


def check_graph(
    train: TrainSpec, device: torch.device | None, tables: EmbeddingCollection | None = None
) -> None:
    """Refuse what a graph cannot hold, with all reasons.

    Args:
        device: The rank's; `None` where graphs need no GPU, as in tests.
        tables: `None` before they exist.
    """
    found = _problems(train, device, tables)
    if found:
        raise SpecError(
            f"train.cuda_graph cannot be had here: {'; '.join(found)}",
            hint="Set train.cuda_graph to auto or false, or change what is named.",
        )


def may_record(train: TrainSpec, device: torch.device, tables: EmbeddingCollection) -> bool:
    """Return True if `auto` records: for a rank alone, where nothing stands against it."""
    return tables.peers.num_ranks == 1 and not _problems(train, device, tables)


def _problems(
    train: TrainSpec, device: torch.device | None, tables: EmbeddingCollection | None
) -> list[str]:
    lists = ", ".join(tables.list_names) if tables else ""
    by_gloo = tables and tables.peers.num_ranks > 1 and tables.peers.device.type == "cpu"
    problems = {
        f"it is on {device}, and graphs need an NVIDIA GPU": device and device.type != "cuda",
        "train.micro_batches must be 1 or auto": train.micro_batches not in (1, "auto"),
        "train.compile must be false": train.compile,
        "train.ema must be null": train.ema is not None,
        "train.table_weight_decay must be 0": train.table_weight_decay,
        "embeddings.placement must not be host_cached": tables
        and any(store.cache is not None for store in tables.stores),
        "ranks meet through gloo, and a graph holds NCCL's operations alone": device and by_gloo,
        f"columns of lists have no fixed size: {lists}": lists,
    }
    return [problem for problem, there in problems.items() if there]
