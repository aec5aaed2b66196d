"""Repeatedly synchronises one cluster's scheduler with the jobs in the database.

Each cluster has a thread for this, so that a hanging cluster delays no other.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from distrain.errors import DistrainError
from distrain.jobs.spec.resources import DeadlinesSpec
from distrain.service.decisions.cluster_pass import Pass
from distrain.service.decisions.cluster_state import Memory
from distrain.service.reconcile.cluster_connection import Contact
from distrain.service.reconcile.cluster_world import ClusterWorld, collect_s
from distrain.service.store.store import Store
from distrain.service.values import Job, Phase, Quota

EVERY_S = 1.0
AGAIN_S = 0.1  # after a pass that must be followed immediately
REPORT_EVERY_S = 5.0
QUOTAS_EVERY_S = 5.0
_SPECS = 200  # specs read after one pass

log = logging.getLogger(__name__)


class ClusterLoop:
    """Makes a `Pass` over one cluster's jobs about once a second.

    Does so only while this process has the cluster's lock.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        world: ClusterWorld,
        contact: Contact,
        jobs_of_all: Callable[[], int],
    ):
        self.name = name
        self.num_jobs = 0  # jobs that have not ended; 0 without the lock
        self._jobs_of_all = jobs_of_all
        self.wake = threading.Event()  # set to start the next pass immediately
        self.pass_s = 0.0  # the longest pass since the cluster's last report
        self._store = store
        self._world, self._contact = world, contact
        self._memory = Memory(name)
        self._since: int | None = None
        self._waits = False  # whether another process has the cluster's lock
        self._told: Mapping[str, Any] = {}
        self._told_s = 0.0
        self._quotas: dict[str, Quota] = {}
        self._quotas_s: float | None = None
        # From specs, by job id and the number of its resumes: the fewest ranks with which the job
        # can start, and its deadlines, if it has some.
        self._needs: dict[tuple[str, int], tuple[int, DeadlinesSpec | None]] = {}
        self._needed = True
        self._wanted_workers: int | None = None
        self._trouble = ""

    def run(self, stop: threading.Event) -> None:
        """Make passes until `stop` is set.

        To stop a loop that waits, set its `wake` together with `stop`.
        """
        while not stop.is_set():
            began_s = time.monotonic()
            self.wake.clear()
            again = False
            try:
                again = self.turn()
                self._trouble = ""
            except DistrainError as error:
                if str(error) != self._trouble:
                    log.warning("cluster %s: %s", self.name, error)
                self._trouble = str(error)
            except Exception:  # an error in one cluster's loop must not end the others
                log.exception("cluster %s: the pass failed", self.name)
                self._memory = Memory(self.name)
            took_s = time.monotonic() - began_s
            self.pass_s = max(self.pass_s, took_s)
            self.wake.wait(AGAIN_S if again else max(AGAIN_S, EVERY_S - took_s))
        self._contact.close()

    def turn(self) -> bool:
        """Make a pass if this process has the lock; return True if another must follow at once."""
        before, self._since = self._since, self._store.locks.hold(f"cluster:{self.name}")
        if self._since is None:
            if not self._waits:
                log.info("cluster %s: another process reconciles it; this one waits", self.name)
            self._waits, self.num_jobs = True, 0
            return False
        self._waits = False
        if before != self._since:
            self._memory = Memory(self.name)
            self._wanted_workers = None
        self._contact.look(is_needed=self._needed)
        self._scale()
        self._world.scheduler, self._world.trouble = self._contact.client, self._contact.trouble
        self._world.collect_s = collect_s(self._jobs_of_all())
        now_s = self._store.now_s()
        one = self._new_pass(now_s)
        one.run()
        alive = [job for job in one.rows.values() if job.phase is not Phase.FINAL]
        self._needed, self.num_jobs = bool(alive), len(alive)
        if one.wanted_workers is not None:
            self._wanted_workers = one.wanted_workers
        self._write_state(alive, now_s)
        self._read_specs(alive)
        return one.active

    def _new_pass(self, now_s: float) -> Pass:
        clock_s, scaling = time.monotonic(), self._contact.scaling
        if self._quotas_s is None or clock_s - self._quotas_s >= QUOTAS_EVERY_S:
            self._quotas = {project.name: project.quota for project in self._store.projects()}
            self._quotas_s = clock_s
        return Pass(
            self._world,
            self._memory,
            self._store.service_id,
            now_s,
            quotas=self._quotas,
            min_ranks={job_id: least for (job_id, _), (least, _) in self._needs.items()},
            deadlines={job_id: ends for (job_id, _), (_, ends) in self._needs.items() if ends},
            starting=self._contact.starting,
            most_workers=self._contact.most_workers,
            growth=scaling.words if scaling else "",
        )

    def _scale(self) -> None:
        scaling, memory = self._contact.scaling, self._memory
        if scaling is None or self._wanted_workers is None:
            return
        there = in_use = None
        if memory.answers:
            there, in_use = memory.workers.total, memory.workers.usable - memory.workers.free
        scaling.look(self._wanted_workers, there=there, in_use=in_use)

    def _read_specs(self, alive: list[Job]) -> None:
        """Read from specs what later passes need: of queued jobs, and of jobs with several ranks.

        At most `_SPECS` specs are read per call; each submission's spec is read once. `alive` are
        the cluster's jobs that have not ended.
        """
        known = self._needs
        wanted = {
            (job.id, job.resumes): job.num_ranks
            for job in alive
            if job.num_ranks > 1 or job.phase is Phase.QUEUED
        }
        for gone in known.keys() - wanted.keys():
            del known[gone]
        new = sorted(wanted.keys() - known.keys())[:_SPECS]
        specs = self._store.specs([job_id for job_id, _ in new]) if new else {}
        for key in new:
            spec = specs.get(key[0], {})
            least = (spec.get("resources") or {}).get("min_ranks") or wanted[key]
            known[key] = int(least), _deadlines_in(spec)

    def _write_state(self, alive: list[Job], now_s: float) -> None:
        """Write the cluster's state to the database.

        It is written if it has changed, and at least every `REPORT_EVERY_S`. Changes of times,
        counts of jobs and wanted workers alone wait for the next regular write.
        """
        memory, contact = self._memory, self._contact
        scaling = contact.scaling
        state = {
            "reachable": memory.answers,
            "trouble": "" if memory.answers else memory.trouble,
            "starting": contact.starting,
            "epoch": memory.epoch,
            "url": contact.url,
            "workers": asdict(memory.workers) if memory.answers else None,
            "wanted_workers": self._wanted_workers,
            "message": scaling.words if scaling else "",
            "jobs": len(alive),
            "pass_s": round(self.pass_s, 3),
        }
        steady = ("reachable", "epoch", "starting", "workers", "trouble", "message")
        same = all(state[name] == self._told.get(name, "") for name in steady)
        clock_s = time.monotonic()
        if same and clock_s - self._told_s < REPORT_EVERY_S:
            return
        heard_s = now_s if memory.answers else None
        self._store.put_cluster(self.name, state, heard_s)
        self._told, self._told_s, self.pass_s = state, clock_s, 0.0


def _deadlines_in(spec: Mapping[str, Any]) -> DeadlinesSpec | None:
    """Return the total and queue deadline of a stored spec; `None` if it has neither."""
    stored = spec.get("deadlines") or {}
    limits: dict[str, Any] = {name: stored.get(name) for name in ("queue_s", "total_s")}
    return DeadlinesSpec.model_construct(**limits) if any(limits.values()) else None
