"""The document of a bench as JSON and back."""

import json
from functools import partial

from wording import Wording

from distrain.diagnostics.bench.results import Bench, Measure, Step, bench_json, parse_bench
from distrain.errors import InputError

BENCH = Bench(
    mode="quick",
    device="cpu",
    inventory=({"node": "a", "cores": 2},),
    measures=(Measure("host.triad", "node a", "bytes/s", (1e9, 1.1e9), 1024),),
    steps=(Step(2, "weak", 512, (1e4,), ({"exchange": 0.1}, {"exchange": 0.2})),),
    left_out=("links: one node",),
    made={"version": "1"},
)


def test_what_is_written_is_read_and_unknown_fields_are_passed_over() -> None:
    values = bench_json(BENCH)
    assert parse_bench(json.dumps(values)) == BENCH
    for part in (values, values["measures"][0], values["steps"][0]):
        part["later"] = 1
    assert parse_bench(json.dumps(values)) == BENCH
    assert parse_bench('{"schema_version": 1, "mode": "quick", "device": "cpu"}').measures == ()


DEFECTIVE = [
    '{"schema_version": 99, "anything": true}',
    "", "[]", "3", "null", '{"schema_version": 1}', '{"schema_version": "x"}',
    '{"schema_version": 1, "mode": "q", "device": "cpu", "measures": [{"name": "a"}]}',
    '{"schema_version": 1, "mode": "q", "device": "cpu", "inventory": [3]}',
    '{"schema_version": 1, "mode": "q", "device": "cpu", "measures":'
    ' [{"name": "a", "place": "p", "unit": "s", "values": [NaN]}]}',
    '{"schema_version": 1, "mode": "q", "device": "cpu", "steps":'
    ' [{"ranks": 2, "scaling": "weak", "rows": 1, "rows_per_s": [1], "seconds": [{}]}]}',
]  # fmt: skip


def test_what_is_no_document_is_refused_with_its_file(wording: Wording) -> None:
    for text in DEFECTIVE:
        refused = wording.refused(InputError, partial(parse_bench, text, "b.json"))
        assert "b.json" in refused.where.values(), text
