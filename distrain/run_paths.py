"""The names of runs, and of everything in a run directory."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """One training run's files; nobody else spells these names.

    >>> RunPaths(Path("runs/a")).log(rank=1).as_posix()
    'runs/a/logs/rank-1.log'
    """

    root: Path

    @property
    def spec(self) -> Path:
        """The job spec as resolved."""
        return self.root / "spec.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON line per merged progress record."""
        return self.root / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The run's outcome as one JSON document."""
        return self.root / "summary.json"

    @property
    def curves(self) -> Path:
        """Loss, AUC, rows/s and stalls as a picture."""
        return self.root / "curves.png"

    @property
    def model(self) -> Path:
        """The folder of the saved model."""
        return self.root / "model"

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        return self.root / "logs"

    def log(self, rank: int) -> Path:
        """What one rank printed."""
        return self.logs / f"rank-{rank}.log"


def new_job_id(name: str, now: datetime | None = None) -> str:
    """A job's id, which also names its run directory: name, start, and a few random letters.

    >>> new_job_id("dlrm", datetime(2026, 3, 1, 12, 30))[:-4]
    'dlrm-20260301-123000-'
    """
    moment = now or datetime.now()
    return f"{name}-{moment:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
