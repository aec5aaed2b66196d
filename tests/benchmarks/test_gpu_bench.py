"""The parts of `benchmarks/gpu.py` that decide: time, results of tests, figures, the stages."""

import os
import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given, strategies as st

from benchmarks.gpu import USUAL
from benchmarks.gpu_bench import budget, junit, stages
from benchmarks.step_bench import cases as step_cases

ROOT = Path(__file__).parents[2]


NEEDS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 120)), min_size=1, max_size=9)


@given(NEEDS, st.integers(0, 900), st.data())
def test_no_stage_takes_from_those_after_it(pairs, total_s, data):
    needs = [budget.Need(least, least + more) for least, more in pairs]
    left_s, begun = float(total_s), 0
    for number, need in enumerate(needs):
        limit = budget.limit_s(left_s, need, needs[number + 1 :])
        if limit is None:
            assert left_s < need.least_s
            continue
        assert need.least_s <= limit <= min(need.most_s, left_s)
        left_s -= data.draw(st.floats(0, limit))
        begun += 1
    if sum(need.least_s for need in needs) <= total_s:
        assert begun == len(needs)


TESTS = """
import pytest

def test_passes(): pass

@pytest.mark.parametrize("word", ["a b", "c::d", "x/y.z"])
def test_cases(word): assert word != "c::d"

class TestGroup:
    def test_inside(self): pytest.skip("no such device")

@pytest.fixture
def breaks_before(): raise OSError("no room")

@pytest.fixture
def breaks_after():
    yield
    raise OSError("still open")

def test_needs(breaks_before): pass
def test_leaves(breaks_after): pass
def test_both(breaks_after): assert 1 == 2
"""


def pytest_in(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    options = ["-o", "junit_family=xunit1", "--junitxml=junit.xml", "--rootdir=."]
    return subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


def test_what_pytest_wrote_is_read(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text("import no_such_library\n")
    (tmp_path / "test_three.py").write_text(
        "import pytest\npytest.importorskip('nothing', reason=\"it's not installed\")\n"
    )
    pytest_in(tmp_path, "--continue-on-collection-errors")
    results = junit.read_junit((tmp_path / "junit.xml").read_text())
    outcomes = {result.name: result.outcome for result in results}
    assert outcomes == {
        "sub/test_one.py::test_passes": "passed",
        "sub/test_one.py::test_cases[a b]": "passed",
        "sub/test_one.py::test_cases[c::d]": "failed",
        "sub/test_one.py::test_cases[x/y.z]": "passed",
        "sub/test_one.py::TestGroup::test_inside": "skipped",
        "sub/test_one.py::test_needs": "error",
        "sub/test_one.py::test_leaves": "error",
        "sub/test_one.py::test_both": "failed",
        "test_two.py": "error",
        "test_three.py": "skipped",
    }
    reasons = {result.name: result.reason for result in results}
    assert reasons["sub/test_one.py::TestGroup::test_inside"] == "no such device"
    assert reasons["test_three.py"] == "it's not installed"
    assert "no_such_library" in reasons["test_two.py"]
    assert "assert 1 == 2" in reasons["sub/test_one.py::test_both"]
    names = "sub/test_one.py::test_cases[c::d]", "sub/test_one.py::TestGroup::test_inside"
    assert "collected 2 items" in pytest_in(tmp_path, *names).stdout


def test_every_comparison_of_steps_is_in_one_part():
    parts = stages.STEP_PARTS.values()
    for ranks, quick in ((1, True), (1, False), (8, True), (8, False)):
        for comparison in step_cases.comparisons("cuda", ranks, quick):
            matches = [part for part in parts if re.search(part, comparison.name)]
            assert len(matches) == 1, comparison.name


def test_correctness_comes_first_and_what_is_absent_is_told():
    for rehearse in (False, True):
        made = stages.stages(ROOT, rehearse, full=False, minutes=10)
        kinds = list(dict.fromkeys(stage.kind for stage in made))
        assert kinds == ["rates", "tests", "benchmark", "again"]
        hidden = [dict(stage.environment).get("CUDA_VISIBLE_DEVICES") == "" for stage in made]
        assert all(hidden) if rehearse else not any(hidden)
        usual = [stage for stage in made if re.search(USUAL, stage.name)]
        assert len(made) - len(usual) == len(stages.EXPERIMENTS)
        least_s = sum(stage.need.least_s for stage in usual)
        assert least_s <= 600
    elsewhere = stages.stages(ROOT / "docs", False, full=False, minutes=10)
    reasons = {stage.name: stage.why_not for stage in elsewhere}
    assert reasons["loader.py"] == "benchmarks/loader.py is not in this checkout"
