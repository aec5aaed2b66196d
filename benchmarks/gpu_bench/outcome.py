"""Turns the result of a stage's command into its entry in the report's JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.gpu_bench.commands import Done
from benchmarks.gpu_bench.figures import (
    LEFT_OUT,
    MET,
    TOLD,
    Figure,
    figures_of,
    json_object,
    last_line,
    merged,
)
from benchmarks.gpu_bench.junit import TestResult, counts, read_junit, read_lines
from benchmarks.gpu_bench.stages import AGAIN, TESTS

RAN, FAILED, STOPPED, SKIPPED, NEEDLESS = "ran", "failed", "stopped", "skipped", "not needed"
Result = dict[str, Any]
LONGEST_TEXT = 60_000
NO_TESTS = 5
"""pytest's exit code if it collects no tests."""


def ended(done: Done, fine: Sequence[int] = (0,)) -> Result:
    """Return outcome, reason and time of a command; exit codes in `fine` are successes."""
    told: Result = {"outcome": RAN, "reason": "", "took_s": round(done.took_s, 1)}
    if done.returncode is None:
        return told | {"outcome": STOPPED, "reason": "its time was up"}
    if done.returncode not in fine:
        return told | {"outcome": FAILED, "reason": f"it ended with code {done.returncode}"}
    return told


def rates_result(done: Done) -> Result:
    """Return the entry of the stage that measures the machine's rates."""
    return with_output(ended(done), done) | {"rates": last_line(done.stdout)}


def tests_result(done: Done, junit: str | None) -> Result:
    """Return the entry of a test file.

    Args:
        done: The result of pytest.
        junit: The XML that it wrote; `None` if pytest was stopped or crashed before.
    """
    tests = read_junit(junit) if junit else read_lines(done.stdout)
    told = ended(done, (0, NO_TESTS))
    if told["outcome"] == FAILED and not junit:
        told["reason"] += ", before it could tell its results: what is listed was printed before"
    elif told["outcome"] == FAILED:
        told["reason"] = "tests failed"
    elif done.returncode == NO_TESTS and not tests:
        told["reason"] = "no test in it is for a GPU"
    kept = with_output(told, done) if told["outcome"] != RAN else told
    return kept | {"tests": [asdict(test) for test in tests]}


def benchmark_result(done: Done, records: Iterable[str] = (), so_far: str | None = None) -> Result:
    """Return the entry of a benchmark.

    Args:
        done: The result of its process.
        records: Lines of JSON that it wrote to a file.
        so_far: Intermediate JSON that it wrote; its figures count if the benchmark was stopped.
    """
    told = with_output(ended(done), done)
    summary = last_line(done.stdout)
    if done.returncode is None and summary is None and so_far:
        summary = json_object(so_far)
    if told["outcome"] == RAN and summary is None:
        told |= {"outcome": FAILED, "reason": "its last line is not a JSON object"}
    return told | {"summary": summary, "records": [json.loads(line) for line in records]}


def with_output(told: Result, done: Done) -> Result:
    """Add the end of the command's output and errors to its entry."""
    return told | {"stdout": done.stdout[-LONGEST_TEXT:], "stderr": done.stderr[-LONGEST_TEXT:]}


def skipped(reason: str) -> Result:
    """Return the entry of a stage that did not begin."""
    return {"outcome": SKIPPED, "reason": reason, "took_s": 0.0}


def results_of(document: Mapping[str, Any], kind: str) -> list[TestResult]:
    """Return all tests of the report's stages of a kind."""
    stages = [stage for stage in document["stages"] if stage["kind"] == kind]
    return [TestResult(**test) for stage in stages for test in stage.get("tests", ())]


def benchmark_figures(document: Mapping[str, Any]) -> dict[str, list[Figure]]:
    """Return the figures of each benchmark, merged over its parts; a rehearsal has no goals."""
    parts: dict[str, list[list[Figure]]] = {}
    for stage in document["stages"]:
        if stage.get("summary"):
            parts.setdefault(stage["part_of"], []).append(figures_of(stage["summary"]))
    whole = {name: merged(each) for name, each in parts.items()}
    if document["rehearsal"]:
        return {name: [replace(f, status=TOLD) for f in each] for name, each in whole.items()}
    return whole


def conclusion(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of the run: test counts, failed stages, figures and missed goals."""
    stages = document["stages"]
    told = counts(results_of(document, TESTS))
    bad = [s["name"] for s in stages if s["kind"] != AGAIN and s["outcome"] in (FAILED, STOPPED)]
    figures = {
        f"{name}: {figure.name}": figure
        for name, each in benchmark_figures(document).items()
        for figure in each
    }
    open_goals = {n: f.status for n, f in figures.items() if f.status not in (MET, TOLD, LEFT_OUT)}
    left_out = [stage["name"] for stage in stages if stage["outcome"] == SKIPPED]
    return {
        "benchmark": "gpu",
        "rehearsal": document["rehearsal"],
        "finished": document["finished"],
        "tests": told,
        "failed_tests_alone": counts(results_of(document, AGAIN)),
        "failed_stages": bad,
        "skipped_stages": left_out,
        "figures": {name: figure.value for name, figure in figures.items()},
        "missed": [name for name, status in open_goals.items() if status == "missed"],
        "missing": [name for name, status in open_goals.items() if status != "missed"],
        "met": document["finished"]
        and told.get("passed", 0) > 0
        and not (document["rehearsal"] or bad or left_out or open_goals),
    }
