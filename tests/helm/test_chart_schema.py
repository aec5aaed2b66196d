"""values.schema.json has the keys of the service's settings."""

import json

from helm_chart import CHART

from distrain.service import settings


def test_values_schema_has_the_keys_of_the_service():
    defined = json.loads((CHART / "values.schema.json").read_text())["$defs"]
    for name, model in (
        ("limits", settings.Limits),
        ("retention", settings.Retention),
        ("project", settings.ProjectSettings),
    ):
        assert set(defined[name]["properties"]) == set(model.model_fields)
        assert defined[name]["additionalProperties"] is False
