"""From a spec and a schema to a plan of tables."""

import psutil
import pytest
import torch
from absent_peers import NcclPeers
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError, SchemaError, SpecError
from distrain.jobs.spec import parse_spec
from distrain.models import build_model
from distrain.models.build import blueprint_of
from distrain.models.embeddings import EmbeddingCollection
from distrain.models.heads import BinaryClassificationTask, RegressionTask
from distrain.schema import criteo_schema
from distrain.train.planning import tables_plan
from distrain.train.planning.tables_plan import (
    check_metric,
    plan_tables,
    tables_limit,
)
from distrain.train.step.graph_conditions import (
    is_custom,
    model_facts,
    planned_facts,
    records_steps,
)

CARDINALITIES = {f"C{i}": 2 + i * i for i in range(1, 27)}
CPU = torch.device("cpu")


def job(*overrides):
    document = {"data": {"train": "t"}, "model": {"kind": "mlp", "embedding_dim": None}}
    return parse_spec(document, overrides)


@settings(deadline=None)
@given(st.sampled_from(["sgd", "adagrad", "adam"]), st.sampled_from([None, 8]))
def test_a_lone_rank_holds_what_the_model_and_its_optimizer_hold(kind, dim):
    spec = job(f"train.optimizer.kind={kind}", f"model.embedding_dim={dim or 'null'}")
    schema = criteo_schema(CARDINALITIES)
    plan = plan_tables(spec, schema, num_ranks=1, device_type="cpu", budget_bytes=None)
    tables = build_model(schema, spec.model, seed=0).embeddings
    assert [(t.name, t.rows, t.dim) for t in plan.tables] == [
        (column.name, column.cardinality, column.dim) for column in tables.columns
    ]
    weights = sum(4 * column.cardinality * column.dim for column in tables.columns)
    assert sum(t.weight_bytes for t in plan.tables) == weights
    copies = {"sgd": 0, "adagrad": 1, "adam": 2}[kind]
    assert sum(t.optimizer_bytes for t in plan.tables) == copies * weights


def test_the_spec_counts():
    spec = job("embeddings.placement=row_wise", "embeddings.storage=bf16")
    spec = spec.model_copy(
        update={"embeddings": spec.embeddings.model_copy(update={"tables": {"C3": "replicated"}})}
    )
    schema = criteo_schema(CARDINALITIES)
    plan = plan_tables(spec, schema, num_ranks=4, device_type="cuda", budget_bytes=10**9)
    assert plan.placements == tuple(
        "replicated" if name == "C3" else "row_wise" for name in CARDINALITIES
    )
    assert plan.tables[2].weight_bytes == 2 * plan.tables[2].rows * plan.tables[2].dim


@pytest.mark.parametrize("graph", ["auto", "true", "false"])
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize(
    "setting",
    [
        "train.table_weight_decay=0",
        "train.table_weight_decay=0.1",
        "embeddings.placement=host_cached",
    ],
)
def test_a_plan_records_what_the_job_records(graph, num_ranks, compares, setting, monkeypatch):
    spec, schema = job(f"train.cuda_graph={graph}", setting), criteo_schema(CARDINALITIES)
    blueprint = blueprint_of(schema, spec.model)
    if compares:
        monkeypatch.setattr(type(blueprint.task), "candidates", lambda *_: None)
    plan = plan_tables(spec, schema, num_ranks=num_ranks, device_type="cuda", budget_bytes=10**9)

    def tables(columns, *, generator):
        return EmbeddingCollection(columns, placements=plan.placements, generator=generator)

    model = build_model(schema, spec.model, seed=0, make_tables=tables)
    model.embeddings.peers = NcclPeers(0, num_ranks)
    planned = planned_facts(spec, blueprint, num_ranks, plan)
    of_model = model_facts(model, is_custom(spec))
    assert (planned, records(spec, planned)) == (of_model, records(spec, of_model))


def records(spec, facts):
    return records_steps(spec.train, torch.device("cuda"), facts)


def test_host_cached_tables_with_averages_are_refused_by_the_plan():
    spec = job("train.ema=0.9", "embeddings.placement=host_cached")
    with pytest.raises(SpecError) as refused:
        plan_tables(
            spec, criteo_schema(CARDINALITIES), num_ranks=1, device_type="cpu", budget_bytes=None
        )
    assert refused.value.where["train.ema"] == 0.9


def test_a_schema_without_cardinalities_is_refused(wording):
    wording.refused(
        SchemaError,
        lambda: plan_tables(
            job(), criteo_schema(), num_ranks=1, device_type="cpu", budget_bytes=None
        ),
    )


def test_a_budget_that_the_spec_names_is_taken_as_it_is():
    assert tables_limit(job("embeddings.memory_gib=1.5"), CPU, 8).size_bytes == 3 * 2**29


def test_a_containers_limit_holds_where_its_use_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("600")
    (tmp_path / "memory.stat").write_text("anon 350\n\n")
    monkeypatch.setattr(tables_plan, "_CGROUP", tmp_path)
    assert tables_plan.available_host_bytes() == 600


@pytest.mark.parametrize(
    ("limit", "has"), [("max", 1000), ("600", 250), ("5000", 1000), ("300", 0), (None, 1000)]
)
def test_ranks_share_what_the_host_has_to_give(limit, has, tmp_path, monkeypatch):
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("450")
        (tmp_path / "memory.stat").write_text("anon 350\ninactive_file 100\n")
    monkeypatch.setattr(tables_plan, "_CGROUP", tmp_path)
    memory = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert tables_limit(job(), CPU, 2).size_bytes == int(0.75 * (has // 2))


def test_a_target_with_the_name_of_an_input_is_refused(wording):
    wording.refused(ModelError, lambda: check_metric(job(), RegressionTask("continuous")))
    check_metric(job(), BinaryClassificationTask("continuous"))  # exported as "logits"
