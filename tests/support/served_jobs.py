"""Jobs of a service, and what their attempts report."""

from distrain.jobs.job_view import Record

SPEC = {
    "data": {"train": ["/data/day_0"]},
    "model": {"kind": "mlp"},
    "name": "clicks",
    "resources": {"num_ranks": 2},
}


def record(attempt: int, step: int, split: str = "train") -> Record:
    """A record with figures that tell attempts apart."""
    figures = (step, 10, 10 * step, 1.0 * step, 5.0, 0.1 * attempt, 0.9, 0.7, 1e-4)
    return Record(split, 0, *figures, attempt=attempt)
