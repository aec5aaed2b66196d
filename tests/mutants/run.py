"""How many small wrong edits of the core its tests notice.

    python tests/mutants/run.py [--mutants 150] [--seed 1] [--jobs 2] [--only distrain/metrics]

Draws edits (`mutants_of.py`) from the modules of `CORE`, makes each in a copy of the tree, and runs
the tests that stand beside its module there. A mutant is killed when they fail or hang. It prints
the survivors, and a JSON object as its last line. It is no part of `make test`: 150 mutants take
half an hour on two cores.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

from mutants_of import Mutation, mutations  # noqa: E402

GOAL = 0.9

CORE = {
    "distrain/loader/partition/plan.py": "tests/loader/partition",
    "distrain/loader/partition/pieces.py": "tests/loader/partition",
    "distrain/loader/partition/order.py": "tests/loader/partition tests/loader/test_laws.py",
    "distrain/loader/filling/schedule.py": "tests/loader/test_schedule.py "
    "tests/loader/test_dealing.py tests/loader/test_laws.py",
    "distrain/loader/filling/fill_numpy.py": "tests/loader/test_fill.py "
    "tests/loader/test_fill_values.py tests/loader/test_list_kernels.py",
    "distrain/loader/delivery/channel.py": "tests/loader/test_channel.py "
    "tests/loader/test_stream.py",
    "distrain/metrics/bins.py": "tests/metrics",
    "distrain/metrics/binary.py": "tests/metrics",
    "distrain/metrics/report.py": "tests/metrics",
    "distrain/metrics/exact.py": "tests/metrics",
    "distrain/metrics/grouped.py": "tests/metrics",
    "distrain/prep/operators/categorify.py": "tests/prep/test_operators.py",
    "distrain/prep/vocabulary.py": "tests/prep/test_operators.py tests/prep/test_counting.py "
    "tests/prep/test_lookups.py tests/prep/test_workflow.py",
    "distrain/prep/operators/numbers.py": "tests/prep/test_operators.py",
    "distrain/prep/features/staging.py": "tests/prep/test_text_blocks.py "
    "tests/prep/test_features.py tests/prep/test_labels.py tests/prep/test_unlabeled.py",
    "distrain/prep/text_files/pieces.py": "tests/prep/test_text_blocks.py "
    "tests/prep/test_compressed_ranges.py",
    "distrain/prep/fitting.py": "tests/prep/test_prepare.py tests/prep/test_workflow.py "
    "tests/prep/test_days.py",
    "distrain/train/checkpoint/manifest.py": "tests/train/checkpoint/test_damage.py "
    "tests/train/checkpoint/test_manifests.py tests/train/checkpoint/test_writer.py",
    "distrain/train/checkpoint/ownership.py": "tests/train/checkpoint/test_ownership.py",
    "distrain/train/checkpoint/checkpoint_dir.py": "tests/train/checkpoint/test_retention.py "
    "tests/train/checkpoint/test_damage.py tests/train/checkpoint/test_ownership.py "
    "tests/train/checkpoint/test_resume_reads.py",
    "distrain/train/checkpoint/checkpoint_write.py": "tests/train/checkpoint/test_writer.py "
    "tests/train/checkpoint/test_killed.py tests/train/checkpoint/test_any_placement.py",
    "distrain/train/checkpoint/local_rows.py": "tests/train/checkpoint/test_rows.py "
    "tests/train/checkpoint/test_any_placement.py",
    "distrain/scheduler/lifecycle/lifecycle.py": "tests/scheduler/lifecycle/test_job_states.py "
    "tests/scheduler/lifecycle/test_job_stories.py tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_machine_rules.py",
    "distrain/scheduler/lifecycle/queue.py": "tests/scheduler/lifecycle/test_place_gang.py "
    "tests/scheduler/lifecycle/test_job_states.py tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_stories.py "
    "tests/scheduler/lifecycle/test_job_machine_rules.py",
    "distrain/scheduler/lifecycle/verdict.py": "tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_states.py tests/scheduler/lifecycle/test_job_stories.py",
    "distrain/scheduler/lifecycle/watchdog.py": "tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_states.py tests/scheduler/lifecycle/test_job_stories.py",
    "distrain/runs/records/collector.py": "tests/runs/records/test_collector.py",
    "distrain/runs/records/merging.py": "tests/runs/records/test_collector.py",
    "distrain/runs/records/entries.py": "tests/runs/records/test_entries.py",
    "distrain/models/embeddings/sparse_optimizer.py": ""
    "tests/models/embeddings/test_sparse_optimizer.py "
    ""
    "tests/models/embeddings/test_stochastic.py tests/models/embeddings/test_collection.py",
    "distrain/models/embeddings/sharding/planner.py": "tests/models/embeddings/test_sharding.py",
    "distrain/models/embeddings/kernels/dispatch.py": "tests/models/embeddings/test_collection.py "
    "tests/models/embeddings/test_kernels.py tests/models/embeddings/test_initial.py "
    "tests/models/embeddings/test_kernel_updates.py "
    "tests/models/embeddings/test_route_host_work.py",
    "distrain/models/embeddings/store.py": "tests/models/embeddings/test_collection.py "
    "tests/models/embeddings/test_initial.py tests/models/embeddings/test_shared.py "
    "tests/models/embeddings/test_row_cache.py",
    "distrain/train/step/learning_rate.py": "tests/train/step/test_learning_rate.py",
    "distrain/jobs/assignment.py": "tests/jobs/test_assignment.py",
    "distrain/train/step/clipping.py": "tests/train/step/test_clipping.py "
    "tests/train/step/test_train_step.py tests/train/step/test_step_ranks.py "
    "tests/train/step/test_knobs.py",
    "distrain/train/control/gate.py": "tests/train/control/test_gate.py",
    "distrain/train/saving/early_stopping.py": "tests/train/saving/test_early_stopping.py "
    "tests/train/saving/test_best_model.py",
    "distrain/train/loop/exact_auc.py": "tests/train/loop/test_exact_auc.py",
    "distrain/scheduler/views/job_json.py": "tests/scheduler/views/test_job_json.py "
    "tests/scheduler/views/test_job_history.py",
    "distrain/runs/records/series.py": "tests/scheduler/views/test_series.py "
    "tests/scheduler/views/test_curve_range.py",
    "distrain/scheduler/http/access.py": "tests/scheduler/http/test_access.py",
    "distrain/scheduler/http/prometheus.py": "tests/scheduler/http/test_prometheus.py",
    "distrain/storage/retrying.py": "tests/storage/test_transient.py "
    "tests/storage/test_retrying.py",
    "distrain/storage/outputs.py": "tests/storage/test_outputs.py",
    "distrain/storage/inputs.py": "tests/storage/test_inputs.py",
    "distrain/jobs/spec/load.py": "tests/jobs/spec",
}
"""Of each module, the tests that should notice edits of it."""

EQUIVALENT = {
    # (module, edit, its line): why no test can notice it.
    (
        "distrain/loader/partition/plan.py",
        "rest > lane -> rest >= lane",
        "return rounds * lane + rest - (rest - lane) * (rest > lane)",
    ): "times 0 where they are equal",
    (
        "distrain/train/loop/exact_auc.py",
        "1 -> 2",
        "samples = np.full(_SAMPLES, -1)",
    ): "any negative number says that a rank has no sample",
}


@dataclass(frozen=True)
class Mutant:
    """An edit of a module."""

    module: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.module}:{self.mutation.line}: {self.mutation.what}"


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """Mutants of the core, spread over its modules; the same for the same seed and sources."""
    rng = random.Random(seed)
    piles = []
    for module in CORE:
        if module.startswith(only):
            source = (ROOT / module).read_bytes()
            lines = [line.strip() for line in source.decode().splitlines()]
            found = [
                Mutant(module, mutation)
                for mutation in mutations(source)
                if (module, mutation.what, lines[mutation.line - 1]) not in EQUIVALENT
            ]
            rng.shuffle(found)
            piles.append(found)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(piles):
        rng.shuffle(piles)
        chosen += [pile.pop() for pile in piles if pile]
    return chosen[:count]


class Trees:
    """Copies of the tree, one for each job, that mutants are made in."""

    def __init__(self, folder: Path, count: int):
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            tree = folder / str(number)
            for part in ("distrain", "tests", "examples", "benchmarks", "deploy", "docs"):
                skipped = shutil.ignore_patterns("__pycache__", "_build")
                shutil.copytree(ROOT / part, tree / part, ignore=skipped)
            for file in ("pyproject.toml", "README.md"):
                shutil.copy(ROOT / file, tree)
            self._free.put(tree)

    def passes(self, tests: str, mutant: Mutant | None, timeout_s: float) -> tuple[bool, float]:
        """Whether some tests pass on a mutant, and how long they took."""
        tree = self._free.get()
        source = (ROOT / mutant.module).read_bytes() if mutant else b""
        try:
            if mutant:
                (tree / mutant.module).write_bytes(mutant.mutation.applied(source))
            return _passes(tree, tests, timeout_s)
        finally:
            if mutant:
                (tree / mutant.module).write_bytes(source)
            self._free.put(tree)

    def limit_s(self, tests: str) -> float | None:
        """How long the tests may take on a mutant: much longer than without one.

        `None` if they fail without one, so that they can judge none.
        """
        for _ in range(2):  # a busy machine may be the cause of the first failure
            passed, took_s = self.passes(tests, None, 900.0)
            if passed:
                return 30.0 + 4 * took_s
        print(f"these fail without any mutant: {tests}", flush=True)
        return None


def _passes(tree: Path, tests: str, timeout_s: float) -> tuple[bool, float]:
    started_s = time.monotonic()
    running = _FORKS.Process(target=_run_tests, args=(tree, tests.split()))
    running.start()
    running.join(timeout_s)
    if running.is_alive():
        os.killpg(running.pid, 9)
    running.join()
    return running.exitcode == 0, time.monotonic() - started_s


_FORKS = multiprocessing.get_context("forkserver")
# Loading these takes longer than most tests here; none of them is what mutants are made of, and
# none is a plugin of pytest, which wants to load those itself.
_FORKS.set_forkserver_preload(
    ["pytest", "numpy", "pyarrow.parquet", "torch", "distributed", "sklearn.metrics"]
)


def _run_tests(tree: Path, tests: list[str]) -> None:
    """Run tests in a fork, as `python -m pytest` does in that tree."""
    os.setsid()
    os.chdir(tree)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    import pytest

    words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not release"]
    os._exit(pytest.main([*words, *tests]))


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="Modules whose path begins so.")
    options = parser.parse_args()
    chosen = drawn(options.mutants, options.seed, options.only)
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees = Trees(Path(folder), options.jobs)
        limits_s: dict[str, float | None] = {}

        def verdict(mutant: Mutant) -> str:
            tests = CORE[mutant.module]
            if tests not in limits_s:
                limits_s[tests] = trees.limit_s(tests)
            limit_s = limits_s[tests]
            found = "unjudged"
            if limit_s is not None:
                found = "survived" if trees.passes(tests, mutant, limit_s)[0] else "killed"
            print(f"{found:8} {mutant}", flush=True)
            return found

        verdicts = Counter(pool.map(verdict, chosen))
    judged = verdicts["killed"] + verdicts["survived"]
    share = verdicts["killed"] / max(1, judged)
    print(f"{verdicts['killed']} of {judged} mutants were noticed: {share:.1%}")
    figures = {"mutants": judged, "killed": verdicts["killed"], "unjudged": verdicts["unjudged"]}
    met = share >= GOAL and not verdicts["unjudged"]
    print(json.dumps({"seed": options.seed, **figures, "share": share, "goal": GOAL, "met": met}))


if __name__ == "__main__":
    main()
