"""Reads the results of a pytest run from its XML, or from its output if it was stopped."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass

OUTCOMES = ("passed", "failed", "error", "skipped", "stopped")
LINE = re.compile(r"^(?P<test>\S+\.py::.*?) (?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
STARTED = re.compile(r"^(?P<test>\S+\.py::.*?) ?$")
WORDS = {"PASSED": "passed", "FAILED": "failed", "ERROR": "error", "SKIPPED": "skipped"}
WORDS |= {"XFAIL": "skipped", "XPASS": "failed"}
LONGEST_REASON = 4000
SKIPPED_FILE = re.compile(r"^\(.*, ['\"]Skipped: (.*)['\"]\)$")
"""Matches pytest's text for a file that skips itself; the `message` does not contain the reason."""


@dataclass(frozen=True)
class TestResult:
    """The result of one test.

    Attributes:
        name: Its pytest id, `tests/gpu/test_x.py::test_y[case]`; the path of a file that could not
            be imported.
        outcome: One of `OUTCOMES`; "stopped" if it was running at the time limit.
        took_s: Seconds with set-up and tear-down; `None` if unknown.
        reason: Why it was skipped, or how it failed.
    """

    __test__ = False  # pytest would collect a class named Test...

    name: str
    outcome: str
    took_s: float | None = None
    reason: str = ""


def read_junit(text: str) -> list[TestResult]:
    """Return the tests of a file written by `pytest --junitxml -o junit_family=xunit1`.

    A test has two entries if both it and its tear-down fail; they become one.
    """
    found: dict[str, TestResult] = {}
    for case in ET.fromstring(text).iter("testcase"):
        result = result_of(case)
        other = found.get(result.name)
        if other is None or severity(result) > severity(other):
            found[result.name] = result
    return list(found.values())


def result_of(case: ET.Element) -> TestResult:
    """Return the result of one `<testcase>`."""
    took_s = float(case.get("time", "0"))
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        told = case.find(tag)
        if told is not None:
            message = told.get("message", "").strip()
            long = (told.text or "").strip()
            if outcome == "skipped":
                file = SKIPPED_FILE.search(long)
                reason = file[1] if file else message
            else:
                reason = "\n".join(part for part in (message, long) if part)
            return TestResult(name_of(case), outcome, took_s, shortened(reason))
    return TestResult(name_of(case), "passed", took_s)


def name_of(case: ET.Element) -> str:
    """Return the pytest id of a `<testcase>`."""
    path, name = case.get("file", ""), case.get("name", "")
    if not case.get("classname"):  # a file that could not be imported
        return path or name
    module = path.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join([path, *filter(None, classes.split(".")), name])


def severity(result: TestResult) -> int:
    """Return the precedence of a result: the highest counts if a test has two."""
    return ("skipped", "passed", "stopped", "error", "failed").index(result.outcome)


def shortened(text: str) -> str:
    """Return the end of a long text; in a failure the error is at the end."""
    return text if len(text) <= LONGEST_REASON else "[...]\n" + text[-LONGEST_REASON:]


def read_lines(stdout: str) -> list[TestResult]:
    """Return the tests of a stopped run, from the output of `pytest -v`."""
    found = []
    for line in stdout.splitlines():
        if match := LINE.match(line):
            found.append(TestResult(match["test"], WORDS[match["word"]]))
        elif match := STARTED.match(line):
            reason = "it was running when the time was up"
            found.append(TestResult(match["test"], "stopped", None, reason))
    return found


def counts(results: Iterable[TestResult]) -> dict[str, int]:
    """Return the number of tests by outcome, in the order of `OUTCOMES`, without zeros."""
    outcomes = [result.outcome for result in results]
    return {outcome: outcomes.count(outcome) for outcome in OUTCOMES if outcome in outcomes}
