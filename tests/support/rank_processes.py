"""Real rank processes, held as a supervisor would: events from a pipe, commands into stdin."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.jobs.spec import JobSpec

LONG_S = 120.0


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


class HeldRank:
    """One rank's process.

    Args:
        assignment: Its work.
        prelude: Python that is run first, in its process.
    """

    def __init__(self, assignment: Assignment, prelude: str = ""):
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        read_fd, write_fd = os.pipe()
        log_path = assignment.paths.log(assignment.world.rank, assignment.attempt)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        code = f"{prelude}\nfrom distrain.train.rank.process import main\nmain()"
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, str(write_fd), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_fd,),
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                text=True,
            )
        os.close(write_fd)
        self._log_path = log_path
        self._reader = threading.Thread(target=self._read, args=(read_fd,), daemon=True)
        self._reader.start()
        self.say(assignment.dumps())

    def _read(self, fd: int) -> None:
        with os.fdopen(fd) as pipe:
            for line in pipe:
                event = json.loads(line)
                with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()

    def say(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def command(self, **words: Any) -> None:
        """Give it a command."""
        self.say(json.dumps(words))

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Its events of a kind so far."""
        with self._changed:
            return of_kind(self.events, kind)

    def wait_for(self, kind: str, is_it: Callable[[dict[str, Any]], bool] = bool) -> dict[str, Any]:
        """The first event of a kind that is as wanted; waits for it."""
        deadline_s = time.monotonic() + LONG_S
        with self._changed:
            while True:
                for event in self.events:
                    if event["kind"] == kind and is_it(event):
                        return event
                left_s = deadline_s - time.monotonic()
                ended = self.process.poll() is not None and not self._reader.is_alive()
                assert left_s > 0, f"no such {kind}: {self.events[-5:]}"
                assert not ended, (
                    f"it ended: {self.events[-3:]} {self._log_path.read_text()[-3000:]}"
                )
                self._changed.wait(min(left_s, 0.5))

    def end(self) -> int:
        """Wait for its end; its exit code."""
        code = self.process.wait(LONG_S)
        self._reader.join(LONG_S)
        return code

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        self._reader.join(LONG_S)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def assignment_of(
    spec: JobSpec, run_dir: Path, rank: int = 0, port: int | None = None, attempt: int = 1
) -> Assignment:
    """The work of one rank of a job."""
    return Assignment(
        "job",
        attempt,
        World(rank, spec.resources.num_ranks),
        spec.model_dump(mode="json"),
        str(run_dir),
        Rendezvous("127.0.0.1", port, f"job/{attempt}") if port is not None else None,
    )
