"""Both helms that people have find the same objects, and nothing to mend."""

import helm_tools
import pytest
from helm_chart import NAMES, rendered, run_helm, template

pytestmark = pytest.mark.slow

HELMS = pytest.mark.parametrize(
    "tool", [helm_tools.NEW, helm_tools.OLD], ids=lambda helm: helm.name
)


@HELMS
@pytest.mark.parametrize("name", NAMES)
def test_helm_finds_nothing_to_mend(name, tool):
    done = run_helm("lint", "--strict", ".", "--values", f"ci/{name}-values.yaml", tool=tool)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_older_helm_makes_the_same(name):
    older = template("--values", f"ci/{name}-values.yaml", tool=helm_tools.OLD)
    for objects in (older, newer := rendered(name)):
        for each in objects:
            if each["kind"] == "Secret":
                each["data"] = sorted(each["data"])  # new at each rendering
    assert by_name(older) == by_name(newer)


def by_name(objects):
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@HELMS
def test_a_wrong_value_is_refused_with_its_place(tool):
    done = run_helm("template", "r", ".", "--set", "workers.replicas=many", tool=tool)
    assert done.returncode != 0
    assert "workers.replicas" in done.stderr.replace("/", ".")


def test_the_notes_have_the_next_commands():
    """Helm 3 asks a cluster first."""
    done = run_helm("install", "r", ".", "--dry-run=client", "--namespace", "clicks")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "distrain serve token create --user operator" in notes
    assert "exec deployment/r-distrain-service -c service" in notes
    assert "WARNING" not in notes
