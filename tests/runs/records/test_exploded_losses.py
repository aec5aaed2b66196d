"""A training whose first losses are many times a constant's is warned of."""

import numpy as np
import pytest

from distrain.jobs.events import PHASES, StepsDone, TrainingStarted
from distrain.jobs.job_view import Notice
from distrain.jobs.spec.fit_to_table import TableFacts
from distrain.jobs.spec.presets import job_for
from distrain.metrics import BinaryMetrics
from distrain.runs.records.collector import Collector
from distrain.schema import ColumnSchema, Schema, Tags


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (500.0, True)])
def test_losses_of_many_times_a_constants_are_warned_of_once(scale: float, warned: bool) -> None:
    rng, collector = np.random.default_rng(0), Collector()
    collector.begin_attempt(1, 1)
    collector.add(TrainingStarted(0, 0, 10, 1000, 5, "arrow", 0, 0.0))
    for step in (1, 2):
        metrics = BinaryMetrics()
        metrics.update((rng.normal(size=50) * scale).astype(np.float32), rng.integers(0, 2, 50))
        seconds = dict.fromkeys(PHASES, 0.1)
        collector.add(StepsDone(0, 0, step, float(step), seconds, metrics.to_json(), 0.1))
    warnings = [e for e in collector.entries.since(0) if isinstance(e, Notice) and e.is_warning]
    assert len(warnings) == warned


def test_init_gives_cross_models_numbers_without_pieces() -> None:
    label = ColumnSchema("label", "float32", (Tags.TARGET, Tags.BINARY))
    user = ColumnSchema("user", "int32", (Tags.CATEGORICAL,), 200, 8)
    schema = Schema((label, user, ColumnSchema("price", "float32", (Tags.CONTINUOUS,))))
    pieces = {
        kind: job_for(kind, "data", schema, TableFacts(10_000, True))["model"].get("number_pieces")
        for kind in ("tabular", "dcn_v2", "gdcn")
    }
    assert pieces == {"tabular": 12, "dcn_v2": None, "gdcn": None}
