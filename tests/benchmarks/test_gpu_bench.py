"""The parts of `benchmarks/gpu.py` that decide: time, results of tests, figures, the stages."""

import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from benchmarks.gpu import USUAL
from benchmarks.gpu_bench import budget, prepare, stages
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
        order = [stage.part_of or stage.kind for stage in made]
        assert order.index("tests") < order.index("experiments") < order.index("loader.py")
    elsewhere = stages.stages(ROOT / "docs", False, full=False, minutes=10)
    reasons = {stage.name: stage.why_not for stage in elsewhere}
    assert reasons["loader.py"] == "benchmarks/loader.py is not in this checkout"


def test_the_plan_fits_two_calls_within_15_minutes():
    made = stages.stages(ROOT, rehearse=False, full=False, minutes=10)
    assert sum(minutes for minutes, _ in prepare.PLAN) <= 13  # the machine's start takes two
    chosen = []
    for minutes, only in prepare.PLAN:
        call = [stage for stage in made if re.search(only, stage.name)]
        assert (
            sum(stage.need.least_s for stage in call if stage.kind != stages.TESTS) < 50 * minutes
        )
        chosen += [stage.part_of or stage.kind for stage in call if stage.kind != stages.AGAIN]
    assert list(dict.fromkeys(chosen)) == [
        *("rates", "tests", "experiments", "step.py", "end_to_end.py"),
    ]  # fmt: skip


def test_what_a_machine_without_a_network_needs_is_packed(tmp_path, monkeypatch, capsys):
    missing = "more"

    def install(name, site, python):
        (site / name).touch()
        return "no matching distribution" if name == missing else ""

    monkeypatch.setattr(prepare, "install", install)
    monkeypatch.setattr(prepare, "build_kernels", lambda: None)
    monkeypatch.setattr(prepare, "PACKED", tmp_path / ".gpu" / "packed.tar.gz")
    prepare.main(["more"])
    told = capsys.readouterr().out
    assert "Left out: more, for Python 3.12: no matching distribution\n" in told
    assert [line.partition(" && ")[0] for line in told.splitlines()[-2:]] == [
        "tar -xzf .gpu/packed.tar.gz"
    ] * 2
    with tarfile.open(prepare.PACKED) as packed:
        names = packed.getnames()
    assert {".gpu/site/pydantic", ".gpu/site/more"} <= set(names)
    kernels = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("distrain/**/_*.abi3.so")]
    assert {name for name in names if name.endswith(".so")} == set(kernels)
    with pytest.raises(SystemExit, match="more than 1 MiB"):
        prepare.main(["--most-mib", "1"])
    missing = "zict"
    with pytest.raises(SystemExit, match=r"needs these packages, .*: zict$"):
        prepare.main([])
