"""values.schema.json has all values, is closed, and has the keys of the service's settings."""

import json

import yaml
from helm_chart import CHART

from distrain.service import settings


def test_values_schema_has_the_keys_of_the_service():
    defined = json.loads((CHART / "values.schema.json").read_text())["$defs"]
    for name, model in (
        ("limits", settings.Limits),
        ("retention", settings.Retention),
        ("project", settings.ProjectSettings),
        ("webhooks", settings.Webhooks),
    ):
        assert set(defined[name]["properties"]) == set(model.model_fields)
        assert defined[name]["additionalProperties"] is False


def test_every_value_is_in_the_schema_and_every_object_is_closed():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = list(_open(schema, schema, values, ""))
    assert found == ["global"]  # a parent chart's


def _open(schema, whole, values, path):
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    properties = schema.get("properties", {})
    if isinstance(values, dict) and properties:
        missing = set(values) - set(properties)
        assert not missing, f"{path}: {missing}"
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        yield path.lstrip(".")
    for name, inner in properties.items():
        below = values.get(name) if isinstance(values, dict) else None
        if not path.endswith(("affinity", "Selector")) and name not in PODS_OWN:
            yield from _open(inner, whole, below, f"{path}.{name}")


PODS_OWN = {"affinity", "topologySpreadConstraints", "podSecurityContext", "securityContext"}
"""Kubernetes' own structures, which the API server checks."""
