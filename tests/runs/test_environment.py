"""What a run's files say of the machines that it ran on."""

import json

import torch

from distrain.jobs.events import RankStarted
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.runs.open_run import open_run
from distrain.runs.records.collector import Collector
from distrain.runs.run_file import describe_environment, read_run_and_spec
from distrain.version import build

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}})


def test_a_run_keeps_the_machine_and_the_packages_it_was_made_with(tmp_path):
    with open_run(tmp_path, SPEC, "clicks-1"):
        pass
    run, _ = read_run_and_spec(tmp_path)
    assert run.environment == json.loads(json.dumps(describe_environment()))
    assert run.environment["packages"]["torch"] == torch.__version__
    assert run.environment["packages"]["distrain"] == run.version == build()
    assert run.environment["memory_bytes"] > 2**28
    assert len(RunPaths(tmp_path).run.read_bytes()) < 4096


def test_where_ranks_run_is_known_when_all_have_told():
    collector = Collector()
    collector.begin_attempt(1, 2)
    collector.add(RankStarted(1, 11, "b", "cuda:3", "GPU of b"))
    assert collector.shown()["rank_places"] == ()
    collector.add(RankStarted(0, 10, "a", "cpu", "CPU of a"))
    assert collector.shown()["rank_places"] == (
        {"host": "a", "device": "cpu", "hardware": "CPU of a"},
        {"host": "b", "device": "cuda:3", "hardware": "GPU of b"},
    )
    collector.begin_attempt(2, 2)
    assert collector.shown()["rank_places"] == ()
