"""What an upgrade may not change: names of claims, and what Kubernetes calls immutable."""

import re
import shutil

from helm_chart import CHART, rendered, template


def immutable(objects):
    """The fields that no upgrade may change, by object."""
    found = {}
    for each in objects:
        kind, name, spec = each["kind"], each["metadata"]["name"], each.get("spec", {})
        keys = {
            "Deployment": ("selector",),
            "StatefulSet": (
                "selector",
                "serviceName",
                "volumeClaimTemplates",
                "podManagementPolicy",
            ),
            "PersistentVolumeClaim": ("accessModes", "storageClassName"),
            "Service": ("clusterIP",),
            "DaskCluster": (),
            "RoleBinding": (),
        }.get(kind)
        if keys is not None:
            found[f"{kind}/{name}"] = {key: spec[key] for key in keys if key in spec}
    return found


def test_a_later_version_changes_neither_selectors_nor_claims(tmp_path):
    later = tmp_path / "distrain"
    shutil.copytree(CHART, later)
    text = (later / "Chart.yaml").read_text()
    (later / "Chart.yaml").write_text(
        re.sub(r'^(version: |appVersion: ")[\d.]+', r"\g<1>9.9.9", text, flags=re.M)
    )
    objects = template(chart=later)
    assert immutable(objects) == immutable(rendered("minimal"))
    assert "distrain:9.9.9-cpu" in str(objects)
