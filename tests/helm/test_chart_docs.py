import re

import helm_values_text
import pytest
import yaml
from helm_chart import ROOT


def test_every_value_is_in_the_table():
    text = helm_values_text.VALUES.read_text()
    paths = {
        path
        for path, _ in helm_values_text.leaves(
            yaml.safe_load(text), helm_values_text.comments(text)
        )
    }
    shown = helm_values_text.sections()
    assert {"workers.gpu.perPod", "tls.existing.worker", "clusters"} <= paths
    assert [path for path in paths if f"`{path}`" not in shown] == []


def test_a_value_without_a_comment_is_told(tmp_path, monkeypatch):
    file = tmp_path / "values.yaml"
    file.write_text("a:\n  # -- Something.\n  b: 1\n  c: 2\n")
    monkeypatch.setattr(helm_values_text, "VALUES", file)
    with pytest.raises(LookupError, match=r"a\.c has no comment"):
        helm_values_text.sections()


def test_a_comment_has_several_lines():
    text = "a:\n  # -- One,\n  # two.\n  b: 1\n# Of nothing.\nc: 2\n"
    assert helm_values_text.comments(text) == {"a.b": "One, two."}


def test_the_train_job_of_the_page_has_fields_that_kubeflow_knows():
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="needs the extra dev")
    [shown] = re.findall(
        r"```yaml\n(apiVersion: .*?)```", (ROOT / "docs/launchers.md").read_text(), re.S
    )
    job = yaml.safe_load(shown)
    assert models.TrainerV1alpha1TrainJob.from_dict(job).to_dict() == job  # others are dropped
    job["spec"]["trainer"]["numNodes"] = "two"
    with pytest.raises(ValueError, match="numNodes"):
        models.TrainerV1alpha1TrainJob.from_dict(job)
