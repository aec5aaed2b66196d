"""What a rank tells of its training: its events, filled in."""

from dataclasses import dataclass, field

import torch

from distrain.events import EvaluationDone, RankFinished, StepsDone, StoppedEarly, TrainingStarted
from distrain.loader import Loader, LoaderStats
from distrain.models import ClickModel
from distrain.spec import TrainSpec
from distrain.train.early_stopping import Validations
from distrain.train.evaluate import Evaluation
from distrain.train.peak_memory import memory_now, peak_memory
from distrain.train.phases import PhaseClock
from distrain.train.saving import Start
from distrain.train.schedule import lr_at
from distrain.train.span import Span
from distrain.train.step_counts import StepCounts
from distrain.train.window import OpenWindow


@dataclass(frozen=True)
class Accounts:
    """Makes a rank's events.

    Attributes:
        rank: This rank.
        device: Where it trains.
        train: How it trains.
        span: The job's steps.
        window: The steps since the last report.
        step_counts: How long they took.
    """

    rank: int
    device: torch.device
    train: TrainSpec
    span: Span
    window: OpenWindow
    step_counts: StepCounts = field(default_factory=StepCounts)

    def started(self, model: ClickModel, loader: Loader, start: Start) -> TrainingStarted:
        """Ready to train, from `start` on."""
        dense = sum(p.numel() for p in model.dense.parameters())
        sparse = sum(w.numel() for w in model.embeddings.weights)
        return TrainingStarted(
            self.rank,
            self.span.num_steps,
            self.span.rows_per_epoch,
            self.span.rows_in(self.span.num_steps),
            dense + sparse,
            ": ".join(loader.reader_choice),
            start.step,
            self.span.rows_in(start.step),
            start.elapsed_s,
            self.window.restored_rows,
            start.checkpoint,
        )

    def lr_of(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        schedule = self.train.schedule
        return lr_at(step, self.span.num_steps, self.train.optimizer.lr, schedule)

    def steps_done(self, taken: int, stats: LoaderStats, clock: PhaseClock) -> StepsDone:
        """Close the window after `taken` steps; waits for the device.

        Raises:
            NonFiniteLoss: A loss of these steps was not finite.
        """
        metrics, loader, exchange = self.window.close(taken, stats)
        seconds, device_seconds = clock.lap(), clock.device_lap()
        return StepsDone(
            self.rank,
            self.span.epoch_after(taken),
            taken,
            clock.elapsed_s,
            seconds,
            metrics,
            self.lr_of(taken - 1),
            loader,
            exchange,
            device_seconds,
            self.step_counts.take(),
            memory_now(self.device),
        )

    def evaluated(self, taken: int, found: Evaluation, clock: PhaseClock) -> EvaluationDone:
        """The validation rows were scored after `taken` steps."""
        epoch, metrics = self.span.epoch_after(taken), found.metrics.to_json()
        auc, bound = found.from_scores or (None, None)
        return EvaluationDone(self.rank, epoch, taken, clock.running_s, metrics, auc, bound)

    def stopped_early(self, taken: int, told: Validations | None) -> StoppedEarly:
        """The training ends after `taken` steps, for what its validations have told."""
        assert told is not None
        rows, best = self.span.rows_in(taken), (told.best_step, told.best_value)
        return StoppedEarly(self.rank, taken, rows, told.metric, *best, told.waited)

    def finished(
        self, taken: int, setup_s: float, stats: LoaderStats, clock: PhaseClock
    ) -> RankFinished:
        """All is done, after `taken` steps; waits for the device."""
        clock.lap()
        clock.device_lap(wait=True)
        return RankFinished(
            self.rank,
            taken,
            self.window.rows_trained,
            clock.elapsed_s,
            dict(clock.totals),
            setup_s,
            stats.to_json(),
            self.window.exchanged_in_all.to_json(),
            clock.device_totals,
            peak_memory(self.device),
        )
