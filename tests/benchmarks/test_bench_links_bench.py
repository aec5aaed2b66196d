"""What bench_links.py makes of measures, and the control groups that it slows processes with."""

from pathlib import Path

import pytest

from benchmarks.bench_links_bench import throttles
from benchmarks.bench_links_bench.result import (
    document,
    of_collectives,
    of_limits,
    of_outliers,
    table,
)
from benchmarks.bench_links_bench.throttles import Throttle
from distrain.diagnostics.bench.document import Bench, Measure, Step

CAP = 100e6 / 8


def all_to_all(suffix, *shares, size=2**22):
    return Measure(f"all_to_all.{suffix}", "", "bytes/s", tuple(CAP * s for s in shares), size)


@pytest.mark.parametrize(
    ("share", "met"), [(0.86, True), (1.14, True), (0.84, False), (1.2, False)]
)
def test_an_all_to_all_is_held_to_the_cap_at_its_largest_size(share, met):
    small = all_to_all("off_node", 0.1, 0.1, size=1024)
    (found,) = of_collectives("2 x 2", [small, all_to_all("off_node", share, 0.1, 3)], 100)
    assert found.met is met
    assert found.figures["of_cap"] == [share, 0.1, 3]


def test_nodes_are_to_be_faster_inside():
    for inside, met in ((2.1, True), (1.9, False)):
        measures = [all_to_all("off_node", 1.0), all_to_all("on_node", inside)]
        assert [one.met for one in of_collectives("", measures, 100)] == [True, met]


def test_the_worst_outlier_is_to_be_the_planted_one():
    rates = {"a": 8.0, "b": 10.0, "c": 10.0, "d": 5.0}
    links = tuple(Measure("link", f"link {n}", "bytes/s", (r,) * 3) for n, r in rates.items())
    bench = Bench("links", "cpu", measures=links)
    assert of_outliers("", bench, "link d", "link").met
    missed = of_outliers("", bench, "link a", "link")
    assert not missed.met
    assert missed.found == "link d: link 44 % worse"
    assert len(missed.figures["all_outliers"]) == 2
    assert of_outliers("", Bench("links", "cpu"), "link a", "link").found == "no outlier"


def test_the_first_limit_is_to_be_the_one_that_was_set_up():
    step = Step(1, "weak", 8, (1.0,), ({"forward_backward": 0.2, "exchange": 0.3},))
    bench = Bench("links", "cpu", steps=(step,))
    assert of_limits("", bench, "network").met
    assert not of_limits("", bench, "CPU").met
    assert not of_limits("", Bench("links", "cpu"), "CPU").met


def test_the_document_says_of_each_scene_whether_it_was_found():
    found = of_collectives("2 x 2", [all_to_all("off_node", 0.5)], 100)
    told = document(found, load=1.0)
    assert told["met"] == {"2 x 2: all-to-all at 100 Mbit/s": False}
    assert told["figures"]["2 x 2: all-to-all at 100 Mbit/s"]["found"] == "50 Mbit/s (-50 %)"
    assert table(found)[1].endswith("missed")


@pytest.mark.parametrize("version", [1, 2])
def test_groups_are_limited_as_their_version_of_the_kernel_wants(tmp_path, version):
    for name in ("cpu", "blkio") if version == 1 else ():
        (tmp_path / name).mkdir()
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu io memory")
    with Throttle("slow", tmp_path) as throttle:
        throttle.limit_cores(0.25, 0.1)
        throttle.limit_reads("8:0", 1000)
        files = {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*.*")}
        for path in tmp_path.rglob("slow/*"):  # the kernel's own files go with their folder
            path.unlink()
    if version == 2:
        assert files["slow/cpu.max"] == "5000 20000"
        assert files["slow/cpu.weight"] == "10"
        assert files["slow/io.max"] == "8:0 rbps=1000"
        assert files["cgroup.subtree_control"] == "+cpu +io"
    else:
        assert files["cpu/slow/cpu.cfs_quota_us"] == "5000"
        assert files["cpu/slow/cpu.shares"] == "102"
        assert files["blkio/slow/blkio.throttle.read_bps_device"] == "8:0 1000"
    assert not list(tmp_path.rglob("slow"))


def test_a_machine_without_such_groups_or_disks_is_told(tmp_path):
    assert "control groups" in (throttles.why_not(tmp_path, tmp_path) or "")
    (tmp_path / "cgroup.controllers").write_text("cpu io")
    shared = Path("/dev/shm")
    if shared.is_dir():  # memory is no disk
        assert "no disk" in (throttles.why_not(shared, tmp_path) or "")
