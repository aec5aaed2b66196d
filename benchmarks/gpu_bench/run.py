"""Runs the stages, and writes the report after each."""

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.gpu_bench.budget import Need, limit_s
from benchmarks.gpu_bench.commands import Done, end_all, run
from benchmarks.gpu_bench.junit import TestResult, counts
from benchmarks.gpu_bench.outcome import (
    NEEDLESS,
    RAN,
    Result,
    benchmark_result,
    conclusion,
    rates_result,
    results_of,
    skipped,
    tests_result,
)
from benchmarks.gpu_bench.plots import pictures
from benchmarks.gpu_bench.report import markdown
from benchmarks.gpu_bench.stages import AGAIN, FOR_TESTS, RATES, RECORDS, TESTS, WORK, Stage

Document = dict[str, Any]
LEAST_ALONE_S = 15.0
TESTS_AT_ONCE = min(6, len(os.sched_getaffinity(0)))
"""Files of tests that run at the same time; they share the first GPU."""


class Runner:
    """Runs the stages within the time limit.

    Args:
        root: The repository; commands run there.
        out: The report's folder.
        document: The report before the first stage; stages are added to it.
        began_s: When the run began, by `time.monotonic`.
        seconds: Time limit of the whole run.
    """

    def __init__(self, root: Path, out: Path, document: Document, began_s: float, seconds: float):
        self._root, self._out, self._document = root, out, document
        self._began, self._seconds = began_s, seconds

    def work(self, stages: Sequence[Stage]) -> None:
        """Run the stages in order, tests several at a time; the report is complete after each."""
        self.write()
        left = list(stages)
        while left:
            together = list(takewhile(lambda stage: stage.kind == TESTS, left)) or left[:1]
            del left[: len(together)]
            later = [other.need for other in left if not other.why_not]
            if together[0].kind == TESTS:
                self._at_once(together, later)
            else:
                self._note(together[0], self._stage(together[0], later))
        self._document["finished"] = True
        self.write()

    def _at_once(self, stages: Sequence[Stage], later: Sequence[Need]) -> None:
        with ThreadPoolExecutor(TESTS_AT_ONCE) as pool:
            try:
                results = pool.map(lambda stage: self._stage(stage, later), stages)
                for stage, result in zip(stages, results, strict=True):
                    self._note(stage, result)
            except BaseException:  # such as a signal's: the pool waits until its threads have ended
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
                raise

    def _note(self, stage: Stage, result: Result) -> None:
        entry = {"name": stage.name, "kind": stage.kind, "part_of": stage.part_of}
        self._document["stages"].append(entry | {"command": told(stage)} | result)
        self.write()
        print(f"{stage.name}: {in_words(result)}", flush=True)

    def left_s(self) -> float:
        """Return the seconds until the whole run should end."""
        return self._seconds - (time.monotonic() - self._began)

    def write(self) -> None:
        """Write plots, JSON and Markdown; each file is written completely or not at all."""
        from distrain.storage.outputs import atomic_file

        document = self._document
        document["took_s"] = round(time.monotonic() - self._began, 1)
        document["pictures"], document["undrawn"] = [], {}
        for name, draw in pictures(document).items():
            try:
                with atomic_file(self._out / name) as path:
                    draw(path)
                document["pictures"].append(name)
            except Exception as error:  # a failed plot must not lose the figures
                document["undrawn"][name] = f"{type(error).__name__}: {error}"
        document["conclusion"] = conclusion(document)
        for name, text in (
            ("gpu.json", json.dumps(document, indent=1) + "\n"),
            ("gpu.md", markdown(document)),
        ):
            with atomic_file(self._out / name) as path:
                path.write_text(text)

    def _stage(self, stage: Stage, later: Sequence[Need]) -> Result:
        if stage.why_not:
            return skipped(stage.why_not)
        limit = limit_s(self.left_s(), stage.need, later)
        if limit is None:
            needs, left = stage.need.least_s, max(0.0, self.left_s())
            return skipped(f"it needs {needs:.0f} s at least, {left:.0f} s were left")
        limited = {"limit_s": round(limit, 1)}
        if stage.kind == AGAIN:
            return limited | self._failed_tests_alone(limit)
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            done = self._run(stage.command, limit, work, stage.environment)
            if stage.kind == RATES:
                return limited | rates_result(done)
            if stage.kind == TESTS:
                return limited | tests_result(done, text_of(work / "junit.xml"))
            lines = (text_of(work / RECORDS) or "").splitlines()
            so_far = text_of(work / Path(stage.part_of).with_suffix(".json"))
            told = benchmark_result(done, lines, so_far)
            return limited | told | {"files": self._keep(work)}

    def _run(
        self,
        command: Sequence[str],
        limit: float,
        work: Path,
        also: Sequence[tuple[str, str]] = (),
    ) -> Done:
        logs = work.with_name("logs")
        work.mkdir()
        logs.mkdir()
        filled = [word.replace(WORK, str(work)) for word in command]
        environment = os.environ | {"PYTHONPATH": python_path(self._root), "PYTHONUNBUFFERED": "1"}
        whole = environment | dict(also)
        return run([sys.executable, *filled], limit, logs, self._root, whole)

    def _keep(self, work: Path) -> list[str]:
        """Copy a stage's files into the report's folder; return their names there."""
        from distrain.storage.outputs import atomic_file

        kept = []
        for path in sorted(path for path in work.rglob("*") if path.is_file()):
            name = "-".join(path.relative_to(work).parts)
            if name != RECORDS:
                with atomic_file(self._out / name) as there:
                    shutil.copyfile(path, there)
                kept.append(name)
        return kept

    def _failed_tests_alone(self, limit: float) -> Result:
        """Run failed tests again, because a broken CUDA context may have made them fail."""
        names = [
            t.name for t in results_of(self._document, TESTS) if t.outcome in ("failed", "error")
        ]
        if not names:
            return {"outcome": NEEDLESS, "reason": "no test failed", "took_s": 0.0, "tests": []}
        began, again, found = time.monotonic(), 0, list[TestResult]()
        for name in names:
            left = limit - (time.monotonic() - began)
            if left < LEAST_ALONE_S:
                break
            found += self._alone(name, left)
            again += 1
        reason = f"{again} of {len(names)} ran again" if again < len(names) else ""
        return {
            "outcome": RAN,
            "reason": reason,
            "took_s": round(time.monotonic() - began, 1),
            "tests": [asdict(test) for test in found],
        }

    def _alone(self, name: str, limit: float) -> list[TestResult]:
        """Run one test, or all tests of a file that could not be imported."""
        options = ("-m", "gpu", "-v", "-W", "default", "-p", "no:cacheprovider")
        junit = ("-o", "junit_family=xunit1", f"--junitxml={WORK}/junit.xml")
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            done = self._run(("-m", "pytest", name, *options, *junit), limit, work, FOR_TESTS)
            tests = tests_result(done, text_of(work / "junit.xml"))["tests"]
        same = [t for t in tests if "::" not in name or t["name"] == name]
        return [TestResult(**t) for t in same] or [TestResult(name, "stopped", done.took_s)]


def python_path(root: Path) -> str:
    """Return a PYTHONPATH that begins with the checkout, so that distrain need not be installed."""
    return os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH", ""))))


def text_of(path: Path) -> str | None:
    """Return a file's text; None if it does not exist."""
    return path.read_text(errors="replace") if path.is_file() else None


def told(stage: Stage) -> str:
    """Return the command as a user would type it."""
    words = (word.replace(WORK, "DIR") for word in stage.command)
    return f"python {shlex.join(words)}" if stage.command else ""


def in_words(result: Result) -> str:
    """Return a stage's result as a line for the terminal."""
    how = result["outcome"] + (f" ({result['reason']})" if result["reason"] else "")
    number = counts(TestResult(**test) for test in result.get("tests", ()))
    tests = "".join(f", {count} {word}" for word, count in number.items())
    return f"{how}{tests}, {result['took_s']:.0f} s"
