"""The table of optimizers: complete, and all who need a kind ask it."""

import inspect
from typing import get_args

import pytest
import torch

from distrain.errors import InputError
from distrain.jobs.optimizers import (
    OPTIMIZERS,
    STATE_BYTES,
    UPDATE_RULES,
    OptimizerKind,
    optimizer_facts,
)
from distrain.jobs.spec.training import OptimizerSpec
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.collection import TouchedRows
from distrain.models.embeddings.kernels import RowRule, StepRates, cpu, update_padded
from distrain.models.embeddings.sharding.table_bytes import RowBytes
from distrain.train.planning.memory import dense_bytes


def test_the_spec_accepts_the_kinds_of_the_table():
    assert get_args(OptimizerKind) == tuple(OPTIMIZERS)
    assert {facts.rule for facts in OPTIMIZERS.values()} == set(UPDATE_RULES)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_dense_options_are_fields_of_the_spec_with_torchs_defaults(kind):
    facts = optimizer_facts(kind)
    arguments = inspect.signature(getattr(torch.optim, facts.dense_class)).parameters
    for name, default in facts.dense_options.items():
        assert name in OptimizerSpec.model_fields
        assert arguments[name].default == default


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_state_sizes_are_those_of_the_optimizers(kind):
    facts = optimizer_facts(kind)
    parameter = torch.nn.Parameter(torch.zeros(100))
    parameter.grad = torch.zeros(100)
    dense = getattr(torch.optim, facts.dense_class)([parameter], lr=0.1)
    dense.step()
    state = [value for value in dense.state[parameter].values() if torch.is_tensor(value)]
    assert sum(value.numel() for value in state if value.ndim) == 100 * facts.dense_state
    tables = EmbeddingCollection([TableColumn("a", 7, 5)])
    held = SparseOptimizer(tables, kind).state_dict()
    held.pop("num_steps")
    assert sum(v.numel() for v in held.values()) * STATE_BYTES == (
        7 * facts.update_rule.state_bytes(5)
    )


def test_an_unknown_kind_is_refused():
    with pytest.raises(InputError, match="no_such_optimizer") as refused:
        optimizer_facts("no_such_optimizer")
    assert refused.value.hint == f"Allowed: {', '.join(sorted(OPTIMIZERS))}."


def test_all_who_take_a_kind_refuse_an_unknown_one():
    tables = EmbeddingCollection([TableColumn("a", 7, 5)])
    for make in (
        lambda: SparseOptimizer(tables, "no_such_optimizer"),
        lambda: RowBytes("no_such_optimizer").state(5),
        lambda: dense_bytes(100, "no_such_optimizer"),
    ):
        with pytest.raises(InputError, match="no_such_optimizer"):
            make()


def test_the_kernels_in_c_have_all_rules_and_those_of_fixed_shapes_refuse_others():
    assert list(cpu.RULES) == list(UPDATE_RULES)
    weight, keys, one = torch.zeros(3, 2), torch.tensor([1]), torch.ones(())
    rates = StepRates(one, one, one.long())
    with pytest.raises(InputError, match="no_such_optimizer"):
        update_padded(RowRule("no_such_optimizer"), weight, (), keys, torch.ones(1, 2), rates)
    assert not weight.any()


def test_weight_decay_is_refused_where_it_would_do_nothing():
    assert OptimizerSpec(kind="adamw", weight_decay=0.1).weight_decay == 0.1
    with pytest.raises(ValueError, match="no effect on adam; it is an option of adamw"):
        OptimizerSpec(kind="adam", weight_decay=0.1)


def test_adamw_updates_tables_as_adam_does():
    ends = []
    for kind in ("adam", "adamw"):
        tables = EmbeddingCollection(
            [TableColumn("a", 7, 5)], generator=torch.Generator().manual_seed(0)
        )
        optimizer = SparseOptimizer(tables, kind)
        for step in range(3):
            grads = torch.randn(2, 5, generator=torch.Generator().manual_seed(step))
            optimizer.apply([TouchedRows(torch.tensor([step, 6]), grads)], 0.1)
        ends.append(tables.weights[0].detach().clone())
    assert torch.equal(*ends)
