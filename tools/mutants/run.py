"""Measures how many small wrong edits of the package its tests notice.

    make mutants PACKAGE=loader [MUTANTS=40] [SEED=1]
    python tools/mutants/run.py [--only distrain/metrics ...] [--mutants 150] [--seed 1] [--jobs 2]
        [--per-test]

Draws edits (`mutants_of.py`), applies each in a copy of the tree, and runs the quick tests of its
module there. A mutant is killed if the tests fail or hang. Prints the survivors, and a JSON object
on the last line. Without `--only`, the modules are those of `CORE`, which lists their tests. With
it, they are all modules with one of the path prefixes; for modules outside `CORE`, the tests are
those in the package's folder in `tests` that import it. 150 mutants take half an hour on two cores.

`--per-test` continues after a failure and prints the tests that killed no mutant alone: for these
mutants, other tests prove the same.
"""

import argparse
import ast
import functools
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
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tools.mutants.mutants_of import Mutation, mutations  # noqa: E402

GOAL = 0.9
PARTS = ("distrain", "tests", "examples", "benchmarks", "deploy", "docs", "tools")

CORE = {
    "distrain/loader/partition/epoch_plan.py": "tests/loader/partition",
    "distrain/loader/partition/row_order.py": "tests/loader/partition tests/loader/test_laws.py",
    "distrain/loader/filling/schedule.py": "tests/loader/test_schedule.py "
    "tests/loader/test_dealing.py tests/loader/test_stream.py tests/loader/test_laws.py",
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
    "distrain/prep/text_files/byte_ranges.py": "tests/prep/test_text_blocks.py "
    "tests/prep/test_compressed_ranges.py tests/prep/test_ahead.py",
    "distrain/prep/fitting.py": "tests/prep/test_prepare.py tests/prep/test_workflow.py "
    "tests/prep/test_days.py",
    "distrain/train/checkpoint/manifest.py": "tests/train/checkpoint/test_damage.py "
    "tests/train/checkpoint/test_manifests.py tests/train/checkpoint/test_writer.py",
    "distrain/train/checkpoint/ownership.py": "tests/train/checkpoint/test_ownership.py",
    "distrain/train/checkpoint/checkpoint_dir.py": "tests/train/checkpoint/test_retention.py "
    "tests/train/checkpoint/test_damage.py tests/train/checkpoint/test_ownership.py",
    "distrain/train/checkpoint/checkpoint_write.py": "tests/train/checkpoint/test_writer.py "
    "tests/train/checkpoint/test_killed.py tests/train/checkpoint/test_any_placement.py",
    "distrain/train/checkpoint/local_rows.py": "tests/train/checkpoint/test_rows.py "
    "tests/train/checkpoint/test_any_placement.py",
    "distrain/scheduler/lifecycle/lifecycle.py": "tests/scheduler/lifecycle/test_job_states.py "
    "tests/scheduler/lifecycle/test_job_stories.py tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_machine_rules.py",
    "distrain/scheduler/lifecycle/job.py": "tests/scheduler/lifecycle/test_job_stories.py "
    "tests/scheduler/lifecycle/test_job_restarts.py",
    "distrain/scheduler/lifecycle/queue.py": "tests/scheduler/lifecycle/test_place_gang.py "
    "tests/scheduler/lifecycle/test_job_states.py tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_stories.py "
    "tests/scheduler/lifecycle/test_job_machine_rules.py",
    "distrain/scheduler/lifecycle/failed_attempt.py": "tests/scheduler/lifecycle/"
    "test_job_restarts.py tests/scheduler/lifecycle/test_job_states.py "
    "tests/scheduler/lifecycle/test_job_stories.py",
    "distrain/scheduler/lifecycle/watchdog.py": "tests/scheduler/lifecycle/test_job_restarts.py "
    "tests/scheduler/lifecycle/test_job_states.py tests/scheduler/lifecycle/test_job_stories.py",
    "distrain/runs/records/collector.py": "tests/runs/records/test_collector.py",
    "distrain/runs/records/merging.py": "tests/runs/records/test_collector.py",
    "distrain/runs/records/entries.py": "tests/runs/records/test_entries.py",
    "distrain/models/embeddings/sparse_optimizer.py": ""
    "tests/models/embeddings/test_sparse_optimizer.py "
    "tests/models/embeddings/test_stochastic.py tests/models/embeddings/test_collection.py",
    "distrain/models/embeddings/sharding/placing.py": "tests/models/embeddings/test_sharding.py",
    "distrain/models/embeddings/kernels/dispatch.py": "tests/models/embeddings/test_collection.py "
    "tests/models/embeddings/test_kernels.py tests/models/embeddings/test_initial.py "
    "tests/models/embeddings/test_kernel_updates.py "
    "tests/models/embeddings/test_sparse_optimizer.py tests/models/embeddings/test_lists.py "
    "tests/models/embeddings/test_fixed.py tests/models/embeddings/test_all_to_all.py",
    "distrain/models/embeddings/table_store.py": "tests/models/embeddings/test_collection.py "
    "tests/models/embeddings/test_initial.py tests/models/embeddings/test_shared.py "
    "tests/models/embeddings/test_device_row_cache.py",
    "distrain/train/step/learning_rate.py": "tests/train/step/test_learning_rate.py",
    "distrain/jobs/assignment.py": "tests/jobs/test_assignment.py",
    "distrain/train/step/clipping.py": "tests/train/step/test_clipping.py "
    "tests/train/step/test_train_step.py tests/train/step/test_step_ranks.py "
    "tests/train/step/test_knobs.py",
    "distrain/train/control/step_agreement.py": "tests/train/control/test_step_agreement.py",
    "distrain/train/loop/early_stopping.py": "tests/train/loop/test_early_stopping.py "
    "tests/train/loop/test_best_model.py",
    "distrain/train/loop/exact_auc.py": "tests/train/loop/test_exact_auc.py",
    "distrain/scheduler/history/job_json.py": "tests/scheduler/history/test_job_json.py "
    "tests/scheduler/history/test_job_history.py",
    "distrain/runs/records/series.py": "tests/scheduler/history/test_series.py "
    "tests/scheduler/history/test_curve_range.py",
    "distrain/scheduler/http/access.py": "tests/scheduler/http/test_access.py",
    "distrain/scheduler/http/prometheus.py": "tests/scheduler/http/test_prometheus.py",
    "distrain/storage/retrying.py": "tests/storage/test_transient.py "
    "tests/storage/test_retrying.py",
    "distrain/storage/outputs.py": "tests/storage/test_outputs.py tests/storage/test_unfinished.py",
    "distrain/storage/inputs.py": "tests/storage/test_inputs.py",
    "distrain/jobs/spec/load.py": "tests/jobs/spec",
}
"""The tests that should notice edits, by module."""

EQUIVALENT = {
    # (module, edit, its line): the reason why no test can notice it.
    (
        "distrain/loader/partition/epoch_plan.py",
        "rest > lane -> rest >= lane",
        "return rounds * lane + rest - (rest - lane) * (rest > lane)",
    ): "times 0 where they are equal",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "kernels_fixed.lookup(rows, inverse, kernels_torch.placed_on(out.dev... -> pass",
        "kernels_fixed.lookup(rows, inverse, kernels_torch.placed_on(out.device, places), out)",
    ): "only GPUs do it, and tests/gpu notices",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "kernels_fixed.collect(grads, inverse, on_device, sums) -> pass",
        "kernels_fixed.collect(grads, inverse, on_device, sums)",
    ): "only GPUs do it, and tests/gpu notices",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "_in_c(sums, torch.float32) and grads.dtype == torch.float32 -> "
        "_in_c(sums, torch.float32) or grads.dtype == torch.float32",
        "in_c = _in_c(sums, torch.float32) and grads.dtype == torch.float32",
    ): "gradients and their sums have one type",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "grads.dtype == torch.float32 -> grads.dtype != torch.float32",
        "in_c = _in_c(sums, torch.float32) and grads.dtype == torch.float32",
    ): "torch adds the same bits, in more time",
    (
        "distrain/loader/partition/row_order.py",
        "1 -> 2",
        'lowest = int(np.searchsorted(chunks.starts[:-1], first, side="right")) - 1',
    ): "pieces without rows are left out",
    (
        "distrain/models/embeddings/kernels/cpu.py",
        "1 -> 2",
        "parts = max(1, min(torch.get_num_threads(), count, num_bytes // _BYTES_WORTH_A_THREAD))",
    ): "slices change the time alone",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "kernels_fixed.runs_triton(out) -> not (kernels_fixed.runs_triton(out))",
        "if kernels_fixed.runs_triton(out):",
    ): "both ways give the same bits",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "kernels_fixed.runs_triton(sums) -> not (kernels_fixed.runs_triton(sums))",
        "if kernels_fixed.runs_triton(sums):",
    ): "both ways give the same bits",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "0 -> 1",
        "rounding_seed: int = 0,",
    ): "callers that give none have weights that are not rounded",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "rule.name in kernels_cpu.RULES -> rule.name not in kernels_cpu.RULES",
        "rule.name in kernels_cpu.RULES",
    ): "torch gives the same bits, in more time",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "1 -> 2",
        "place = torch.zeros(1, dtype=torch.int64)",
    ): "there is one column, and only its place is read",
    (
        "distrain/models/embeddings/kernels/dispatch.py",
        "0 -> 1",
        "starts, firsts = "
        "(torch.cumsum(torch.tensor([0, *s[:-1]]), 0) for s in (capacities, lengths))",
    ): "both begin with it, and only their difference counts",
    (
        "distrain/models/embeddings/kernels/fixed_shape.py",
        "False -> True",
        "return False",
    ): "for float64, compilers and devices that no test has",
    (
        "distrain/models/embeddings/kernels/random_bits.py",
        "rounded - (rounded >> 15 << 16) -> rounded + (rounded >> 15 << 16)",
        "signed: Tensor = rounded - (rounded >> 15 << 16)",
    ): "16 bits of the number are kept",
    (
        "distrain/prep/counting/count_tasks.py",
        "one.size_bytes // len(pieces) -> one.size_bytes * len(pieces)",
        "one.size_bytes // len(pieces)",
    ): "sizes decide only which calls share a task",
    (
        "distrain/prep/operators/value_table.py",
        "0 -> 1",
        "num_folds = int(folds.max(initial=0)) + 1",
    ): "a fold without rows is left out",
    (
        "distrain/metrics/reliability.py",
        "1 -> 2",
        "starts = np.flatnonzero(np.diff(group, prepend=-1))",
    ): "any negative number differs from the first group",
    (
        "distrain/prep/operators/list_slice.py",
        "0 -> 1",
        "has_start = self.end is not None or self.start < 0",
    ): "a slice to 0 is rejected",
    (
        "distrain/prep/operators/numbers.py",
        "0 -> 1",
        "if self.count == 0 or self.m2 <= self.count * rounding * rounding:",
    ): "one value has no deviation either",
    (
        "distrain/prep/vocabulary.py",
        "False -> True",
        "indices = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)",
    ): "32-bit integers without gaps are never copied",
    (
        "distrain/prep/vocabulary.py",
        "False -> True",
        "for batch in file.iter_batches(most, columns=columns, use_threads=False):",
    ): "threads change the time alone",
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


@dataclass(frozen=True)
class Outcome:
    """The result of the tests of a mutant.

    Attributes:
        passed: Whether none failed.
        failed: Those that failed, without their parameters; with `--per-test` all of them.
        ran: All that ran.
    """

    passed: bool
    took_s: float
    failed: frozenset[str]
    ran: frozenset[str]


@functools.cache
def imported_by(file: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name for name in found if name.startswith("distrain"))


def lies_in(name: str) -> str:
    """Return the module that defines a dotted name, also if a package re-exports it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:length])
        if base.with_suffix(".py").exists():
            return str(base.with_suffix(".py").relative_to(ROOT))
        if (face := base / "__init__.py").exists():
            rest = parts[length:]
            shown = [one for one in imported_by(face) if rest and one.endswith(f".{rest[0]}")]
            shown = [one for one in shown if one != name]
            return lies_in(shown[0]) if shown else str(face.relative_to(ROOT))
    return ""


@functools.cache
def tests_of(module: str) -> str:
    """Return the tests that should notice edits of a module; empty if there are none.

    Examples in the module's docstrings are tests, too.
    """
    examples = module if ">>>" in (ROOT / module).read_text() else ""
    return f"{_test_files_of(module)} {examples}".strip()


def _test_files_of(module: str) -> str:
    if module in CORE:
        return CORE[module]
    package = Path(module).parts[1]
    folder = ROOT / "tests" / package
    files = sorted((folder if folder.is_dir() else ROOT / "tests").rglob("test_*.py"))
    importing = [file for file in files if module in map(lies_in, imported_by(file))]
    if not importing and folder.is_dir():
        importing = [folder]
    return " ".join(str(file.relative_to(ROOT)) for file in importing)


def drawn(count: int, seed: int, only: list[str]) -> list[Mutant]:
    """Return mutants from all modules; equal for equal seed and sources."""
    rng = random.Random(seed)
    modules = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "distrain").rglob("*.py"))]
    piles = []
    for module in [name for name in modules if name.startswith(tuple(only))] if only else CORE:
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
    """Copies of the tree, one per job, in which mutants are made."""

    def __init__(self, folder: Path, count: int, per_test: bool):
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._per_test = per_test
        for number in range(count):
            tree = folder / str(number)
            for part in PARTS:
                skipped = shutil.ignore_patterns("__pycache__", "_build")
                shutil.copytree(ROOT / part, tree / part, ignore=skipped)
            for file in ("pyproject.toml", "README.md"):
                shutil.copy(ROOT / file, tree)
            self._free.put(tree)

    def outcome(self, tests: str, mutant: Mutant | None, timeout_s: float) -> Outcome:
        """Run some tests on a mutant."""
        tree = self._free.get()
        source = (ROOT / mutant.module).read_bytes() if mutant else b""
        try:
            if mutant:
                (tree / mutant.module).write_bytes(mutant.mutation.applied(source))
            return _outcome(tree, tests, timeout_s, self._per_test)
        finally:
            if mutant:
                (tree / mutant.module).write_bytes(source)
            self._free.put(tree)

    def unharmed(self, tests: str) -> Outcome | None:
        """Run the tests without a mutant; return `None` if they fail."""
        for _ in range(2):  # a busy machine may be the cause of the first failure
            outcome = self.outcome(tests, None, 900.0) if tests else None
            if outcome is None or outcome.passed:
                return outcome
        print(f"these fail without any mutant: {tests}", flush=True)
        return None


def _outcome(tree: Path, tests: str, timeout_s: float, per_test: bool) -> Outcome:
    started_s = time.monotonic()
    results_file = tree / "told.txt"
    results_file.write_text("")
    running = _FORKS.Process(target=_run_tests, args=(tree, tests.split(), results_file, per_test))
    running.start()
    running.join(timeout_s)
    if running.is_alive() and running.pid:
        os.killpg(running.pid, 9)
    running.join()
    lines = [line.split(" ", 1) for line in results_file.read_text().splitlines()]
    return Outcome(
        running.exitcode == 0,
        time.monotonic() - started_s,
        frozenset(name for outcome, name in lines if outcome == "failed"),
        frozenset(name for _, name in lines),
    )


_FORKS = multiprocessing.get_context("forkserver")
# Importing these takes longer than most tests here. They are not mutated, and none is a pytest
# plugin, which pytest must import itself.
_FORKS.set_forkserver_preload(
    ["pytest", "numpy", "pyarrow.parquet", "torch", "distributed", "sklearn.metrics"]
)


class Recorder:
    """A pytest plugin that records each test's outcome, without its parameters."""

    def __init__(self, file: Path):
        self._file = file.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.failed:
            print(report.outcome, report.nodeid.partition("[")[0], file=self._file)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            print("failed", report.nodeid, file=self._file)


def _run_tests(tree: Path, tests: list[str], results_file: Path, per_test: bool) -> None:
    """Run tests in a fork, as `python -m pytest` would in that tree."""
    os.setsid()
    os.chdir(tree)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    import pytest

    words = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not release"]
    words += [] if per_test else ["-x"]
    os._exit(pytest.main([*words, *tests], plugins=[Recorder(results_file)]))


def print_idle(killers: list[frozenset[str]], ran: set[str]) -> None:
    """Print the tests that killed no mutant alone, with the number of mutants that they killed."""
    alone = {name for names in killers if len(names) == 1 for name in names}
    kills = Counter(name for names in killers for name in names)
    print(f"{len(ran - alone)} of {len(ran)} tests killed no mutant alone:")
    for name in sorted(ran - alone, key=lambda name: (kills[name], name)):
        print(f"{kills[name]:5} killed with others: {name}")


def main() -> None:
    """Run the mutants and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", default=[], help="Only modules with one of these path prefixes."
    )
    parser.add_argument(
        "--per-test", action="store_true", help="Print the tests that killed no mutant alone."
    )
    options = parser.parse_args()
    chosen = drawn(options.mutants, options.seed, options.only)
    killers: list[frozenset[str]] = []
    ran: set[str] = set()
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees = Trees(Path(folder), options.jobs, options.per_test)
        unharmed: dict[str, Outcome | None] = {}

        def verdict(mutant: Mutant) -> str:
            tests = tests_of(mutant.module)
            if tests not in unharmed:
                unharmed[tests] = trees.unharmed(tests)
            usual = unharmed[tests]
            verdict_text = "unjudged"
            if usual is not None:
                ran.update(usual.ran)
                # The limit is much longer than the time without a mutant.
                outcome = trees.outcome(tests, mutant, 30.0 + 4 * usual.took_s)
                verdict_text = "survived" if outcome.passed else "killed"
                killers.append(outcome.failed)
            print(f"{verdict_text:8} {mutant}", flush=True)
            return verdict_text

        verdicts = Counter(pool.map(verdict, chosen))
    if options.per_test:
        print_idle(killers, ran)
    judged = verdicts["killed"] + verdicts["survived"]
    share = verdicts["killed"] / max(1, judged)
    print(f"{verdicts['killed']} of {judged} mutants were noticed: {share:.1%}")
    figures = {"mutants": judged, "killed": verdicts["killed"], "unjudged": verdicts["unjudged"]}
    met = share >= GOAL and not verdicts["unjudged"]
    print(json.dumps({"seed": options.seed, **figures, "share": share, "goal": GOAL, "met": met}))


if __name__ == "__main__":
    main()
