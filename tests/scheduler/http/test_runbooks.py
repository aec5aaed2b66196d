"""Each alert has its runbook, whose queries are understood; Grafana's files hold together."""

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from distrain.service.settings import Settings
from distrain.service.store.store import migrate

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "runbooks.md"
RULES = sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian's prometheus)"
)


def rules() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def sections() -> dict[str, str]:
    """The text of the page by alert."""
    found = {}
    for text in PAGE.read_text().split("\n## ")[1:]:
        name = text.partition("\n")[0]
        assert name not in found
        found[name] = text
    return found


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def panels() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield path, panel


def dashboard_expressions() -> list[str]:
    """As Prometheus gets them."""
    found = [target["expr"] for _, panel in panels() for target in panel.get("targets", [])]
    return [re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "1m")) for expr in found]


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    named = {rule["alert"]: rule["annotations"]["runbook"] for rule in rules()}
    there = {alert: f"docs/runbooks.md#{alert.lower()}" for alert in sections()}
    assert named == there


@needs_promtool
@pytest.mark.parametrize(
    "expressions", [lambda: blocks("promql"), dashboard_expressions], ids=["runbooks", "dashboards"]
)
def test_queries_parse(expressions, tmp_path: Path) -> None:
    wrapped = [
        {"record": f"query:{number}", "expr": text} for number, text in enumerate(expressions())
    ]
    assert wrapped
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": wrapped}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sql_of_the_runbooks_is_understood(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    found = blocks("sql")
    assert found
    with sqlite3.connect(settings.data_dir / "service.db") as database:
        for statement in found:
            database.execute(statement)
    database.close()
