"""The alert rules and the Grafana dashboard go by metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_names import NAMES

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "distrain.rules.yml"


def dashboard_expressions() -> list[str]:
    """What the Grafana dashboard asks Prometheus."""
    document = json.loads((DEPLOY / "grafana" / "distrain.json").read_text())
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


def rule_expressions() -> list[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("expressions", [dashboard_expressions, rule_expressions])
def test_they_ask_for_metrics_and_labels_that_there_are(expressions) -> None:
    known = {label for labels in NAMES.values() for label in labels} | {"instance"}
    asked = "\n".join(expressions())
    assert set(re.findall(r"\bdistrain_\w+", asked)) <= set(NAMES)
    assert set(re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"', asked)) <= known
    grouped = re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", asked)
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known


def test_the_dashboard_shows_every_metric_but_those_for_joins() -> None:
    shown = "\n".join([*dashboard_expressions(), *rule_expressions()])
    missing = {name for name in NAMES if name not in shown}
    assert missing == {
        "distrain_job_info",
        "distrain_job_ranks",
        "distrain_job_rows_total",
        "distrain_job_step_duration_seconds_count",
        "distrain_job_step_duration_seconds_sum",
    }


def test_panels_do_not_overlap() -> None:
    document = json.loads((DEPLOY / "grafana" / "distrain.json").read_text())
    cells: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        at = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= taken
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus)")
def test_alerts_fire_when_they_should_and_only_then() -> None:
    for command in (
        ["check", "rules", RULES],
        ["check", "config", RULES.parent / "prometheus.example.yml"],
        ["test", "rules", RULES.parent / "distrain.rules.test.yml"],
    ):
        done = subprocess.run(
            ["promtool", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
