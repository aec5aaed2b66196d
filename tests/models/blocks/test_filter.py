"""Filter, ContinuousFeatures, Dropout: which columns, and which memory."""

from itertools import pairwise
from statistics import NormalDist

import pytest
import torch

from distrain.errors import ModelError
from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.blocks.filter import ContinuousFeatures, Filter, PiecewiseLinear
from distrain.models.blocks.layers import Dropout
from distrain.models.shapes import Branches, Columns, Features, Flat, flat


def picked(shape):
    """Names of the tables and of the continuous columns."""
    groups = [tuple(c.table for c in group.columns) for group in shape.groups]
    return groups, tuple(c.table for c in shape.continuous)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Filter("C1"), ([("wide/C1",), ("C1",)], ())),
        (Filter("wide/C2", "age"), ([("wide/C2",)], ("age",))),
        (Filter(tags="user"), ([("C1", "C3")], ("age",))),
        (Filter(tags=["user_id", "item"]), ([("C2", "C3")], ("price",))),
        (Filter(part="wide"), ([("wide/C1", "wide/C2")], ())),
        (Filter(part=""), ([("C1", "C2", "C3")], ("price", "age", "t"))),
        (Filter(part="", kind="categorical"), ([("C1", "C2", "C3")], ())),
        (Filter(kind="continuous"), ([], ("price", "age", "t"))),
        (Filter("C1", part="wide"), ([("wide/C1",)], ())),
        (Filter("C1", "t", exclude=True), ([("wide/C2",), ("C2", "C3")], ("price", "age"))),
        (Filter(tags="user", kind="categorical"), ([("C1", "C3")], ())),
    ],
    ids=str,
)
def test_filter_equals_loop(block, expected, columns, features, attached):
    shape = attached(block, columns)
    assert picked(shape) == expected
    value = features(3)
    embedded = {
        column.table: value.embedded[g][:, c]
        for g, group in enumerate(columns.groups)
        for c, column in enumerate(group.columns)
    }
    continuous = {c.name: value.continuous[:, [i]] for i, c in enumerate(columns.continuous)}
    parts = [embedded[name] for names in expected[0] for name in names]
    parts += [continuous[name] for name in expected[1]]
    found = block(value)
    assert isinstance(found, Features)
    assert torch.equal(flat(found), torch.cat(parts, dim=1))
    assert shape.width == flat(found).shape[1]


def test_whole_groups_and_neighbours_are_not_copied(columns, features, attached):
    value = features(3)

    def memory(tensor):
        return tensor.untyped_storage().data_ptr()

    for block, group in ((Filter(part=""), 1), (Filter("C2", "C3", part=""), 1)):
        attached(block, columns)
        found = block(value)
        assert memory(found.embedded[0]) == memory(value.embedded[group])
        assert memory(found.continuous) == memory(value.continuous)


def test_filter_of_branches(attached):
    given = Branches({"wide": Flat(2), "deep": Flat(7), "items": Flat(1)})
    value = {name: torch.randn(3, shape.width) for name, shape in given.shapes.items()}
    one, two, others = Filter("deep"), Filter("items", "wide"), Filter("deep", exclude=True)
    assert attached(one, given) == Flat(7)
    assert one(value) is value["deep"]
    assert list(attached(two, given).shapes) == ["items", "wide"]
    assert list(two(value)) == ["items", "wide"]
    assert list(attached(others, given).shapes) == ["wide", "items"]
    assert list(others(value)) == ["wide", "items"]


def test_what_cannot_be_picked_is_refused(columns, wording):
    branches = Branches({"wide": Flat(2)}, "ParallelBlock(wide)")
    wording.refused(
        ModelError,
        lambda: Filter("C9").attach(columns),
        lambda: Filter(tags="session").attach(columns),
        lambda: Filter("deep").attach(branches),
        lambda: Filter(tags="user").attach(branches),
        lambda: Filter("wide", exclude=True).attach(branches),
        lambda: Filter("C1").attach(Flat(3, "MLPBlock")),
        lambda: Filter(kind="ragged"),
        lambda: ContinuousFeatures().attach(Columns(columns.groups, (), "InputBlock")),
        lambda: Dropout(1),
    )


def test_continuous_batch_norm(columns, features, attached, check_gradients):
    value = features(6)
    block = ContinuousFeatures("price", "t", normalisation="batch_norm")
    assert attached(block, columns) == Flat(2)
    given = value.continuous[:, [0, 2]]
    variance = ((given - given.mean(0)) ** 2).mean(0)
    torch.testing.assert_close(block(value), (given - given.mean(0)) / (variance + 1e-5).sqrt())
    check_gradients(block, value.continuous, rebuild=lambda c: Features(value.embedded, c))
    assert block(features(0)).shape == (0, 2)
    assert block(features(1)).isfinite().all()


def test_dropout_of_anything(columns, features, attached):
    value = features(400)
    block = Dropout(0.25)
    assert attached(block, columns) == columns
    torch.manual_seed(0)
    dropped = block({"features": value, "flat": value.continuous})
    for tensor, kept in (
        (dropped["features"].embedded[1], value.embedded[1]),
        (dropped["features"].continuous, value.continuous),
        (dropped["flat"], value.continuous),
    ):
        is_kept = tensor != 0
        assert abs(float((~is_kept).double().mean()) - 0.25) < 0.06
        torch.testing.assert_close(tensor[is_kept], kept[is_kept] / 0.75)
    assert torch.equal(block.eval()(value).embedded[0], value.embedded[0])


def test_numbers_beside_their_piecewise_linear_encoding(columns, features, attached):
    value, block = features(5), PiecewiseLinear(4)
    assert str(attached(block, columns)) == str(columns).replace("3 continuous", "15 continuous")
    got, knots = block(value), [NormalDist().inv_cdf(0.02 + 0.24 * place) for place in range(5)]
    for row, numbers in zip(got.continuous.tolist(), value.continuous.tolist(), strict=True):
        naive = [
            min(1.0, max(0.0, (x - low) / (high - low)))
            for x in numbers
            for low, high in pairwise(knots)
        ]
        assert row == pytest.approx([*numbers, *naive], abs=1e-5)
    assert all(map(torch.equal, got.embedded, value.embedded))
    assert not block.state_dict()  # saved models have no knots


def test_number_pieces_of_a_named_model_are_those_of_its_inputs(schema_and_batch):
    schema, batch = schema_and_batch(2, 3, 6)
    plain = build_model(schema, MlpSpec(number_pieces=0), seed=1)
    cut = build_model(schema, MlpSpec(number_pieces=2), seed=1)
    widths = [next(one.dense.parameters()).shape[1] for one in (plain, cut)]
    assert widths[1] == widths[0] + 2 * 3
    assert cut(batch).isfinite().all()
