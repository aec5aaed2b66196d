"""The stages, in order, with their time limits: correctness first.

The benchmark of steps runs in parts, one process each, so that a timeout loses only one of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_bench.budget import Need

RATES, TESTS, BENCHMARK, AGAIN = "rates", "tests", "benchmark", "again"
WORK = "{work}"
"""Placeholder in a command: an empty folder of the stage. Its files are copied to the report."""
RECORDS = "records.jsonl"
"""A file of this name in `WORK` is not copied; its lines become part of the report's JSON."""
MARK = re.compile(r"\bmark\.gpu\b")

WITHOUT_GPU = (("CUDA_VISIBLE_DEVICES", ""),)
"""Hides GPUs, so that a rehearsal uses the CPU on every machine."""

FOR_TESTS = (
    ("OMP_NUM_THREADS", "2"),  # files run at the same time
    # without other plugins that happen to be installed
    ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
    ("PYTEST_PLUGINS", "pytest_timeout"),
)

STEP_PARTS = {
    "MLP 16": r"^MLP 16, ",
    "DLRM 16": r"^DLRM 16, ",
    "embeddings": r"^embeddings",
    "small and large tables": r"^small and large",
    "DCN_V2 16": r"^DCN_V2 16, ",
    "width 128": r"^\w+ 128, ",
}
EXPERIMENTS = {
    "branches": 60,
    "straight": 30,
    "loader": 100,
    "ranks": 40,
    "pieces": 40,
}
"""The experiments of `experiments.py`, and their time limits in seconds in a run of 10 minutes."""
LOADER_ON_GPU = "to GPU|^memcpy$|^(floor|distrain), ordinary, 2t$"


@dataclass(frozen=True)
class Stage:
    """One stage of the run, with its own processes.

    Attributes:
        name: Its name in the report.
        kind: `RATES`, `TESTS`, `BENCHMARK` or `AGAIN` (failed tests, each alone).
        need: The time that it needs.
        command: Arguments of Python, run in the repository's root; empty for `AGAIN`.
        part_of: The benchmark that it is a part of.
        environment: Additional environment variables.
        why_not: Why it cannot run here; "" if it can.
    """

    name: str
    kind: str
    need: Need
    command: tuple[str, ...] = ()
    part_of: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    why_not: str = ""


def stages(root: Path, rehearse: bool, full: bool, minutes: float) -> list[Stage]:
    """Return all stages, in order.

    Args:
        root: The repository.
        rehearse: Use small sizes on the CPU, and one comparison of each benchmark.
        full: Run the benchmarks without `--quick`.
        minutes: Time of the whole run; every stage's `most_s` grows with it.
    """
    made = [rates(rehearse), *tests(marked_files(root))]
    made += experiments(rehearse)
    made += rehearsed() if rehearse else measured(full)
    made.append(Stage("failed tests, each alone", AGAIN, Need(20, 120)))
    return [
        replace(
            stage,
            need=stage.need.scaled(minutes),
            why_not=absent(root, stage),
            environment=stage.environment + (WITHOUT_GPU if rehearse else ()),
        )
        for stage in made
    ]


def rates(rehearse: bool) -> Stage:
    """Return the stage that measures how fast the machine copies and multiplies."""
    command = ("benchmarks/gpu_bench/probe.py", "rates", *(["--small"] if rehearse else []))
    return Stage("machine rates", RATES, Need(15, 60), command)


def marked_files(root: Path) -> list[Path]:
    """Return the test files with tests for a GPU, relative to the root; those of `tests/gpu` first.

    Such a file contains the mark, or imports it from a module of `tests/support`. Without this list
    pytest would import every test file, and some need libraries that may be missing.
    """
    shared = [path.stem for path in (root / "tests" / "support").glob("*.py") if marked(path)]
    imports = re.compile(rf"^from ({'|'.join(shared) or '$.'}) import ", re.MULTILINE)
    files = [
        path.relative_to(root)
        for path in sorted((root / "tests").rglob("test_*.py"))
        if marked(path) or imports.search(path.read_text())
    ]
    return sorted(files, key=lambda path: path.parts[1] != "gpu")


def marked(path: Path) -> bool:
    """Return whether a file contains the mark."""
    return MARK.search(path.read_text()) is not None


def tests(files: Sequence[Path]) -> list[Stage]:
    """Return a stage per file of `tests/gpu`, and one for all other files together.

    A test that breaks its process's CUDA context makes all later tests of the process fail.
    """
    own = [path.as_posix() for path in files if path.parts[1] == "gpu"]
    others = [path.as_posix() for path in files if path.parts[1] != "gpu"]
    groups = {path: [path] for path in own} | ({"tests elsewhere": others} if others else {})
    options = [
        *("-m", "gpu", "-v", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"),
        *("--continue-on-collection-errors", f"--junitxml={WORK}/junit.xml"),
    ]
    return [
        Stage(
            name,
            TESTS,
            Need(12, 150),
            ("-m", "pytest", *paths, *options),
            environment=FOR_TESTS,
        )
        for name, paths in groups.items()
    ]


def measured(full: bool) -> list[Stage]:
    """Return the stages of the benchmarks on a GPU."""
    quick = () if full else ("--quick",)
    made = [
        Stage(f"step.py, {name}", BENCHMARK, Need(40, 210), step(regex, quick), "step.py")
        for name, regex in STEP_PARTS.items()
    ]
    loader = ("benchmarks/loader.py", *quick, "--only", LOADER_ON_GPU)
    loader = (*loader, "--plot", f"{WORK}/loader.png")
    whole = ("benchmarks/end_to_end.py", *quick, "--device", "cuda", "--out", WORK)
    # After the two most important parts of step.py, and before its less important ones.
    made[2:2] = [
        Stage("end_to_end.py", BENCHMARK, Need(90, 240), whole, "end_to_end.py"),
        Stage("loader.py", BENCHMARK, Need(40, 120), loader, "loader.py"),
    ]
    return made


def rehearsed() -> list[Stage]:
    """Return the stages of a rehearsal on a CPU."""
    quick = ("--quick",)
    loader = (
        "benchmarks/loader.py",
        *quick,
        "--only",
        "^floor, ordinary, 2t$",
        "--plot",
        f"{WORK}/loader.png",
    )
    only = ("--only", "^tensorflow, eager, fp32$")
    whole = ("benchmarks/end_to_end.py", *quick, "--device", "cpu", "--out", WORK, *only)
    most = Need(10, 240)
    return [
        Stage("step.py, one part", BENCHMARK, most, step("^embeddings, sgd$", quick), "step.py"),
        Stage("loader.py", BENCHMARK, most, loader, "loader.py"),
        Stage("end_to_end.py", BENCHMARK, most, whole, "end_to_end.py"),
    ]


def experiments(rehearse: bool) -> list[Stage]:
    """Return a stage per experiment; `gpu.py` runs them only if `--only` names them."""
    script = "benchmarks/gpu_bench/experiments.py"
    small = ("--small",) if rehearse else ()
    return [
        Stage(
            f"experiment, {name}",
            BENCHMARK,
            Need(most_s / 2, most_s),
            (script, name, *small),
            "experiments",
        )
        for name, most_s in EXPERIMENTS.items()
    ]


def step(only: str, quick: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of a part of the benchmark of steps."""
    records = ("--json-lines", f"{WORK}/{RECORDS}")
    return ("benchmarks/step.py", *quick, "--only", only, *records)


def absent(root: Path, stage: Stage) -> str:
    """Return why a stage cannot run in this checkout; "" if it can."""
    script = stage.command[0] if stage.command else ""
    if script.endswith(".py") and not (root / script).is_file():
        return f"{script} is not in this checkout"
    return ""
