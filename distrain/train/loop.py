"""The training loop of one rank."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from distrain.errors import ModelError, SpecError
from distrain.events import (
    EvaluationDone,
    Event,
    ModelSaved,
    RankFinished,
    StepsDone,
    TrainingStarted,
)
from distrain.loader import Loader, LoaderStats
from distrain.loader.stats import difference
from distrain.metrics.device import DeviceBinaryMetrics
from distrain.models import build_model, save_model
from distrain.partition import Table
from distrain.run_paths import RunPaths
from distrain.spec import JobSpec
from distrain.train.ahead import routed_batches
from distrain.train.device_clock import device_clock
from distrain.train.epochs import EpochsAhead
from distrain.train.evaluate import evaluate
from distrain.train.exchange_stats import ExchangeStats
from distrain.train.graphed_step import GraphedStep
from distrain.train.inputs import Inputs, list_combiners
from distrain.train.loaders import job_loader
from distrain.train.peak_memory import peak_memory
from distrain.train.phases import PhaseClock
from distrain.train.routing import Routed
from distrain.train.schedule import lr_at
from distrain.train.step import TrainStep
from distrain.train.tables import place_tables, table_factory
from distrain.world import World


class NonFiniteLoss(Exception):
    """The loss became NaN or infinite.

    Attributes:
        step: The step at which it did, counted from 1.
    """

    def __init__(self, step: int, rank: int, loss: float):
        self.step = step
        super().__init__(
            f"the loss became {loss} at step {step} on rank {rank}\n"
            "  hint: Lower train.optimizer.lr, add train.schedule.warmup_steps, and look for "
            "extreme values in the continuous columns."
        )


@dataclass
class Trainer:
    """One rank's training of one job.

    Args:
        spec: The job.
        inputs: Its checked data.
        world: The rank and its peers.
        device: Where to train.
        paths: Where the model goes.
        report: Takes this rank's events.
    """

    spec: JobSpec
    inputs: Inputs
    world: World
    device: torch.device
    paths: RunPaths
    report: Callable[[Event], None]

    def run(self) -> None:
        """Train to the end, save the model, and report all the way.

        Raises:
            NonFiniteLoss: The loss became NaN or infinite.
            DistrainError: Data, spec or output cannot be used.
        """
        began_s = time.perf_counter()
        self.loader = self._loader(self.inputs.train, shuffle=self.spec.data.shuffle)
        with self.loader:
            self.num_steps = self._num_steps()
            # Before the model is built, so that the first batch is ready when that is.
            batches = EpochsAhead(self.loader, self.num_steps, self.spec.data.prefetch_batches)
            self._build()
            tables = self.model.embeddings
            with routed_batches(self.spec, batches, tables, self.device) as self.batches:
                self.report(self._started())
                self.clock = PhaseClock(device_clock(self.device))
                self.setup_s = time.perf_counter() - began_s
                self._all_steps()
            self._finish()

    def _build(self) -> None:
        self.placed = place_tables(self.spec, self.inputs.schema, self.world, self.device)
        self.model = build_model(
            self.inputs.schema,
            self.spec.model,
            seed=self.spec.train.seed,
            make_tables=table_factory(self.spec, self.placed, self.world),
            combiners=list_combiners(self.inputs.schema, self.spec.embeddings),
        )
        self.model.to(self.device).train()
        self.step = self._step()
        self.metrics = DeviceBinaryMetrics(self.device)
        window = min(self.spec.train.log_every_steps, self.num_steps)
        self.losses = torch.zeros(window, dtype=torch.float32, device=self.device)
        self.rows_trained = 0
        self.loader_told = LoaderStats()
        self.exchanged, self.exchanged_in_all = ExchangeStats(), ExchangeStats()

    def _step(self) -> TrainStep | GraphedStep:
        train, num_ranks = self.spec.train, self.world.num_ranks
        if not train.cuda_graph:
            return TrainStep(self.model, train, num_ranks)
        lanes = train.lanes // num_ranks
        max_rows = lanes * -(-train.global_batch_size // train.lanes)
        return GraphedStep(self.model, train, num_ranks, max_rows)

    def _all_steps(self) -> None:
        for step in range(self.num_steps):
            epoch, of_epoch = divmod(step, self.loader.num_steps)
            routed = self.batches.take(self.clock)
            self._one_step(routed, step, self.loader.rows_in_step(of_epoch))
            self._after_step(epoch, step + 1)

    def _one_step(self, routed: Routed, step: int, global_rows: int) -> None:
        batch, route, route_s = routed
        self.lr = lr_at(
            step, self.num_steps, self.spec.train.optimizer.lr, self.spec.train.schedule
        )
        logits, loss_sum = self.step(batch, global_rows, self.lr, self.clock, route)
        assert batch.label is not None
        self.metrics.update(logits, batch.label)
        self.losses[step % len(self.losses)] = loss_sum
        self.rows_trained += batch.num_rows
        if route is not None:
            self.exchanged.add(route.traffic, route_s)

    def _after_step(self, epoch: int, steps_done: int) -> None:
        last = steps_done == self.num_steps
        every = self.spec.evaluate.every_steps
        due = (last and self.spec.evaluate.at_end) or (every and steps_done % every == 0)
        evaluates = due and self.inputs.valid is not None
        # Before a validation too: it belongs to a known number of rows, and a loss that is not
        # finite is told with its own step.
        if last or evaluates or steps_done % self.spec.train.log_every_steps == 0:
            self._report_steps(epoch, steps_done)
        if evaluates:
            self._evaluate(epoch, steps_done)

    def _report_steps(self, epoch: int, steps_done: int) -> None:
        self._check_losses(steps_done)
        metrics = self.metrics.read_and_reset().to_json()
        stats = self.loader.stats
        loader, self.loader_told = difference(stats, self.loader_told).to_json(), stats
        exchanged, self.exchanged = self.exchanged, ExchangeStats()
        self.exchanged_in_all += exchanged
        seconds, device_seconds = self.clock.lap(), self.clock.device_lap()
        self.report(
            StepsDone(
                self.world.rank,
                epoch,
                steps_done,
                self.clock.elapsed_s,
                seconds,
                metrics,
                self.lr,
                loader,
                exchanged.to_json(),
                device_seconds,
            )
        )

    def _check_losses(self, steps_done: int) -> None:
        # One look per report, not per step: reading a loss makes the host wait for the device.
        width = len(self.losses)
        first = (steps_done - 1) // width * width
        for offset, loss in enumerate(self.losses[: steps_done - first].tolist()):
            if not math.isfinite(loss):
                raise NonFiniteLoss(first + offset + 1, self.world.rank, loss)

    def _evaluate(self, epoch: int, steps_done: int) -> None:
        assert self.inputs.valid is not None
        with self.clock.phase("evaluate"):
            loader = self._loader(self.inputs.valid, shuffle="none")
            try:
                metrics = evaluate(self.model, loader, self.device)
            except ModelError:  # the last update spoilt the weights; no loss has seen them yet
                raise NonFiniteLoss(steps_done, self.world.rank, math.nan) from None
        self.report(
            EvaluationDone(
                self.world.rank, epoch, steps_done, self.clock.running_s, metrics.to_json()
            )
        )

    def _finish(self) -> None:
        # Every rank: each brings its rows of the tables that are spread over the ranks.
        with self.clock.phase("save"):
            save_model(self.paths.model, self.model, self.spec.model, self.inputs.schema)
        if self.world.rank == 0:
            self.report(ModelSaved(0, str(self.paths.model)))
        self.clock.lap()
        self.clock.device_lap(wait=True)
        self.report(
            RankFinished(
                self.world.rank,
                self.num_steps,
                self.rows_trained,
                self.clock.elapsed_s,
                dict(self.clock.totals),
                self.setup_s,
                self.loader.stats.to_json(),
                self.exchanged_in_all.to_json(),
                self.clock.device_totals,
                peak_memory(self.device),
            )
        )

    def _started(self) -> TrainingStarted:
        dense = sum(p.numel() for p in self.model.dense.parameters())
        sparse = sum(w.numel() for w in self.model.embeddings.weights)
        per_epoch = sum(self.loader.rows_in_step(s) for s in range(self.loader.num_steps))
        whole, rest = divmod(self.num_steps, self.loader.num_steps)
        total = whole * per_epoch + sum(self.loader.rows_in_step(s) for s in range(rest))
        return TrainingStarted(
            self.world.rank,
            self.num_steps,
            per_epoch,
            total,
            dense + sparse,
            ": ".join(self.loader.reader_choice),
        )

    def _num_steps(self) -> int:
        steps = self.spec.train.epochs * self.loader.num_steps
        if self.spec.train.max_steps is not None:
            steps = min(steps, self.spec.train.max_steps)
        if steps == 0:
            raise SpecError(
                "the job has no steps to take",
                where={
                    "rows": self.loader.num_rows,
                    "train.global_batch_size": self.spec.train.global_batch_size,
                },
                hint="Lower the batch size, or set data.drop_last to false.",
            )
        return steps

    def _loader(self, table: Table, *, shuffle: str) -> Loader:
        return job_loader(
            self.spec, self.inputs.schema, table, self.world, self.device, shuffle=shuffle
        )
