"""Real trainings, watched: over HTTP and by a real Prometheus, and on a local cluster."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import real_prometheus
import yaml
from dask_world import DaskWorld, TrainCommand, records
from distributed import Client
from prometheus_names import NAMES
from small_jobs import small_document, write_prepared
from waiting import until

from distrain.workers.secrets import TOKEN_VARIABLE

DEPLOY = Path(__file__).parents[3] / "deploy"
TOKEN = "a-token-of-some-length"
LONG = {
    "name": "long",
    "train.epochs": 10_000,
    "train.max_steps": 500_000,
    "train.log_every_steps": 20,
    "evaluate.every_steps": 400,
    "checkpoint.every_steps": 400,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("data") / "prepared")


class Visitor:
    """Reads a scheduler's documents.

    Args:
        client: Of the scheduler.
        token: What to say.
    """

    def __init__(self, client: Client, token: str | None = None):
        self.target = f"127.0.0.1:{client.scheduler_info()['services']['dashboard']}"
        self._token = token

    def get(self, path: str) -> Any:
        """A document."""
        request = Request(f"http://{self.target}{path}")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urlopen(request, timeout=90) as answer:
            return json.load(answer)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaskWorld]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with DaskWorld(tmp_path, 2) as world:
        yield world


@pytest.mark.slow
@pytest.mark.skipif(not real_prometheus.is_here(), reason="prometheus (the Debian package)")
def test_prometheus_scrapes_a_run_and_tells_when_it_stalls(
    prepared: Path, tmp_path: Path, world: DaskWorld
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(small_document(prepared)))
    rules = (DEPLOY / "prometheus" / "distrain.rules.yml").read_text()
    quick = tmp_path / "quick.yml"
    quick.write_text(rules.replace("_timestamp_seconds > 60", "_timestamp_seconds > 5"))
    assert quick.read_text() != rules
    words = [word for name, value in LONG.items() for word in ("--set", f"{name}={value}")]
    at = (spec, "--scheduler", world.address, "--run-dir", tmp_path / "run", *words)
    with Client(world.address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        target = Visitor(client).target
        assert Visitor(client, TOKEN).get("/distrain/v1/jobs") == {"jobs": [], "next_cursor": None}
    command = TrainCommand(*at, log=tmp_path / "train.log")
    try:
        with real_prometheus.Prometheus(tmp_path, target, [quick], TOKEN) as prometheus:
            check_run(prometheus, tmp_path / "run")
            check_dashboard(prometheus)
            stop_a_rank(prometheus, world)
    finally:
        command.kill()


def is_recorded(run: Path, split: str, field: str, sample: dict[str, Any]) -> None:
    """Wait until a figure that Prometheus has stands in the run's records."""
    value = float(sample["value"][1])
    until(
        lambda: any(r["split"] == split and r[field] == value for r in records(run)),
        f"a {split} record whose {field} is {value}",
    )


def check_run(prometheus: real_prometheus.Prometheus, run: Path) -> None:
    """Its figures are those of the run's own records."""
    running = 'distrain_job_state{state="running"} == 1'
    until(lambda: prometheus.query(running), "the job runs, for Prometheus")
    until(lambda: prometheus.query('distrain_job_auc_ratio{split="valid"}'), "a validation")
    # The command writes down what the scheduler showed it, which may be after Prometheus saw it.
    (rows,) = prometheus.query("distrain_job_rows_total")
    is_recorded(run, "train", "rows_total", rows)
    (auc,) = prometheus.query('distrain_job_auc_ratio{split="valid"}')
    is_recorded(run, "valid", "auc", auc)
    until(lambda: prometheus.query("rate(distrain_job_rows_total[5s]) > 0"), "rows move")
    ranks = prometheus.query("distrain_rank_step_duration_seconds")
    assert sorted(series["metric"]["rank"] for series in ranks) == ["0", "1"]
    until(lambda: prometheus.query("distrain_job_checkpoint_bytes"), "a checkpoint")
    absent = {
        name for name in NAMES if "_gpu_" in name or "certificate" in name or "target" in name
    }
    absent |= {"distrain_job_ended_timestamp_seconds"}
    for name in set(NAMES) - absent:
        assert prometheus.query(name), name
    assert "DistrainJobStalled" not in prometheus.firing()


def check_dashboard(prometheus: real_prometheus.Prometheus) -> None:
    """Prometheus understands all that the Grafana dashboard asks, and has an answer."""
    document = json.loads((DEPLOY / "grafana" / "distrain.json").read_text())
    for panel in document["panels"]:
        for asked in panel["targets"]:
            expression = re.sub(r"\$(instance|job_id)\b", ".*", asked["expr"])
            found = prometheus.query(expression.replace("$__rate_interval", "10s"))
            none = ("Ended jobs", "Further targets")  # this run has neither
            absent = panel["title"] in none or "GPU" in panel["title"]
            assert found or absent, (panel["title"], expression)


def stop_a_rank(prometheus: real_prometheus.Prometheus, world: DaskWorld) -> None:
    """It says nothing any more, and the other waits for it: the alert fires, until it goes on."""
    stopped = world.ranks()[1]
    stopped.send_signal(signal.SIGSTOP)
    try:
        until(lambda: "DistrainJobStalled" in prometheus.firing(), "the alert fires")
    finally:
        stopped.send_signal(signal.SIGCONT)
    labels = prometheus.firing()["DistrainJobStalled"]
    assert labels["severity"] == "critical"
    assert labels["job_id"].startswith("long-")
    until(lambda: "DistrainJobStalled" not in prometheus.firing(), "the alert ends")
