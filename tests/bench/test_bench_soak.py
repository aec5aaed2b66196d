"""What a soak makes of its rounds: drifts, slow rounds, and the document."""

import json
import random

import pytest

from distrain.bench import (
    Bench,
    Measure,
    Round,
    Series,
    Step,
    bench_json,
    find_drifts,
    find_slow_rounds,
    judge,
    merge_rounds,
    parse_bench,
    parse_thresholds,
    summary_lines,
)
from distrain.bench.soak import largest_sizes

ROUNDS = 40
MINUTE = 60.0


def series(values: list[float], unit: str = "bytes/s", place: str = "node a") -> Series:
    return Series("host.triad", place, unit, tuple(MINUTE * n for n in range(len(values))),
                  tuple(values))  # fmt: skip


def steady(seed: int = 0, spread: float = 0.03) -> list[float]:
    rng = random.Random(seed)
    return [1e9 * rng.uniform(1 - spread, 1 + spread) for _ in range(ROUNDS)]


def falling(share: float) -> list[float]:
    return [value * (1 - share * n / (ROUNDS - 1)) for n, value in enumerate(steady())]


def test_figures_that_only_spread_do_not_drift() -> None:
    many = [series(steady(seed, 0.3)) for seed in range(300)]
    assert find_drifts(many) == []
    assert find_slow_rounds([series(steady(seed)) for seed in range(300)]) == []


def test_a_figure_that_falls_little_by_little_drifts_by_as_much() -> None:
    (drift,) = find_drifts([series(steady(1)), series(falling(0.2), place="node b")])
    assert (drift.place, drift.span_s) == ("node b", MINUTE * (ROUNDS - 1))
    assert drift.share == pytest.approx(-0.2 / 0.9, abs=0.03)


@pytest.mark.parametrize(("unit", "sign"), [("bytes/s", -1), ("Hz", -1), ("s", 1)])
def test_which_direction_is_worse_depends_on_the_unit(unit: str, sign: int) -> None:
    (drift,) = find_drifts([series(falling(0.2), unit)])
    assert drift.share * sign > 0


def test_a_temperature_that_rises_is_told_and_not_judged() -> None:
    warm = series([40.0 + n for n in range(ROUNDS)], "C")
    bench = Bench("soak", "cpu", series=(warm,))
    assert judge(bench).passed
    assert "host.triad, node a: 40 C at first, 40 C to 79 C" in summary_lines(bench, judge(bench))


def test_too_few_rounds_show_no_drift() -> None:
    assert find_drifts([series([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])]) == []


def test_a_drift_fails_and_is_the_verdict() -> None:
    bench = Bench("soak", "cpu", series=(series(falling(0.2)),))
    lines = summary_lines(bench, judge(bench))
    assert lines[0].startswith("FAIL: host.triad, node a: 2")
    assert "% worse within 39 minutes" in lines[0]
    assert judge(Bench("soak", "cpu", series=(series(falling(0.02)),))).passed


def test_slow_rounds_are_named_and_fail_an_acceptance_only() -> None:
    values = steady()
    values[7], values[21] = 0.5e9, 0.4e9
    bench = Bench("soak", "cpu", measures=(Measure("host.triad", "node a", "bytes/s", (1e9,)),),
                  series=(series(values),))  # fmt: skip
    assert judge(bench).passed
    verdict = judge(bench, parse_thresholds("machine: a\nleast: {host.triad: 1}\n"))
    (slow,) = verdict.slow_rounds
    assert (slow.count, slow.rounds, slow.worst_s) == (2, ROUNDS, 21 * MINUTE)
    assert not verdict.passed
    assert "far worse in 2 of 40 rounds" in summary_lines(bench, verdict)[0]


def test_rounds_keep_the_largest_size_of_each_place() -> None:
    sizes = [Measure("link", place, "bytes/s", (1.0,), size) for place in "ab" for size in (8, 4)]
    assert [(m.place, m.size_bytes) for m in largest_sizes(sizes)] == [("a", 8), ("b", 8)]


def test_rounds_become_measures_a_step_and_series_and_survive_json() -> None:
    rounds = [
        Round(
            MINUTE * n,
            (Measure("host.triad", "node a", "bytes/s", (1.0 + n, 2.0 + n, 3.0 + n), 8),),
            Step(2, "weak", 8, (10.0, 11.0),
                 ({"forward_backward": 1.0 + n, "exchange": 3.0}, {"forward_backward": 2.0})),
        )
        for n in range(3)
    ]  # fmt: skip
    bench = merge_rounds(rounds, Bench("soak", "cpu"))
    (triad,) = bench.measures
    assert triad.values == (1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0)
    (step,) = bench.steps
    assert step.rows_per_s == (10.0, 11.0) * 3
    assert step.seconds[0] == {"forward_backward": 2.0, "exchange": 3.0}
    found = {(one.name, one.place): one for one in bench.series}
    assert found["host.triad", "node a"].values == (2.0, 3.0, 4.0)
    assert found["step.own", "rank 0"].values == (1.0, 2.0, 3.0)
    assert found["step", "2 ranks"].at_s == (0.0, MINUTE, 2 * MINUTE)
    assert parse_bench(json.dumps(bench_json(bench))) == bench
