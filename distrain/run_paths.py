"""The names of runs, and of everything in a run directory."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from distrain.errors import InputError

_ATTEMPT = "attempt-"


@dataclass(frozen=True)
class RunPaths:
    """One training run's files; nobody else spells these names.

    >>> RunPaths(Path("runs/a")).log(rank=1, attempt=2).as_posix()
    'runs/a/logs/attempt-2/rank-1.log'
    """

    root: Path

    @property
    def spec(self) -> Path:
        """The job spec as resolved."""
        return self.root / "spec.yaml"

    @property
    def run(self) -> Path:
        """Whose run this is: the job's id, when it was made, by which version, on what machine."""
        return self.root / "run.json"

    @property
    def metrics(self) -> Path:
        """One JSON line per merged progress record."""
        return self.root / "metrics.jsonl"

    @property
    def progress(self) -> Path:
        """How the run stands as one JSON document, until it has a summary."""
        return self.root / "progress.json"

    @property
    def tables(self) -> Path:
        """Which row groups there are, as the command found them, for the ranks."""
        return self.root / "tables.zip"

    @property
    def summary(self) -> Path:
        """The run's outcome as one JSON document."""
        return self.root / "summary.json"

    @property
    def curves(self) -> Path:
        """Loss, AUC, rows/s and stalls as a picture."""
        return self.root / "curves.png"

    @property
    def report(self) -> Path:
        """The run on one page for people; written when somebody asks for it."""
        return self.root / "report.html"

    @property
    def model(self) -> Path:
        """The folder of the saved model."""
        return self.root / "model"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, unless the spec names another place."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """The folder of what the ranks printed, attempt by attempt."""
        return self.root / "logs"

    @property
    def audits(self) -> Path:
        """The folder of the hashes of the rows that were trained, attempt by attempt."""
        return self.root / "audit"

    def log(self, rank: int, attempt: int) -> Path:
        """What one rank printed."""
        return self.logs / f"{_ATTEMPT}{attempt}" / f"rank-{rank}.log"

    def stacks(self, rank: int, attempt: int) -> Path:
        """Where one rank's Python stacks are written when they are asked for."""
        return self.logs / f"{_ATTEMPT}{attempt}" / f"rank-{rank}.stacks"

    def reports(self, rank: int, attempt: int) -> Path:
        """The progress that one rank reported, in case nobody lived to record it."""
        return self.logs / f"{_ATTEMPT}{attempt}" / f"rank-{rank}.reports"

    def audit(self, rank: int, attempt: int) -> Path:
        """Hashes of the rows that one rank trained."""
        return self.audits / f"{_ATTEMPT}{attempt}" / f"rank-{rank}.rows"

    def attempts(self) -> tuple[int, ...]:
        """The attempts that left logs or hashes, the oldest first."""
        names = [path.name for folder in (self.logs, self.audits) for path in _inside(folder)]
        numbers = {name.removeprefix(_ATTEMPT) for name in names if name.startswith(_ATTEMPT)}
        return tuple(sorted(int(number) for number in numbers if number.isdecimal()))


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def check_run_dir(paths: RunPaths) -> None:
    """Raise if there is no such folder.

    Raises:
        InputError: There is none.
    """
    if not paths.root.is_dir():
        raise InputError(
            "no such folder" if not paths.root.exists() else "this is no folder",
            where={"path": str(paths.root)},
            hint="Name the directory of a run, as `distrain train` printed it.",
        )


def new_job_id(name: str, now: datetime | None = None) -> str:
    """A job's id, which also names its run directory: name, start, and a few random letters.

    >>> new_job_id("dlrm", datetime(2026, 3, 1, 12, 30))[:-4]
    'dlrm-20260301-123000-'
    """
    moment = now or datetime.now()
    return f"{name}-{moment:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
