"""Documents as the scheduler would serve them, made by hand."""

from typing import Any

PHASE_SECONDS = {"data_wait": 1.0, "forward_backward": 2.0, "exchange": 0.5, "other": 0.5}


def job(job_id: str = "a-1", state: str = "running", **fields: Any) -> dict[str, Any]:
    """One entry of the document of all jobs."""
    return {
        "id": job_id, "name": "clicks", "tags": {}, "state": state, "reason": None,
        "message": None, "why_pending": None, "attempt": 1, "num_ranks": 2, "step": 30,
        "num_steps": 120, "epoch": 0, "rows_total": 6_000, "total_rows": 24_000,
        "rows_per_s": 1_234.5, "loss": 0.5, "auc": 0.75, "auc_bound": 0.001, "valid_loss": None,
        "valid_auc": None, "valid_auc_bound": None, "stall_mean_pct": 3.25,
        "stall_max_pct": 4.5, "stall_pct": 3.25, "elapsed_s": 8.0, "eta_s": 75.0,
        "created_at": "1970-01-01T00:00:01Z", "restarts": 0, "checkpoints": 2, "run_dir": "/runs/a",
        **fields,
    }  # fmt: skip


def rank(number: int, step_time_s: float = 0.01, **fields: Any) -> dict[str, Any]:
    """One rank of the document of one job."""
    return {
        "rank": number, "worker": f"w{number}", "host": "host", "pid": 1, "device": "cpu",
        "doing": "exchange", "waiting_for": "", "step": 30, "rows_per_s": 600.0,
        "step_time_s": step_time_s, "seconds": {"data_wait": 1.0},
        "total_seconds": dict(PHASE_SECONDS), "stall_pct": 3.0, "gpu": None, "memory": {}, **fields,
    }  # fmt: skip


def curve(first: int, last: int) -> dict[str, list[Any]]:
    """The columns of training from one step to another."""
    steps = list(range(first, last + 1))
    return {
        "step": steps,
        "elapsed_s": [0.5 * step for step in steps],
        "rows_total": [200 * step for step in steps],
        "rows_per_s": [400.0 for _ in steps],
        "loss": [1.0 / step for step in steps],
        "auc": [0.5 + 0.001 * step for step in steps],
        "auc_bound": [0.01 for _ in steps],
        "stall_mean_pct": [1.0 for _ in steps],
        "stall_max_pct": [2.0 for _ in steps],
        "stall_pct": [1.0 for _ in steps],
        "lr": [0.1 for _ in steps],
    }


class MadeDocuments:
    """Jobs that a test moves on by hand.

    Args:
        jobs: Entries of the document of all jobs, newest first.
        num_ranks: Ranks of each.
    """

    def __init__(self, *jobs: dict[str, Any], num_ranks: int = 2):
        self.entries = list(jobs)
        self.num_ranks = num_ranks
        self.steps = {entry["id"]: 1 for entry in jobs}
        self.valid: dict[str, float] = {}  # the loss of one validation
        self.generation = 1
        self.asked: list[tuple[str, str | None]] = []

    def jobs(self) -> dict[str, Any]:
        return {"jobs": [dict(entry) for entry in self.entries]}

    def job(self, job_id: str) -> dict[str, Any] | None:
        entry = next((e for e in self.entries if e["id"] == job_id), None)
        if entry is None:
            return None
        ranks = [rank(number) for number in range(self.num_ranks)]
        moment = {"at_s": 1.0, "kind": "state", "attempt": 1, "step": None, "text": "pending"}
        slowest = {"rank": 1, "step_time_s": 0.012, "median_step_time_s": 0.01}
        return {
            "spec": {"name": entry["name"]}, "slowest": slowest, "timeline": [moment], **entry,
            "ranks": ranks,
        }  # fmt: skip

    def metrics(self, job_id: str, since: str | None = None) -> dict[str, Any]:
        self.asked.append((job_id, since))
        generation, _, number = (since or "0.0").partition(".")
        restart = int(generation) != self.generation
        first, last = 1 if restart else int(number), self.steps[job_id]
        return {
            "cursor": f"{self.generation}.{last + 1}",
            "restart": restart,
            "train": curve(first, last),
            "valid": self._valid(job_id, last),
        }

    def _valid(self, job_id: str, step: int) -> dict[str, list[Any]]:
        found = curve(step, step)
        if job_id not in self.valid:
            return {name: [] for name in found}
        return {**found, "loss": [self.valid[job_id]]}
