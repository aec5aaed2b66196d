"""A real Prometheus that scrapes a scheduler, for tests."""

import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from dask_world import free_port, wait_for


def is_here() -> bool:
    """Whether there is one to start."""
    return shutil.which("prometheus") is not None


class Prometheus:
    """Scrapes one target every half second and evaluates some rules as often.

    Args:
        folder: Where its files go.
        target: `host:port` of a scheduler's HTTP server.
        rules: Files of rules.
        token: What the scheduler wants to hear.
    """

    def __init__(self, folder: Path, target: str, rules: list[Path], token: str | None = None):
        self.folder = folder
        self.port = free_port()
        scrape: dict[str, Any] = {
            "job_name": "dask-scheduler",
            "static_configs": [{"targets": [target]}],
        }
        if token:
            scrape["authorization"] = {"credentials": token}
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> "Prometheus":
        self._log = (self.folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        wait_for(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now.

        Raises:
            HTTPError: Prometheus does not understand it.
        """
        result: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return result

    def firing(self) -> dict[str, dict[str, str]]:
        """The labels of the alerts that fire, by name."""
        alerts = self._get("alerts")["alerts"]
        return {a["labels"]["alertname"]: a["labels"] for a in alerts if a["state"] == "firing"}

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False
