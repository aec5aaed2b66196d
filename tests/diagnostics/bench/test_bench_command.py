"""`distrain bench` on a local cluster: what it writes, prints and returns."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from distrain.cli.main import cli
from distrain.diagnostics.bench.limits import LOADER_RATE, find_limits
from distrain.diagnostics.bench.measuring import sizes
from distrain.diagnostics.bench.measuring.sizes import QUICK
from distrain.diagnostics.bench.results import parse_bench
from distrain.errors import InputError, OutputError

TINY = replace(
    QUICK,
    memory_bytes=2**20,
    file_bytes=2**20,
    message_bytes=(2**10, 2**16),
    repeats=3,
    data_rows=4_000,
    rank_rows=200,
    steps=12,
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_is_measured_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "QUICK", TINY)
    profile, out = tmp_path / "node.yaml", tmp_path / "made" / "bench"
    profile.write_text(
        "machine: one of steel\nleast: {host.triad: 1, all_to_all.on_node: 1e18, link: 1}\n"
    )
    words = ["bench", "--quick", "--device", "cpu", "--accept", profile, "--out", out]
    done = CliRunner().invoke(cli, ["--quiet", *map(str, words), "--json"])
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert told["passed"] is False
    assert told["summary"][0].startswith("FAIL: all_to_all.on_node, node 127.0.0.1: ")
    assert any("link was not measured" in line for line in told["summary"])
    assert not any("host.triad, " in line for line in told["summary"])

    assert sorted(path.name for path in out.iterdir()) == ["bench.json"]
    assert [path.name for path in out.parent.iterdir()] == ["bench"]
    bench = parse_bench((out / "bench.json").read_text())
    assert bench.mode == told["mode"] == "quick"
    assert [node["workers"] for node in bench.inventory] == [2]
    assert {m.name for m in bench.measures} >= {
        "host.copy", "host.triad", "storage.write", "storage.read_cold", "storage.read_warm",
        "all_reduce.on_node", "all_gather.on_node", "all_to_all.on_node", "loader.threads_1",
        LOADER_RATE,
    }  # fmt: skip
    # A host is measured once, however many workers it has.
    triad = [m for m in bench.measures if m.name == "host.triad"]
    assert [(m.place, len(m.values)) for m in triad] == [("node 127.0.0.1", TINY.repeats)]
    assert [(step.ranks, step.rows) for step in bench.steps] == [(1, 200), (2, 400)]
    for step in bench.steps:
        assert len(step.rows_per_s) == 9
        assert all(of_rank["forward_backward"] > 0 for of_rank in step.seconds)
    assert {"CPU", "network", "loader"} <= find_limits(bench).keys()


def test_mistakes_are_told_before_anything_starts(tmp_path: Path) -> None:
    profile, earlier = tmp_path / "node.yaml", tmp_path / "earlier.json"
    profile.write_text("machine: a\n")
    earlier.write_text("{}")
    (tmp_path / "made").mkdir()
    for words, error in (
        (["--accept", profile], InputError),
        (["--compare", earlier], InputError),
        (["--out", tmp_path / "made"], OutputError),
    ):
        done = CliRunner().invoke(cli, ["bench", *map(str, words)])
        assert isinstance(done.exception, error), done.output
