"""Trains runs of one spec that differ only by their seed, as the members of an ensemble."""

from collections.abc import Callable
from pathlib import Path

from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec
from distrain.launch.reporting import Progress
from distrain.launch.run import make_request, train
from distrain.launch.spec_folder import claim_folder
from distrain.runs.run_file import has_succeeded


def train_seeds(
    spec: JobSpec, folder: Path, count: int, progress_of: Callable[[str], Progress]
) -> list[Path]:
    """Train a spec with `count` consecutive seeds, from `train.seed` on; return the run folders.

    A run that has succeeded is not repeated. An interrupted run resumes from its checkpoint.

    Args:
        folder: The folder of the run folders, `seed-SEED`, and of the spec.
        progress_of: Called before each run with a line about it; returns its progress reporter.

    Raises:
        InputError: The folder has runs of another spec.
        JobError: A run failed.
    """
    claim_folder(
        folder,
        spec.model_dump(mode="json"),
        parse_spec,
        holds="has runs of another spec",
        hint="Give the spec as before, or another --out.",
    )
    roots: list[Path] = []
    for seed in range(spec.train.seed, spec.train.seed + count):
        root = folder / f"seed-{seed}"
        if not has_succeeded(RunPaths(root)):
            progress = progress_of(f"run {len(roots) + 1} of {count}, seed {seed}, in {root}")
            train(make_request(root, _seeded(spec, seed)), progress)
        roots.append(root)
    return roots


def _seeded(spec: JobSpec, seed: int) -> JobSpec:
    return parse_spec(spec.model_dump(mode="json"), [f"train.seed={seed}"])
