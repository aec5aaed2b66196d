"""What the helms that people have say of the chart."""

import helm_tools
import pytest
from helm_chart import NAMES, rendered, run_helm, template


def nothing_to_mend(tool):
    for name in NAMES:
        done = run_helm("lint", "--strict", ".", "--values", f"ci/{name}-values.yaml", tool=tool)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_helm_finds_nothing_to_mend():
    nothing_to_mend(helm_tools.NEW)


@pytest.mark.release
def test_the_older_helm_finds_nothing_to_mend_and_makes_the_same():
    nothing_to_mend(helm_tools.OLD)
    for name in NAMES:
        older = template("--values", f"ci/{name}-values.yaml", tool=helm_tools.OLD)
        for objects in (older, newer := rendered(name)):
            for each in objects:
                if each["kind"] == "Secret":
                    each["data"] = sorted(each["data"])  # new at each rendering
        assert by_name(older) == by_name(newer), name
    done = run_helm("template", "r", ".", "--set", "workers.replicas=many", tool=helm_tools.OLD)
    assert done.returncode != 0
    assert "workers.replicas" in done.stderr


def by_name(objects):
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def test_the_notes_have_the_next_commands():
    """Helm 3 asks a cluster first."""
    done = run_helm("install", "r", ".", "--dry-run=client", "--namespace", "clicks")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "distrain serve token create --user operator" in notes
    assert "exec deployment/r-distrain-service -c service" in notes
    assert "WARNING" not in notes
