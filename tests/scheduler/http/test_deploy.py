"""The alert rules and the Grafana dashboard go by metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_names import NAMES, SERVICE_NAMES

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
KNOWN = {
    **NAMES,
    **SERVICE_NAMES,
    "dask_scheduler_workers": {"state"},
    "dask_scheduler_workers_removed_total": set(),
    "up": {"job", "namespace", "service"},
}
FOR_JOINS = {
    "distrain_job_info",
    "distrain_job_ranks",
    "distrain_job_rows_total",
    "distrain_job_step_duration_seconds_count",
    "distrain_job_step_duration_seconds_sum",
    "distrain_service_request_duration_seconds_count",
    "distrain_service_request_duration_seconds_sum",
}


def dashboard_expressions() -> list[str]:
    """What the Grafana dashboards ask Prometheus."""
    documents = [json.loads(path.read_text()) for path in DASHBOARDS]
    return [
        target["expr"]
        for document in documents
        for panel in document["panels"]
        for target in panel.get("targets", [])
    ]


def runbook_expressions() -> list[str]:
    pages = (DEPLOY.parent / "docs").glob("runbooks-*.md")
    text = "\n".join(page.read_text() for page in pages)
    return re.findall(r"^```promql\n(.*?)^```", text, re.M | re.S)


def rule_expressions() -> list[str]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize(
    "expressions", [dashboard_expressions, rule_expressions, runbook_expressions]
)
def test_they_ask_for_metrics_and_labels_that_there_are(expressions) -> None:
    known = {label for labels in KNOWN.values() for label in labels} | {"instance"}
    asked = "\n".join(expressions())
    assert set(re.findall(r"\b(?:distrain|dask)_\w+", asked)) <= set(KNOWN)
    assert set(re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"', asked)) <= known
    grouped = re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", asked)
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known


def test_the_dashboards_show_every_metric_but_those_for_joins() -> None:
    shown = "\n".join([*dashboard_expressions(), *rule_expressions()])
    assert {name for name in (*NAMES, *SERVICE_NAMES) if name not in shown} == FOR_JOINS


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus)")
@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then() -> None:
    for command in (
        ["check", "rules", *RULES],
        ["check", "config", DEPLOY / "prometheus" / "prometheus.example.yml"],
        ["test", "rules", *sorted((DEPLOY / "prometheus").glob("*.rules.test.yml"))],
    ):
        done = subprocess.run(
            ["promtool", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
