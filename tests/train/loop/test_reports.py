"""What a rank reports on its way, and when."""

from pathlib import Path
from threading import get_ident
from typing import ClassVar

import pytest
import torch
from small_jobs import make_spec
from trained import new_trainer, of_kind, trained

from distrain.jobs.events import CheckpointSaved, EvaluationDone, StepsDone
from distrain.launch.inline import run_inline
from distrain.train.step import device_metrics, host_copy, open_report
from distrain.train.step.open_report import NonFiniteLoss, OpenReport
from distrain.train.timing.phases import wait_of

INLINE = "resources={backend: inline, num_ranks: 1}"


def test_a_validation_knows_how_many_rows_were_trained_before_it(
    prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(
        prepared, INLINE, "train.max_steps=7", "train.log_every_steps=5", "evaluate.every_steps=3"
    )
    views = []
    run_inline(spec, tmp_path, "job", views.append)
    records = [record for view in views for record in view.records]
    assert [(r.split, r.step, r.rows_total) for r in records] == [
        ("train", 3, 600),
        ("valid", 3, 600),
        ("train", 5, 1000),
        ("train", 6, 1200),
        ("valid", 6, 1200),
        ("train", 7, 1400),
        ("valid", 7, 1400),
    ]
    assert [r.rows for r in records if r.split == "train"] == [600, 400, 200, 200]


def test_no_epoch_is_begun_that_is_not_trained_on(prepared: Path, tmp_path: Path) -> None:
    spec = make_spec(
        prepared,
        INLINE,
        "train={global_batch_size: 3500, epochs: 5, max_steps: 6, log_every_steps: 2147483647}",
        "evaluate.at_end=false",
    )
    trainer, _ = trained(spec, tmp_path)
    assert trainer.loader.num_steps == 3
    assert trainer.loader.stats.epochs == 2
    assert (
        len(trainer.open_report.tensors()["losses"]) == 6
    )  # not one place for each of two billion steps


class LateCopy(host_copy.HostCopy):
    """A copy that arrives when the host has asked for it twice, or waits."""

    waited_for: ClassVar[list[str]] = []

    def __init__(self, values):
        super().__init__(values)
        self._values, self._asked = self._copy, 0
        self._copy, self._event = torch.full_like(values, -1), self

    def query(self):
        self._asked += 1
        if self._asked > 2:
            self._copy.copy_(self._values)
        return self._asked > 2

    def synchronize(self):
        self._asked = 2
        self.waited_for.append(wait_of(get_ident()))
        assert self.query()


@pytest.fixture
def late_copies(monkeypatch):
    """Copies from the device arrive late; the reasons for which the host waited for one."""
    for module in (device_metrics, open_report):
        monkeypatch.setattr(module, "HostCopy", LateCopy)
    monkeypatch.setattr(LateCopy, "waited_for", [])
    return LateCopy.waited_for


LATE = (
    "train={global_batch_size: 200, max_steps: 11, log_every_steps: 4}",
    "evaluate={every_steps: 7, at_end: false}",
    "checkpoint={every_steps: 9, at_end: false}",
)


def reported(spec, root):
    """The events of a training, each with the steps that were taken when it was sent."""
    trainer, events = new_trainer(spec, root)
    sent = []
    trainer.report = lambda event: events.append(event) or sent.append((trainer.taken, event))
    trainer.run()
    return sent


def test_reports_are_sent_when_their_metrics_arrive(prepared, tmp_path, request):
    spec = make_spec(prepared, INLINE, *LATE)
    on_time = reported(spec, tmp_path / "on time")
    waited_for = request.getfixturevalue("late_copies")
    late = reported(spec, tmp_path / "late")
    steps = [
        [(taken, e.step) for taken, e in one if type(e) is StepsDone] for one in (on_time, late)
    ]
    assert steps[0] == [(4, 4), (7, 7), (8, 8), (11, 11)]
    # At a validation, a checkpoint and the end, the host waits.
    assert steps[1] == [(6, 4), (7, 7), (9, 8), (11, 11)]
    assert waited_for.count("peers") == 2 * 4  # losses and metrics of each report
    for kind in (StepsDone, EvaluationDone):
        ours, theirs = ([e.metrics for _, e in one if type(e) is kind] for one in (late, on_time))
        assert ours == theirs


def test_a_loss_that_arrives_late_stops_the_checkpoint(
    prepared, tmp_path, monkeypatch, late_copies
):
    add = OpenReport.add

    def add_infinite(self, step, routed, scores, loss_sum):
        add(self, step, routed, scores, loss_sum / (step != 7))

    monkeypatch.setattr(OpenReport, "add", add_infinite)
    trainer, events = new_trainer(make_spec(prepared, INLINE, *LATE), tmp_path)
    with pytest.raises(NonFiniteLoss, match="at step 8 on rank 0"):
        trainer.run()
    assert trainer.taken == 9
    assert [event.step for event in of_kind(events, StepsDone)] == [4, 7]
    assert of_kind(events, CheckpointSaved) == []
