"""Exports whose tables are kept in fewer bits: what they cost, and that all forms agree."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, strategies as st
from torch import Tensor
from wording import Wording

from distrain.cli.models.export import command
from distrain.errors import ModelError
from distrain.jobs.spec import MlpSpec
from distrain.loader.batch import Batch
from distrain.models import build_model, load_model
from distrain.models.quantised import QuantisedTable, round_tables
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags

FORMS = ("fp16", "int8", "int4")
NAMES = tuple(f"c{n}" for n in range(6))
CARDINALITY = 500
SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        *(ColumnSchema(n, "int32", (Tags.CATEGORICAL,), cardinality=CARDINALITY) for n in NAMES),
        ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),
    )
)


@given(
    st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
def test_a_number_is_off_by_half_a_step_of_its_row_at_most(rows: list[list[float]]) -> None:
    weight = torch.tensor(rows)
    ids = torch.arange(len(rows))
    spread = weight.amax(1, keepdim=True) - weight.amin(1, keepdim=True)
    greatest = weight.abs().amax(1, keepdim=True)
    # What float16 rounds: steps, and of int4 the least number, to 11 bits; tiny ones to 2**-24.
    bounds = {
        "fp16": greatest * 2**-11 + 2**-25,
        "int8": greatest / 254 * (1 + 2**-3) + 2**-18,
        "int4": spread / 30 * (1 + 2**-5) + greatest * 2**-6 + 2**-20,
    }
    for form, bound in bounds.items():
        table = QuantisedTable(weight, form)  # type: ignore[arg-type]
        found = table(ids)
        assert found.dtype == torch.float32
        assert ((found - weight).abs() <= bound).all()
        assert torch.equal(table(ids.flip(0)), found.flip(0))


def test_numbers_that_a_form_cannot_keep_are_refused(wording: Wording) -> None:
    too_large = torch.tensor([[1.0, float("inf")]])
    for form in FORMS:
        wording.refused(ModelError, partial(QuantisedTable, too_large, form))
    assert QuantisedTable(torch.zeros(2, 5), "int4")(torch.tensor([1])).tolist() == [[0.0] * 5]


def planted(rows: int = 20_000) -> tuple[Any, Batch, Tensor]:
    """A model, and rows whose labels are drawn from its own probabilities."""
    generator = torch.Generator().manual_seed(4)
    model = build_model(SCHEMA, MlpSpec(embedding_dim=64, hidden=(16,)), seed=3).eval()
    for weight in model.embeddings.weights:
        weight.data.normal_(0, 0.3, generator=generator)
    last = list(model.dense.parameters())[-2]
    last.data.mul_(15)
    ids = torch.randint(0, CARDINALITY, (rows, len(NAMES)), generator=generator).int()
    batch = Batch(ids, torch.randn(rows, 1, generator=generator), None, NAMES, ("x",), lists={})
    with torch.no_grad():
        chances = torch.sigmoid(model(batch))
    return model, batch, torch.bernoulli(chances, generator=generator)


@pytest.mark.slow
def test_metrics_of_planted_rows_are_measured_with_the_tables_that_are_written(
    tmp_path: Path,
) -> None:
    model, batch, labels = planted()
    save_model(tmp_path / "model", model, MlpSpec(embedding_dim=64, hidden=(16,)), SCHEMA)
    columns = {"label": labels.numpy(), "x": batch.continuous[:, 0].numpy()}
    columns |= {name: batch.categorical[:, n].numpy() for n, name in enumerate(NAMES)}
    SCHEMA.save(tmp_path / "schema.json")
    pq.write_table(pa.table(columns), tmp_path / "valid.parquet")
    for form, most, share in (("fp16", 1e-5, 0.5), ("int8", 1e-4, 0.26), ("int4", 1e-3, 0.15)):
        words = [str(tmp_path / "model"), str(tmp_path / form), "--tables", form, "--json"]
        done = CliRunner().invoke(command, [*words, "--valid", str(tmp_path / "valid.parquet")])
        assert done.exit_code == 0, done.output
        found = json.loads((tmp_path / form / "manifest.json").read_text())["validation"]
        size = json.loads((tmp_path / form / "inputs.json").read_text())["tables"]
        assert json.loads(done.stdout)["validation"] == found
        assert found["rows"] == len(labels)
        assert found["fp32"]["auc"] > 0.65
        assert 0 < abs(found["auc"] - found["fp32"]["auc"]) <= most
        assert abs(found["calibration"] - found["fp32"]["calibration"]) < most
        assert size["form"] == form
        assert size["bytes"] <= share * size["fp32_bytes"]
        program = torch.export.load(tmp_path / form / "model.pt2").module()
        rounded = load_model(tmp_path / "model").model.eval()
        round_tables(rounded, form)  # type: ignore[arg-type]
        with torch.no_grad():
            logits = program(batch.categorical.long(), batch.continuous)
            assert torch.equal(logits, rounded(batch))
