"""The objects that pages show besides the chart's."""

import re

import pytest
import yaml
from helm_chart import ROOT


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
