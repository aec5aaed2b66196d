"""Trains runs of one spec that differ only by their seed, as the members of an ensemble."""

from collections.abc import Callable
from pathlib import Path

from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml, parse_spec, parse_yaml
from distrain.launch.reporting import Progress
from distrain.launch.run import request_in, train
from distrain.runs.run_file import read_summary
from distrain.storage.outputs import whole_file


def train_seeds(
    spec: JobSpec, folder: Path, count: int, progress_of: Callable[[str], Progress]
) -> list[Path]:
    """Train a spec with `count` consecutive seeds, its own first; return the run directories.

    A run that has succeeded is not repeated. An interrupted run resumes from its checkpoint.

    Args:
        folder: The folder of the run directories, `seed-SEED`, and of the spec.
        progress_of: Called before each run with a line about it; returns its progress reporter.

    Raises:
        InputError: The folder has runs of another spec.
        JobError: A run failed.
    """
    _claim(folder, spec)
    roots: list[Path] = []
    for seed in range(spec.train.seed, spec.train.seed + count):
        root = folder / f"seed-{seed}"
        if (read_summary(RunPaths(root)) or {}).get("state") != "succeeded":
            progress = progress_of(f"run {len(roots) + 1} of {count}, seed {seed}, in {root}")
            train(request_in(root, _seeded(spec, seed)), progress)
        roots.append(root)
    return roots


def _seeded(spec: JobSpec, seed: int) -> JobSpec:
    return parse_spec(spec.model_dump(mode="json"), [f"train.seed={seed}"])


def _claim(folder: Path, spec: JobSpec) -> None:
    """Write the spec to the folder; raise `InputError` if the folder has another spec."""
    place = folder / "spec.yaml"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as file:
            file.write_text(dump_yaml(spec.model_dump(mode="json")))
    if parse_spec(parse_yaml(place.read_text())) != spec:
        raise InputError(
            "the folder has runs of another spec",
            where={"path": str(folder)},
            hint="Give the spec as before, or another --out.",
        )
