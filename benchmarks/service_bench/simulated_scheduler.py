"""A scheduler's HTTP server with the real routes, whose jobs only pretend to train.

Run it as a program: `python FILE [PORT [WORKERS [JOB_S]]]`.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_JOBS = 100
_FINAL = ("succeeded", "failed", "cancelled")


@dataclass
class FakeJob:
    """A job: it starts when workers are free, takes a step per second, and succeeds."""

    job_id: str
    order: dict[str, Any]
    number: int
    state: str = "pending"
    attempt: int = 0
    started_s: float | None = None
    revision: int = 0
    untold: list[int] = field(default_factory=list)  # steps of reports that have no revision yet
    why_pending: str = "no workers"
    message: str | None = None

    @property
    def num_ranks(self) -> int:
        return int((self.order["spec"].get("resources") or {}).get("num_ranks", 1))

    @property
    def is_final(self) -> bool:
        return self.state in _FINAL

    def document(self, step: int) -> dict[str, Any]:
        cancelled = "Cancelled" if self.state == "cancelled" else None
        return {
            "id": self.job_id,
            "name": "fake",
            "state": self.state,
            "attempt": self.attempt,
            "num_ranks": self.num_ranks,
            "reason": cancelled,
            "message": self.message or ("as asked" if cancelled else None),
            "why_pending": self.why_pending if self.state == "pending" else "",
            "run_dir": self.order["run_dir"],
            "service": self.order["service"],
            "first_attempt": self.order["first_attempt"],
            "priority": self.order.get("priority") or 0,
            "recorded": self.is_final,
            "num_steps": 100,
            "step": step,
            "auc": 0.78,
            "valid_auc": 0.61,
        }


@dataclass
class FakeScheduler:
    """A scheduler in this process; `with` serves it on its own port.

    Attributes:
        started: How often each attempt of each job was started, over all boots.
        job_s: Seconds that a job runs, by `clock`; `None`: until `end` is called.
        orders: The number of orders received, by kind.
        lose_answers: Whether orders are carried out, but their connections are closed without a
            response.
        gate: While it is not set, requests are read but not answered.
    """

    num_workers: int = 8
    job_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    boots: int = 1
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    started: Counter[tuple[str, int]] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    lose_answers: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    revision: int = 0
    port: int = 0
    collected_s: float = 0.0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.gate.set()
        self._server: _Server | None = None

    @property
    def epoch(self) -> str:
        return f"boot-{self.boots}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "FakeScheduler":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self.shut()

    def open(self) -> None:
        """Listen, on the same port as before if it was open."""
        fake = self

        class Handler(_Handler):
            scheduler = fake

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def shut(self) -> None:
        """Stop: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.close_all()
            self._server.server_close()
            self._server = None

    def reboot(self) -> None:
        """Lose all jobs, as a restarted scheduler does."""
        with self._lock:
            self.boots += 1
            self.revision = 0
            self.jobs.clear()

    def end(self, job_id: str, state: str = "succeeded") -> None:
        """End a job in the given state."""
        with self._lock:
            job = self.jobs[job_id]
            job.state = state
            self._stamp(job)

    def handle(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and document for one request."""
        url = urlsplit(path)
        parts = url.path.removeprefix("/distrain/v1/").split("/")
        with self._lock:
            self._move()
            if method == "GET":
                query = parse_qs(url.query)
                collect_s = 1e-3 * int(query.get("collect_ms", ["0"])[0])
                epoch = query.get("epoch", [""])[0]
                return 200, self._changes(int(query["since"][0]), epoch, collect_s)
            kind = parts[2] if len(parts) > 2 else {"PATCH": "priority"}.get(method, "put")
            self.orders[kind] += 1
            return self._order(kind, parts[1], body)

    def _order(self, kind: str, job_id: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        job = self.jobs.get(job_id)
        if kind == "put":
            return self._put(job, job_id, body)
        if job is None:
            return 404, {"code": "not_found", "detail": "no such job"}
        if job.is_final:
            return self._ended(job)
        if kind == "cancel":
            job.state = "cancelled"
        elif job.state != "pending":
            return 409, {"code": "not_pending", "detail": f"it is {job.state}"}
        else:
            job.order["priority"] = body["priority"]
        self._stamp(job)
        return 202, {}

    def _put(
        self, job: FakeJob | None, job_id: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if body["epoch"] != self.epoch:
            return 409, {"code": "epoch_changed", "detail": "another boot", "epoch": self.epoch}
        if job is not None and not job.is_final:
            return 200, job.document(0)
        if job is not None and body["first_attempt"] <= job.attempt:
            return self._ended(job)
        job = FakeJob(job_id, body, len(self.jobs))
        self.jobs[job_id] = job
        self._stamp(job)
        self._move()
        return 201, job.document(0)

    def _ended(self, job: FakeJob) -> tuple[int, dict[str, Any]]:
        ended = {"id": job.job_id, "state": job.state, "attempt": job.attempt}
        return 410, {"code": "ended", "detail": "it has ended", "job": ended}

    def _changes(self, since: int, epoch: str, collect_s: float) -> dict[str, Any]:
        since = since if epoch == self.epoch else 0
        is_due = time.monotonic() - self.collected_s >= collect_s
        for job in self.jobs.values():
            if job.untold and (is_due or job.revision > since):
                self._stamp(job)
                self.collected_s = time.monotonic() if is_due else self.collected_s
        changed = sorted(
            (job for job in self.jobs.values() if job.revision > since), key=lambda j: j.revision
        )
        told, more = changed[:MOST_JOBS], len(changed) > MOST_JOBS
        used = sum(job.num_ranks for job in self.jobs.values() if job.state == "running")
        total = self.num_workers
        return {
            "epoch": self.epoch,
            "revision": told[-1].revision if more else self.revision,
            "more": more,
            "workers": {"total": total, "usable": total, "free": total - used, "gpus": 0},
            "jobs": [job.document(self._step(job)) for job in told],
        }

    def _step(self, job: FakeJob) -> int:
        return 0 if job.started_s is None else int(self.clock() - job.started_s)

    def _move(self) -> None:
        """Start and end jobs according to the time and the free workers."""
        now_s = self.clock()
        free = self.num_workers
        for job in self.jobs.values():
            if job.state == "running":
                assert job.started_s is not None
                if self.job_s is not None and now_s - job.started_s >= self.job_s:
                    job.state = "succeeded"
                    self._stamp(job)
                else:
                    free -= job.num_ranks
        pending = [job for job in self.jobs.values() if job.state == "pending"]
        pending.sort(key=lambda job: (-(job.order.get("priority") or 0), job.number))
        for job in pending:
            if job.num_ranks > free:
                return
            free -= job.num_ranks
            job.attempt = max(job.attempt + 1, job.order["first_attempt"])
            job.state, job.started_s = "running", now_s
            self.started[job.job_id, job.attempt] += 1
            self._stamp(job)

    def report(self) -> None:
        """Give all running jobs a new report."""
        with self._lock:
            for job in self.jobs.values():
                if job.state == "running":
                    job.untold.append(self._step(job))

    def _stamp(self, job: FakeJob) -> None:
        self.revision += 1
        job.revision = self.revision
        job.untold.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True

    def __init__(self, *args: Any):
        self.open_sockets: set[Any] = set()
        super().__init__(*args)

    def close_all(self) -> None:
        for one in list(self.open_sockets):
            try:
                one.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: clients may disconnect."""


class _Handler(BaseHTTPRequestHandler):
    scheduler: FakeScheduler
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.server.open_sockets.add(self.connection)  # type: ignore[attr-defined]

    def finish(self) -> None:
        super().finish()
        self.server.open_sockets.discard(self.connection)  # type: ignore[attr-defined]

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        self.scheduler.gate.wait()
        status, document = self.scheduler.handle(self.command, self.path, body)
        if self.scheduler.lose_answers and self.command != "GET":
            self.close_connection = True
            return
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_PATCH = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


if __name__ == "__main__":
    words = [*sys.argv[1:], "0", "8", "60"][:3] if len(sys.argv) == 1 else sys.argv[1:]
    words += ["8", "60"][len(words) - 1 :]
    with FakeScheduler(int(words[1]), float(words[2]), port=int(words[0])) as fake:
        print(fake.url, flush=True)
        threading.Event().wait()
