"""What a run of pytest tells: its XML, or where it was stopped, the lines that it had printed."""

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
"""What pytest writes where a file skips itself; its message says no more than that it did."""


@dataclass(frozen=True)
class TestResult:
    """A test.

    Attributes:
        name: As pytest takes it: `tests/gpu/test_x.py::test_y[case]`; a file's path, where the
            file could not be read.
        outcome: One of `OUTCOMES`; "stopped" was running when the time was up.
        took_s: Set-up and tear-down included; `None` where it was not told.
        reason: Why it was skipped, or how it failed.
    """

    __test__ = False  # pytest collects what is called Test...

    name: str
    outcome: str
    took_s: float | None = None
    reason: str = ""


def read_junit(text: str) -> list[TestResult]:
    """The tests of a file that `pytest --junitxml -o junit_family=xunit1` wrote.

    A test that fails and whose tear-down fails too has two entries there; they become one.
    """
    found: dict[str, TestResult] = {}
    for case in ET.fromstring(text).iter("testcase"):
        result = result_of(case)
        other = found.get(result.name)
        if other is None or severity(result) > severity(other):
            found[result.name] = result
    return list(found.values())


def result_of(case: ET.Element) -> TestResult:
    """One `<testcase>`."""
    took_s = float(case.get("time", "0"))
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        told = case.find(tag)
        if told is not None:
            message = told.get("message", "").strip()
            long = (told.text or "").strip()
            if outcome == "skipped":
                whole_file = SKIPPED_FILE.search(long)
                reason = whole_file[1] if whole_file else message
            else:
                reason = "\n".join(part for part in (message, long) if part)
            return TestResult(name_of(case), outcome, took_s, shortened(reason))
    return TestResult(name_of(case), "passed", took_s)


def name_of(case: ET.Element) -> str:
    """The test as pytest takes it on its command line."""
    path, name = case.get("file", ""), case.get("name", "")
    if not case.get("classname"):  # a file that could not be imported
        return path or name
    module = path.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join([path, *filter(None, classes.split(".")), name])


def severity(result: TestResult) -> int:
    """What is told of a test with two outcomes."""
    return ("skipped", "passed", "stopped", "error", "failed").index(result.outcome)


def shortened(text: str) -> str:
    """The end of a long text: a failure's is where the error is."""
    return text if len(text) <= LONGEST_REASON else "[...]\n" + text[-LONGEST_REASON:]


def read_lines(stdout: str) -> list[TestResult]:
    """The tests of a run that was stopped, from what `pytest -v` had printed."""
    found = []
    for line in stdout.splitlines():
        if match := LINE.match(line):
            found.append(TestResult(match["test"], WORDS[match["word"]]))
        elif match := STARTED.match(line):
            reason = "it was running when the time was up"
            found.append(TestResult(match["test"], "stopped", None, reason))
    return found


def counts(results: Iterable[TestResult]) -> dict[str, int]:
    """How many tests ended how, in the order of `OUTCOMES`; none that is zero."""
    outcomes = [result.outcome for result in results]
    return {outcome: outcomes.count(outcome) for outcome in OUTCOMES if outcome in outcomes}
