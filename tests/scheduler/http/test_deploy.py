"""Alert rules, runbooks and Grafana dashboards go by metrics that there are, and hold together."""

import json
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_names import NAMES, SERVICE_NAMES

from distrain.service.settings import Settings
from distrain.service.store.store import migrate

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "runbooks.md").read_text()
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
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


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian's prometheus)"
)


def rules() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def of_dashboards() -> list[str]:
    """What the Grafana dashboards ask Prometheus."""
    files = (DEPLOY / "grafana").glob("*.json")
    panels = [panel for file in files for panel in json.loads(file.read_text())["panels"]]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def of_rules() -> list[str]:
    return [rule["expr"] for rule in rules()]


def of_runbooks() -> list[str]:
    return blocks("promql")


@pytest.mark.parametrize("expressions", [of_dashboards, of_rules, of_runbooks])
def test_they_ask_for_metrics_and_labels_that_there_are(expressions) -> None:
    known = {label for labels in KNOWN.values() for label in labels} | {"instance"}
    asked = "\n".join(expressions())
    assert asked
    assert set(re.findall(r"\b(?:distrain|dask)_\w+", asked)) <= set(KNOWN)
    assert set(re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"', asked)) <= known
    grouped = re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", asked)
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known


def test_the_dashboards_show_every_metric_but_those_for_joins() -> None:
    shown = "\n".join([*of_dashboards(), *of_rules()])
    assert {name for name in (*NAMES, *SERVICE_NAMES) if name not in shown} == FOR_JOINS


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    named = sorted((rule["alert"], rule["annotations"]["runbook"]) for rule in rules())
    alerts = re.findall(r"^## (.*)$", PAGE, re.M)
    assert named == sorted((alert, f"docs/runbooks.md#{alert.lower()}") for alert in alerts)


@needs_promtool
@pytest.mark.parametrize("expressions", [of_runbooks, of_dashboards])
def test_queries_parse(expressions, tmp_path: Path) -> None:
    plain = [
        re.sub(r"\$\w+", ".*", text.replace("$__rate_interval", "1m")) for text in expressions()
    ]
    wrapped = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(plain)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": wrapped}]}))
    promtool("check", "rules", file)


def test_sql_of_the_runbooks_is_understood(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    found = blocks("sql")
    assert found
    with sqlite3.connect(settings.data_dir / "service.db") as database:
        for statement in found:
            database.execute(statement)
    database.close()


@needs_promtool
@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.example.yml")
    promtool("test", "rules", *sorted((DEPLOY / "prometheus").glob("*.rules.test.yml")))


def promtool(*words: object) -> None:
    command = ["promtool", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
