"""What the tests of blocks share."""

import pytest
import torch
import torch_checks

from distrain.models.shapes import Column, Columns, Features, Group

WIDE = tuple(Column(name, ("categorical",), "wide") for name in ("C1", "C2"))
SHAPE = Columns(
    (
        Group(1, WIDE),
        Group(
            4,
            (
                Column("C1", ("categorical", "user")),
                Column("C2", ("categorical", "item")),
                Column("C3", ("categorical", "user", "user_id")),
            ),
        ),
    ),
    (Column("price", ("continuous", "item")), Column("age", ("continuous", "user")), Column("t")),
    made_by="InputBlock",
)


def _features(rows, dtype=torch.float64):
    generator = torch.Generator().manual_seed(rows)

    def drawn(*size):
        return torch.randn(*size, generator=generator, dtype=dtype)

    groups = (drawn(rows, len(group.columns), group.dim) for group in SHAPE.groups)
    return Features(tuple(groups), drawn(rows, len(SHAPE.continuous)))


@pytest.fixture(scope="session")
def columns():
    """Two wide tables of width 1, three of width 4, three continuous columns."""
    return SHAPE


@pytest.fixture(scope="session")
def features():
    """Makes a value of `columns`, of so many rows, float64."""
    return _features


def _check_gradients(block, *inputs, rebuild=lambda *tensors: tensors[0]):
    torch_checks.check_gradients(block, inputs, lambda call, *own: call(rebuild(*own)))


@pytest.fixture(scope="session")
def check_gradients():
    """Compares a block's gradients with finite differences."""
    return _check_gradients
