"""Jobs of a service, and what their attempts report."""

from collections.abc import Sequence
from pathlib import Path

from distrain.jobs.job_view import AttemptStarted, Entry, Notice, Record
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.values import Job

SPEC = {
    "data": {"train": ["/data/day_0"]},
    "model": {"kind": "mlp"},
    "name": "clicks",
    "resources": {"num_ranks": 2},
}
EVERY = 5


def settings_in(folder: Path, clusters: Sequence[str] = ("main",)) -> Settings:
    """A service whose clusters have their run roots in a folder."""
    profiles = {
        name: ClusterProfile(kind="address", url="http://127.0.0.1:8787", run_root=folder / name)
        for name in clusters
    }
    return Settings(data_dir=folder / "serve", clusters=profiles)


def job_in(
    settings: Settings, job_id: str = "clicks-1", cluster: str = "main", first_attempt: int = 1
) -> Job:
    """A job's row."""
    run_dir = settings.run_root(cluster) / "default" / job_id
    return Job(
        id=job_id,
        seq=1,
        project="default",
        owner="alice",
        name="clicks",
        cluster=cluster,
        priority=0,
        num_ranks=2,
        run_dir=str(run_dir),
        created_at_s=0.0,
        first_attempt=first_attempt,
    )


def record(attempt: int, step: int, split: str = "train") -> Record:
    """A record with figures that tell attempts apart."""
    figures = (step, 10, 10 * step, 1.0 * step, 5.0, 0.1 * attempt, 0.9, 0.7, 1e-4)
    return Record(split, 0, *figures, attempt=attempt)


def attempt_entries(attempt: int, begin: int, end: int) -> list[Entry]:
    """What an attempt tells that goes on from `begin` and is lost after `end`."""
    entries: list[Entry] = [AttemptStarted(attempt, begin, 2)]
    for step in range(EVERY * (begin // EVERY) + EVERY, end + 1, EVERY):
        entries.append(record(attempt, step))
        if step % (2 * EVERY) == 0:
            entries += [record(attempt, step, "valid"), Notice("the disk is nearly full")]
    return entries
