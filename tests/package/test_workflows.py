"""The workflows of the repository: what they name exists, and nothing in them moves by itself."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").iterdir()}


def test_actions_are_pinned_and_leave_no_credentials() -> None:
    for name, text in WORKFLOWS.items():
        for action in re.findall(r"uses: (\S+)", text):
            assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), (name, action)
        checkouts = text.count("uses: actions/checkout@")
        assert checkouts == text.count("persist-credentials: false")
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_pythons_that_are_tested_are_those_that_are_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    jobs = yaml.safe_load(WORKFLOWS["checks"])["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised


def test_what_is_published_links_to_the_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name in ("release", "wheels"):
        assert "DISTRAIN_REPOSITORY" in yaml.safe_load(WORKFLOWS[name])["env"]
    # cibuildwheel builds in a container, which has the variables that are named alone.
    assert "DISTRAIN_REPOSITORY" in project["tool"]["cibuildwheel"]["environment-pass"]
