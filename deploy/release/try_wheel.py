"""Tests a wheel as users install it: in a new environment, without a checkout or compiler.

    python deploy/release/try_wheel.py dist/release/*.whl ENVIRONMENT

Installs the wheel with the versions of its constraints file, runs doctor, demo and a job of the
service, and uninstalls the wheel. An existing environment keeps its other packages.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

KERNELS = ("loader kernel", "page decoder", "order kernel", "text splitter", "tables' kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("environment", type=Path, help="its folder; created if missing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(given.environment.absolute(), Path(folder))
        if not (trial.environment / "bin" / "python").exists():
            run(sys.executable, "-m", "venv", str(trial.environment))
        trial.install(given.wheel.absolute())
        trial.see_kernels()
        trial.distrain("demo", "--rows", "20k", "--ranks", "1")
        trial.serve_a_job()
        trial.uninstall()
    print(f"{given.wheel.name} installs, trains, serves and goes")


class Trial:
    """An environment, and a folder that is both working and home folder of its commands."""

    def __init__(self, environment: Path, folder: Path):
        self.environment, self.folder = environment, folder
        kept = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
        kept = {name: value for name, value in kept.items() if not name.startswith("DISTRAIN_")}
        self.variables = kept | {"PATH": str(environment / "bin"), "HOME": str(folder)}

    def install(self, wheel: Path) -> None:
        """Install the wheel with the service extra, in the versions of its constraints file."""
        with ZipFile(wheel) as archive:
            (name,) = (
                n for n in archive.namelist() if n.endswith("share/distrain/constraints.txt")
            )
            constraints = self.folder / "constraints.txt"
            constraints.write_bytes(archive.read(name))
        self.pip("install", "--quiet", "--constraint", str(constraints), f"{wheel}[service]")
        self.pip("check")

    def see_kernels(self) -> None:
        """Check that `distrain doctor` finds no mistakes, and that all kernels are built."""
        found = {
            one["name"]: one["detail"] for one in json.loads(self.distrain("doctor", "--json"))
        }
        absent = [name for name in KERNELS if found.get(name) != "built"]
        if absent:
            sys.exit(f"not built according to distrain doctor: {', '.join(absent)}")

    def serve_a_job(self) -> None:
        """Submit a job to a service, wait for its end, and fetch the page with its resources."""
        self.distrain("init", "criteo-dlrm", "--data", "demo/data", "--ranks", "1")
        with self.serving() as told:
            self.variables |= {"DISTRAIN_SERVER": told["url"], "DISTRAIN_TOKEN": told["token"]}
            self.distrain("submit", "job.yaml", "--wait")  # fails unless the job succeeds
            page = fetched(told["url"])
            for script in re.findall(r'<script[^>]* src="([^"]+)"', page):
                fetched(urllib.parse.urljoin(told["url"], script))

    @contextmanager
    def serving(self) -> Iterator[dict[str, Any]]:
        """Start `distrain serve` and yield its output; stop it with its cluster at the end."""
        words = ("serve", "--json", "--stop-clusters", "--port", "0", "--data-dir", "served")
        with (
            (self.folder / "serve.log").open("w+") as log,
            subprocess.Popen(
                [self.environment / "bin" / "distrain", *words],
                cwd=self.folder,
                env=self.variables,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                if not (line := process.stdout.readline()):
                    log.seek(0)
                    sys.exit(f"distrain serve ended:\n{log.read()}")
                yield json.loads(line)
            finally:
                process.terminate()

    def uninstall(self) -> None:
        """Uninstall the wheel, and check that none of its files remains."""
        self.pip("uninstall", "--yes", "distrain")
        left = [str(path) for path in self.environment.rglob("*distrain*")]
        if left:
            sys.exit(f"pip uninstall left {', '.join(left)}")

    def pip(self, *words: str) -> None:
        python = str(self.environment / "bin" / "python")
        run(python, "-m", "pip", *words, cwd=self.folder, env=self.variables)

    def distrain(self, *words: str) -> str:
        command = str(self.environment / "bin" / "distrain")
        return run(command, *words, cwd=self.folder, env=self.variables)


def fetched(url: str) -> str:
    """Return the text at a URL; raise `HTTPError` on failure."""
    print("GET", url, flush=True)
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; exit with it on failure."""
    print("$", *words, flush=True)
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"it failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
