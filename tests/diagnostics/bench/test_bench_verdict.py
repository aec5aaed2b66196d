"""Verdicts over synthetic benches: 128 ranks with planted faults."""

import random
from dataclasses import replace
from functools import partial

import pytest
from wording import Wording

from distrain.diagnostics.bench.comparison import find_changes
from distrain.diagnostics.bench.limits import LOADER_RATE, find_limits
from distrain.diagnostics.bench.results import Bench, Measure, Step
from distrain.diagnostics.bench.summary import summary_lines
from distrain.diagnostics.bench.thresholds import find_outliers, parse_thresholds
from distrain.diagnostics.bench.verdict import judge
from distrain.errors import InputError

NODES, PER_NODE = 16, 8
RANKS = NODES * PER_NODE
ROWS = RANKS * 8192
LINK = 45e9


def spread(rng: random.Random, middle: float, times: int = 5) -> tuple[float, ...]:
    """Repetitions that differ by up to 1 %."""
    return tuple(middle * rng.uniform(0.99, 1.01) for _ in range(times))


def make_bench(
    slow_link: str = "", slow_rank: int = -1, network: float = 1.0, seed: int = 0
) -> Bench:
    """A cluster of 16 nodes; a network of 0.1 has a tenth of its bandwidth."""
    rng = random.Random(seed)
    places = [f"link n{a} > n{b}" for a in range(NODES) for b in range(NODES) if a != b]
    measures = [
        Measure("link", p, "bytes/s", spread(rng, LINK * network * (0.7 if p == slow_link else 1)))
        for p in places
    ]
    measures += [
        Measure("host.triad", f"node n{n}", "bytes/s", spread(rng, 3e11)) for n in range(NODES)
    ]
    return Bench(
        mode="accept",
        device="cpu",
        measures=tuple(measures),
        steps=tuple(make_step(rng, n, slow_rank, network) for n in (1, 8, RANKS)),
    )


def make_step(rng: random.Random, ranks: int, slow_rank: int, network: float) -> Step:
    """A synchronous step: who is early waits for the slowest inside of the exchange."""
    compute = [0.030 * rng.uniform(0.99, 1.01) for _ in range(ranks)]
    if 0 <= slow_rank < ranks:
        compute[slow_rank] *= 1.5
    sent_s = 0.006 / network if ranks > 1 else 0.0
    seconds = tuple(
        {"forward_backward": s, "exchange": sent_s + max(compute) - s, "data_wait": 0.001}
        for s in compute
    )
    step_s = max(compute) + sent_s + 0.001
    return Step(ranks, "weak", 8192 * ranks, spread(rng, 8192 * ranks / step_s), seconds)


def test_an_even_cluster_has_no_outlier_and_passes() -> None:
    verdict = judge(make_bench())
    assert verdict.passed
    assert verdict.findings["outliers"] == []
    assert list(verdict.limits)[:2] == ["CPU", "network"]
    first_s, next_s, *_ = verdict.limits.values()
    assert first_s / next_s == pytest.approx(0.030 / 0.006, rel=0.03)


def test_the_slow_link_is_named_alone() -> None:
    outliers = find_outliers(make_bench(slow_link="link n3 > n7"))
    assert [(o.place, o.name) for o in outliers] == [("link n3 > n7", "link")]
    assert outliers[0].gain == pytest.approx(-0.3, abs=0.02)


def test_the_slow_rank_is_named_alone_although_all_others_wait_longer() -> None:
    bench = make_bench(slow_rank=77)
    assert [o.place for o in find_outliers(bench)] == ["rank 77"]
    seconds = find_limits(bench)
    assert seconds["network"] == pytest.approx(0.006, rel=0.01)
    assert seconds["uneven ranks"] == pytest.approx(0.015, rel=0.1)


def test_the_first_limits_are_a_slow_network_or_loaders_that_hide_behind_the_step() -> None:
    bench = make_bench()
    loader = Measure(LOADER_RATE, f"{RANKS} ranks", "rows/s", (ROWS / 0.025,))
    with_loader = replace(bench, measures=(*bench.measures, loader))
    for one, first, after in (
        (make_bench(network=0.1), "network", "CPU"),
        (with_loader, "CPU", "loader"),
    ):
        assert list(find_limits(one))[:2] == [first, after]


def test_of_two_nodes_the_worse_is_told_where_repetitions_tell() -> None:
    def of(*rates: tuple[float, ...]) -> list[tuple[str, float]]:
        pair = (Measure("host.triad", f"node {n}", "bytes/s", v) for n, v in enumerate(rates))
        found = find_outliers(Bench("quick", "cpu", measures=tuple(pair)))
        return [(one.place, round(one.gain, 3)) for one in found]

    assert of((1.0, 1.0, 1.0), (0.8, 0.8, 0.8)) == [("node 1", -0.2)]
    assert of((1.0,), (0.5,)) == []
    assert of((1.0, 0.5, 1.5), (0.8, 0.4, 1.2)) == []


def test_noise_makes_no_outlier() -> None:
    noisy = (0.5, 1.1, 0.7, 1.5, 0.9)
    steady = (1.0, 1.0, 1.0, 1.0, 1.0)
    group = [Measure("read", f"node {n}", "bytes/s", steady) for n in range(4)]
    found = find_outliers(
        Bench("quick", "cpu", measures=(*group, Measure("read", "node 9", "bytes/s", noisy)))
    )
    assert found == []


def test_thresholds_name_each_place_that_misses_them_and_what_was_not_measured() -> None:
    thresholds = parse_thresholds("machine: test\nleast: {link: 40e9, host.triad: 1e11}\n")
    verdict = judge(make_bench(slow_link="link n0 > n1"), thresholds)
    assert [(m.name, m.place) for m in verdict.findings["misses"]] == [("link", "link n0 > n1")]
    assert not verdict.passed
    missing = judge(make_bench(), parse_thresholds("machine: t\nmost: {all_reduce: 0.1}\n"))
    assert [(m.name, m.place) for m in missing.findings["misses"]] == [("all_reduce", "")]
    assert not missing.passed


def test_a_slow_rank_fails_an_acceptance_only() -> None:
    bench = make_bench(slow_rank=5)
    assert judge(bench).passed
    verdict = judge(bench, parse_thresholds("machine: t\nleast: {link: 1}\n"))
    assert not verdict.passed
    assert "rank 5" in summary_lines(bench, verdict)[0]


DEFECTIVE = ["", "3", "[", "machine: a", "least: {a: 1}", "machine: a\nleast: {a: fast}",
             "machine: a\nleast: {a: -1}", "machine: a\nleats: {a: 1}\nmost: {b: 1}"]  # fmt: skip


def test_bad_thresholds_are_refused_with_their_file(wording: Wording) -> None:
    for text in DEFECTIVE:
        refused = wording.refused(InputError, partial(parse_thresholds, text, "t.yaml"))
        assert "t.yaml" in refused.where.values(), text


def test_a_change_within_the_spread_is_none() -> None:
    assert find_changes(make_bench(), make_bench(seed=1)) == []


def test_a_slower_network_is_worse_and_fails() -> None:
    verdict = judge(make_bench(network=0.8, seed=1), earlier=make_bench())
    worse = {(c.name, c.place) for c in verdict.failures}
    assert ("link", "link n0 > n1") in worse
    assert ("step.weak", f"{RANKS} ranks") in worse
    assert ("host.triad", "node n0") not in worse
    assert not verdict.passed
    assert judge(make_bench(), earlier=make_bench(network=0.8, seed=1)).passed


def test_benches_that_have_no_figure_in_common_do_not_pass() -> None:
    before = make_bench()
    for other in (replace(before, mode="quick"), replace(before, device="cuda"), Bench("", "")):
        verdict = judge(before, earlier=other)
        assert not verdict.passed
        assert summary_lines(before, verdict)[0].startswith("FAIL: the earlier bench has no common")


def test_more_seconds_are_worse_and_few_repetitions_unknown() -> None:
    def of(*values: float) -> Bench:
        return Bench("quick", "cpu", measures=(Measure("all_reduce", "", "s", values),))

    (change,) = find_changes(of(1.0, 1.0, 1.0), of(1.5, 1.5, 1.5))
    assert (change.fails, change.gain) == (True, -0.5)
    assert find_changes(of(1.0), of(2.0)) == []
