"""The training loop of one rank.

    set up      read ahead, build the model, load the newest checkpoint
    each step   execute agreed requests; take batch and route; train; report, validate, save if due
    the end     a last checkpoint, the saved model, the last report

With `train.refit` a second training on training and validation rows follows. The first one ends
with a checkpoint, and the second one saves the model.

A stop request ends the training at a place on which all ranks agree, by
`control/step_agreement.py`: before a step, or before a batch of a validation, which the next
attempt then repeats. The ranks save a checkpoint there, unless they could not agree in time.
"""

import gc
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from distrain.errors import NonFiniteOutput
from distrain.jobs.events import ModelSaved, RankFinished
from distrain.loader.delivery.stats import LoaderStats, total
from distrain.loader.loader import Loader
from distrain.loader.partition.table import Table
from distrain.metrics.exchange_stats import ExchangeStats
from distrain.models.embeddings.peers import Peers
from distrain.models.saved_model import save_model
from distrain.train.audit.audit import AuditLog
from distrain.train.control.rank_setup import seed_everything
from distrain.train.control.step_agreement import StopRequested
from distrain.train.data.job_extent import JobSpan, RefitSpan
from distrain.train.data.loaders import job_loader
from distrain.train.loop.checkpoints import checkpoint_dir
from distrain.train.loop.early_stopping import Validations, should_stop
from distrain.train.loop.evaluation import Evaluation, evaluate_over_ranks, own_metrics
from distrain.train.loop.model_folder import put_model
from distrain.train.loop.rank_events import PendingSteps, RankEvents
from distrain.train.loop.refit import Refit, find_refit
from distrain.train.loop.routed_batches import routed_batches
from distrain.train.loop.setup import RankJob, set_up
from distrain.train.step.averages import averaged, take_averages
from distrain.train.step.open_report import NonFiniteLoss
from distrain.train.timing.phases import PEERS, READER, PhaseClock, device_clock, waiting


@dataclass(frozen=True)
class _FirstTrainingCounts:
    """Counts of the first training in this process, to which those of the refit are added."""

    rows: int
    loader: LoaderStats
    exchange: ExchangeStats


class Trainer(RankJob):
    """Trains a job on one rank, together with the other ranks; every rank calls `run` once."""

    def run(self) -> bool:
        """Train to the end, save the model, and report; return False if training was stopped.

        With `train.refit`, two trainings follow each other, and only the second one saves the
        model.
        """
        self.spent: _FirstTrainingCounts | None = None
        if self.spec.train.refit:
            peers = Peers(self.world.rank, self.world.num_ranks)
            directory = checkpoint_dir(self.spec, self.paths, self.job_id)
            with waiting(READER):
                self.refit = find_refit(directory, peers, self.device)
        is_done = self._run_training()
        if is_done and self.refits_next:
            self._begin_refit()
            is_done = self._run_training()
        return is_done

    def _run_training(self) -> bool:
        began_s = time.perf_counter()
        self.loader = self._loader(self.rows, shuffle=self.spec.data.shuffle)
        with self.loader:
            self._set_up()
            try:
                return self._train(began_s)
            finally:
                self._close()

    def _train(self, began_s: float) -> bool:
        rank_rows = partial(self.span.rank_rows, num_ranks=self.world.num_ranks)
        routed = routed_batches(
            self.spec, self._read, self.step, self.device, rank_rows, self.start.step
        )
        with routed as self.batches:
            if self.spent is None:
                self.report(self.rank_events.started(self.model, self.loader, self.start))
                self.clock = self.control.activity.clock = PhaseClock(device_clock(self.device))
                self.setup_s = time.perf_counter() - began_s
                self.elapsed_before_s = self.start.elapsed_s
            if self.refit is not None and self.world.rank == 0:
                self._report_refit(self.refit)
            try:
                self._all_steps()
            except StopRequested as stop:
                self._stop(stop)
                return False
        self._finish()
        return True

    def _begin_refit(self) -> None:
        """Keep the first training's results, free its memory, and seed random generators again."""
        elapsed_s = self.elapsed_before_s + self.clock.running_s
        self.refit = Refit(self.taken, elapsed_s, self.validations)
        report = self.open_report
        self.spent = _FirstTrainingCounts(
            report.rows_trained, self.loader.stats, report.exchanged_in_all
        )
        # Before another model is built, since large tables would not fit twice.
        del self.model, self.step, self.open_report, self.checkpoints, self.rank_events
        del self.batches, self.loader, self._read, report
        gc.collect()
        # So the refit begins with the same random state, however often the job was interrupted.
        seed_everything(self.spec.train.seed, self.world.rank, self.device)

    def _report_refit(self, refit: Refit) -> None:
        is_early = refit.taken < self.span.schedule_position(refit.taken)[1]
        stopped = is_early and should_stop(refit.validations, self.spec.train.early_stopping)
        if stopped and self.spent is None:  # an earlier attempt reported it
            self.report(self.rank_events.stopped_early(refit.taken, refit.validations))
        self.report(self.rank_events.refit_started(refit))

    def _span(self) -> JobSpan:
        if self.refit is None:
            return JobSpan.of(self.spec, self.loader)
        loader = self._loader(self.inputs.train, shuffle=self.spec.data.shuffle)
        first = JobSpan.of(self.spec, loader)
        taken, found = self.refit.taken, self.refit.found
        return RefitSpan.after(first, taken=taken, found=found, epoch=self.loader.steps)

    def _set_up(self) -> None:
        spec, rank = self.spec, self.world.rank
        self.span = self._span()
        parts = set_up(self, self.loader, self.span)
        self.model, self.step, self.open_report = parts.model, parts.step, parts.open_report
        self.checkpoints, self.start, self._read = parts.checkpoints, parts.start, parts.batches
        self.rank_events = RankEvents(
            rank,
            self.device,
            spec.train,
            self.span,
            self.open_report,
            self.checkpoints.steps_before,
        )
        self.taken = self.control.activity.step = self.start.step
        self.validated = self.start.validated
        self._take_validations(self.start.validations)
        self.progressive = self.start.progressive
        self.save_asked = False
        self.unsent: PendingSteps | None = None
        self.own_metrics = own_metrics(spec, self.inputs.schema)
        self.audit: AuditLog | None = None
        if spec.train.audit:
            self.audit = AuditLog.begin(self.paths.audit(rank, self.attempt), self.start.step)

    def _take_validations(self, validations: Validations | None) -> None:
        self.validations = validations
        reduction = 1.0 if validations is None else validations.reduction
        self.rank_events = replace(self.rank_events, reduction=reduction)

    def _all_steps(self) -> None:
        """Train until the last step, or until early stopping; `StopRequested` if a stop is agreed.

        Before the first step, scores what an earlier attempt left unscored.
        """
        self._score_pending()
        if self.taken == self.span.num_steps and self.open_report.steps:
            self._report_steps()  # the job has fewer steps now than before the restart
            self._send_report()
        for step in range(self.start.step, self.span.num_steps):
            if self._is_over():
                break
            self._pass_gate()
            self.control.activity.step = step + 1
            self._one_step(step)
            self.taken = step + 1
            self._after_step()
        self._pass_gate()

    def _is_over(self) -> bool:
        return self.refit is None and should_stop(self.validations, self.spec.train.early_stopping)

    def _score_pending(self) -> None:
        """Score rows that must be scored before the first step.

        This repeats an evaluation that was interrupted. After a warm start, it scores the first
        window. If the last step ended a window, a checkpoint is saved and, with
        `checkpoint.window_models`, the window's model.
        """
        window, border = self._next_window(), self.span.window_at(self.taken) is not None
        # The new attempt may have no validation rows.
        valid = not self.validated and self.valid_rows is not None
        # the interrupted evaluation may have been that of the next window, without validation rows
        if border and self.spec.evaluate.next_window:
            valid = valid and self._validates_after(self.taken)
        # No window model was saved if the previous attempt was killed, or had its last step here.
        models = self.spec.checkpoint.window_models
        is_new = models or not self.validated or window is not None
        ends_window = border and self.taken > 0 and is_new
        if valid or window is not None or ends_window:
            self._score(window, valid=valid)
            if ends_window:
                self._end_window()
            self._save_if_due()
        self.validated = True

    def _one_step(self, step: int) -> None:
        began_s = time.perf_counter()
        epoch, of_epoch = self.span.epoch_and_step(step)
        routed = self.batches.take(self.clock)
        if self.audit is not None:
            self.audit.add(epoch, step, routed.batch)
        rows = self.loader.rows_in_step(of_epoch)
        lr, table_lr = self.rank_events.lr_of(step), self.rank_events.table_lr_of(step)
        scores, loss_sum = self.step(routed.batch, rows, lr, self.clock, routed.route, table_lr)
        self.open_report.add(step, routed, scores, loss_sum)
        self.rank_events.step_counts.add(time.perf_counter() - began_s)

    def _after_step(self) -> None:
        self._send_report(wait=False)
        last = self.taken == self.span.num_steps
        valid, window = self._validates_after(self.taken), self._next_window()
        evaluates = valid or window is not None
        # Also before a validation, so that a report covers a known number of rows, and a loss that
        # is not finite is reported with its own step.
        if last or evaluates or self.taken % self.spec.train.log_every_steps == 0:
            self._report_steps()
        if last or evaluates:
            self._send_report()
        if evaluates:
            self._score(window, valid=valid)
        if self.span.window_at(self.taken) is not None:
            self._end_window()
        self._save_if_due()

    def _validates_after(self, step: int) -> bool:
        every, last = self.spec.evaluate.every_steps, step == self.span.num_steps
        due = (last and self.spec.evaluate.at_end) or (every and step % every == 0)
        return bool(due) and step > 0 and self.valid_rows is not None

    def _next_window(self) -> int | None:
        """Return the index of the window to score before its rows are first trained.

        Returns `None` if no window must be scored now.
        """
        window, scores = self.span.window_at(self.taken), self.spec.evaluate.next_window
        is_old = self.taken >= self.span.steps_per_epoch or self.progressive.step == self.taken
        if is_old or not scores:
            return None
        # Initial weights are not scored.
        return window if self.taken or self.spec.train.init_from is not None else None

    def _end_window(self) -> None:
        self.save_asked = True
        if self.spec.checkpoint.window_models:
            with self.clock.phase("save"), averaged(self.step):
                self._save_model(self.paths.window_model(self.taken), self.taken)

    def _pass_gate(self, *, between_steps: bool = True) -> None:
        """Execute agreed requests before a step or batch (a *place* of `StepAgreement`).

        Saves a checkpoint if the ranks agreed to do so here.

        During a validation (`between_steps` is false), the checkpoint is saved after the
        validation. Raises `StopRequested` to end the training.
        """
        self.control.look()
        agreement = self.control.agreement
        while True:
            held = between_steps and agreement.is_requested
            with waiting(PEERS), self.clock.phase("checkpoint") if held else nullcontext():
                word = agreement.begin()
            if word == "go":
                return
            if word != "checkpoint":
                raise StopRequested(saves=word == "stop")
            if between_steps:
                self._save()
            else:
                self.save_asked = True  # saved after this validation, on all ranks

    def _stop(self, stop: StopRequested) -> None:
        self._send_report()
        deadline = self.control.stop_deadline
        if deadline is not None and stop.saves:
            deadline.arrived()
        saved = stop.saves and self._save(wait=True) is True
        self._close()
        if deadline is not None:
            deadline.stopped(self.taken, saved)

    def _save_if_due(self) -> None:
        if self.save_asked or self.checkpoints.due(self.taken):
            self._save()

    def _save(self, auc: float | None = None, *, wait: bool = False) -> bool | None:
        """Save a checkpoint of the current step; return the result of `RankCheckpoints.save`."""
        self.save_asked = False
        self._send_report()  # before its losses are saved in a checkpoint
        if self.audit is not None:
            # the rows of a checkpoint's steps must be on disk even if this process dies
            self.audit.flush()
        elapsed_s = self.elapsed_before_s + self.clock.running_s
        with self.clock.phase("checkpoint"):
            return self.checkpoints.save(
                self.taken,
                validated=self.validated,
                elapsed_s=elapsed_s,
                rows=self.span.rows_in(self.taken),
                validations=self.validations,
                progressive=self.progressive,
                auc=auc,
                wait=wait,
            )

    def _report_steps(self) -> None:
        if self.audit is not None:
            self.audit.flush()
        self._send_report()
        self.unsent = self.rank_events.steps_done(self.taken, self.loader.stats, self.clock)
        self._send_report(wait=False)

    def _send_report(self, *, wait: bool = True) -> None:
        """Send the last ended report (`PendingSteps`), unless it was sent before.

        If `wait` is false, it is only sent if its metrics are on the host already.
        """
        unsent = self.unsent
        if unsent is not None and (wait or unsent.is_ready):
            self.unsent = None
            self.report(unsent.event())

    def _score(self, window: int | None, *, valid: bool) -> None:
        """Score the next window, if any, and the validation rows if they are due."""
        self.validated = False
        if window is not None:
            self._score_window(window)
        if valid:
            self._evaluate()
        self.validated = True

    def _score_window(self, window: int) -> None:
        name, table = self.span.windows[window], self.inputs.unthinned or self.inputs.train
        assert table.windows is not None
        found = self._scored(table.of_window(table.windows.names.index(name)))
        self.progressive = self.progressive.after(self.taken, found.merged)
        figures = self.progressive.figures()
        event = self.rank_events.evaluated(self.taken, found, self.clock)
        self.report(replace(event, window=name, progressive=figures))

    def _evaluate(self) -> None:
        assert self.valid_rows is not None
        found = self._scored(self.valid_rows)
        self.validated = True
        self.report(self.rank_events.evaluated(self.taken, found, self.clock))
        if self.validations is not None:
            stopping, plateau = self.spec.train.early_stopping, self.spec.train.reduce_on_plateau
            value = found.value(self.validations.metric)
            min_delta = 0.0 if stopping is None else stopping.min_delta
            after = self.validations.after(self.taken, value, min_delta, plateau)
            self._take_validations(after)
            self._save(found.value("auc"))

    def _scored(self, table: Table) -> Evaluation:
        with self.clock.phase("evaluate"):
            loader = self._loader(table, shuffle="none")
            pass_gate = partial(self._pass_gate, between_steps=False)
            try:
                with averaged(self.step):
                    return evaluate_over_ranks(
                        self.model,
                        loader,
                        self.device,
                        self.model.embeddings.peers,
                        self.spec.evaluate.max_auc_bound,
                        pass_gate,
                        self.own_metrics,
                    )
            # the last update made the weights unusable, after the last loss
            except NonFiniteOutput:
                raise NonFiniteLoss(self.taken, self.world.rank, math.nan) from None

    def _finish(self) -> None:
        """Save the model, and a last checkpoint if the job keeps one; report the end.

        If a refit follows, only save a checkpoint, with which the refit begins.
        """
        stopped_early = self.refit is None and self.taken < self.span.num_steps
        if stopped_early and self.world.rank == 0:
            self.report(self.rank_events.stopped_early(self.taken, self.validations))
        if self.refits_next:  # the refit begins with the values in this checkpoint
            self._save(wait=True)
            self.checkpoints.wait()
            return
        if self.control.stop_deadline is not None:
            self.control.stop_deadline.finished()
        if self.spec.checkpoint.at_end or self.validations is not None:
            self._save(wait=True)
        # On every rank: each provides its rows of sharded tables.
        with self.clock.phase("save"):
            self.checkpoints.wait()  # the writer may still read the weights themselves
            take_averages(self.step)
            model_step, own_steps = self._kept_steps()
            self._save_model(self.paths.model, own_steps)
        if self.world.rank == 0:
            self.report(ModelSaved(0, self.paths.place_of(self.paths.model), model_step))
        with self.clock.phase("checkpoint"):
            self.checkpoints.wait()
            self._close()
        self.report(self._finished())

    def _kept_steps(self) -> tuple[int, int]:
        """Load the weights of the best validation, except in a refit; a collective operation.

        Returns the step of the best validation (the last step if there is none, or its weights
        cannot be read), and the number of steps that made the weights to save. Both are equal,
        except in a refit, where the latter is the number of the second training's steps.
        """
        if self.refit is not None:
            return self.refit.found, self.taken - self.refit.taken
        best = self.checkpoints.restore_best(self.validations, self.taken)
        return best, best

    def _finished(self) -> RankFinished:
        stats, report = self.loader.stats, self.open_report
        if self.spent is not None:
            stats = total(self.spent.loader, stats)
            report.rows_trained += self.spent.rows
            report.exchanged_in_all += self.spent.exchange
        return self.rank_events.finished(self.taken, self.setup_s, stats, self.clock)

    def _save_model(self, folder: Path, step: int) -> None:
        """Save the model with its current weights; a collective operation.

        `step` is the number of steps that made the weights. Rank 0 also copies the workflow into
        the folder and, if the run is in an object store, uploads the folder. Raises `OutputError`
        if the folder cannot be written, and the errors of `put_model`.
        """
        slab_done = self.control.activity.count_slab
        save_model(
            folder,
            self.model,
            self.spec.model,
            self.inputs.schema,
            about=self.checkpoints.about(step),
            replace=self.attempt > 1,  # an earlier attempt may have saved it
            after_slab=slab_done,
        )
        if self.world.rank == 0:
            self.checkpoints.keep_workflow(folder)
            if self.paths.store:
                put_model(self.paths, folder, slab_done)

    def _close(self) -> None:
        self.checkpoints.close()
        self.step.release()
        if self.audit is not None:
            self.audit.close()

    def _loader(self, table: Table, *, shuffle: str) -> Loader:
        return job_loader(
            self.spec, self.inputs.schema, table, self.world, self.device, shuffle=shuffle
        )
