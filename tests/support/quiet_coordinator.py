"""A coordinator without a scheduler: its jobs wait for ever, or are ended by tests."""

import time
from collections.abc import Callable
from unittest.mock import Mock

from distrain.jobs.events import CheckpointTrouble, to_json
from distrain.jobs.spec import parse_spec
from distrain.scheduler.http.changes import Changes
from distrain.scheduler.job_list import Tombstones
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.monitor import Monitor
from distrain.scheduler.plugin import CoordinatorPlugin
from distrain.scheduler.recording import Recordings

SPEC = parse_spec({"name": "clicks", "data": {"train": "/nowhere"}, "model": {"kind": "mlp"}})


def quiet_coordinator() -> CoordinatorPlugin:
    """A coordinator that nobody reports to."""
    coordinator = CoordinatorPlugin()
    coordinator.epoch = "one"
    coordinator.lifecycle, coordinator.tombstones = Lifecycle(), Tombstones()
    coordinator.recordings = Recordings(lambda worker, message: True)
    coordinator.collectors, coordinator.histories = {}, {}
    coordinator.scheduler = Mock(workers={})
    return coordinator


def watched_changes(
    coordinator: CoordinatorPlugin, clock: Callable[[], float] = time.monotonic
) -> Changes:
    """The changes of its jobs, as the HTTP routes serve them."""
    return Changes(Monitor(coordinator), clock)


def say(coordinator: CoordinatorPlugin, job_id: str, *texts: str) -> None:
    """Have a rank tell of something, which adds entries to the job's progress."""
    attempt = coordinator.lifecycle.jobs[job_id].attempt
    for text in texts:
        coordinator.rank_reported(job_id, attempt, to_json(CheckpointTrouble(0, text)))
