"""The metrics, losses and counts of a rank's steps since its last report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distrain.loader.delivery.stats import LoaderStats, difference
from distrain.metrics.exchange_stats import ExchangeStats
from distrain.models.embeddings.route import Route
from distrain.models.heads.targets import Target
from distrain.train.step.device_metrics import DeviceTargets, TakenTargets
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.host_copy import HostCopy
from distrain.train.step.routing import RoutedBatch


class NonFiniteLoss(Exception):
    """The loss became NaN or infinite at a step, counted from 1."""

    def __init__(self, step: int, rank: int, loss: float):
        self.step = step
        super().__init__(
            f"the loss became {loss} at step {step} on rank {rank}\n"
            "  hint: Lower train.optimizer.lr, add train.schedule.warmup_steps, and look for "
            "extreme values in the continuous columns, the targets and the weights."
        )


class ClosedReport(NamedTuple):
    """The metrics and losses of the steps of an ended report, being copied to the host."""

    rank: int
    metrics: TakenTargets
    losses: HostCopy  # copied after the metrics
    first_step: int
    num_steps: int

    @property
    def is_ready(self) -> bool:
        """Return True if `read` would not wait for the device."""
        return self.losses.is_ready

    def read(self) -> dict[str, Any]:
        """Return the metrics as JSON values; waits for the device.

        Raises:
            NonFiniteLoss: A loss is not finite.
        """
        # Once per report, not per step: reading a loss makes the host wait for the device.
        for offset, loss in enumerate(self.losses.read()[: self.num_steps].tolist()):
            if not math.isfinite(loss):
                raise NonFiniteLoss(self.first_step + offset + 1, self.rank, loss)
        return self.metrics.read().to_json()


class OpenReport:
    """The steps since the last report.

    Args:
        most_steps: The maximum number of steps between two reports.
        targets: The targets of the task.
        graphed: The graphed step, which counts its rows itself; `None` for others.

    Attributes:
        restored_rows: The rows of the report that `restore` continued.
        rows_trained: Rows of this rank in all steps.
    """

    def __init__(
        self,
        rank: int,
        device: torch.device,
        most_steps: int,
        targets: Sequence[Target],
        graphed: GraphedStep | None = None,
    ):
        self.steps = 0
        self.restored_rows = 0
        self.rows_trained = 0
        self.exchanged_in_all = ExchangeStats()
        self._rank = rank
        self._metrics = DeviceTargets(targets, device)
        self._is_counted = graphed is not None
        if graphed is not None:
            graphed.count_by(self._metrics.update)
        self._losses = torch.zeros(most_steps, dtype=torch.float32, device=device)
        self._exchanged = ExchangeStats()
        self._loader_reported = LoaderStats()

    def add(
        self, step: int, routed: RoutedBatch, scores: tuple[Tensor, ...], loss_sum: Tensor
    ) -> None:
        """Count the rows and the loss of a step, without waiting for the device.

        Steps count from 0. The rows of a graphed step are counted by the step itself.
        """
        batch, route, route_s = routed
        if not self._is_counted:
            self._metrics.update(scores, batch)
        self._losses[step % len(self._losses)] = loss_sum
        self.steps += 1
        self.rows_trained += batch.num_rows
        if isinstance(route, Route):  # a graphed step does not report the bytes it sends
            self._exchanged += replace(route.traffic, steps=1, route_s=route_s)

    def close(
        self, steps_done: int, stats: LoaderStats
    ) -> tuple[ClosedReport, dict[str, float], dict[str, float]]:
        """End the report after `steps_done` steps, and begin the next one.

        Returns the metrics and losses, the loader's statistics, and the statistics of exchanges
        between ranks, all since the last report. Does not wait for the device. `stats` are the
        loader's statistics so far.
        """
        width = len(self._losses)
        first = (steps_done - 1) // width * width
        metrics = self._metrics.take()
        closed = ClosedReport(
            self._rank, metrics, HostCopy(self._losses), first, steps_done - first
        )
        loader, self._loader_reported = difference(stats, self._loader_reported).to_json(), stats
        exchanged, self._exchanged = self._exchanged, ExchangeStats()
        self.exchanged_in_all += exchanged
        self.steps = 0
        return closed, loader, exchanged.to_json()

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of the metrics and losses by name, for a checkpoint."""
        return {**self._metrics.tensors(), "losses": self._losses.clone()}

    def restore(self, saved: Sequence[Mapping[str, Tensor]], steps: int) -> None:
        """Continue the report that was open in a checkpoint, with `steps` steps.

        `saved` has the results of `tensors`: that of this rank or, after a change of the number of
        ranks, those of several former ranks or of none.
        """
        self.steps = steps
        for tensors in saved:
            self._metrics.add_tensors(tensors)
            if tensors["losses"].shape == self._losses.shape:  # else reports have another length
                self._losses += tensors["losses"].to(self._losses.device)
        self.restored_rows = self._metrics.rows
