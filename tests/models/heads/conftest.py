"""What the tests of heads share."""

import pytest
import torch
import torch_checks

from distrain.loader.batch import Batch


def _batch(rows, num_items=5, classes=4):
    """Item ids, and targets: clicked (0 or 1), a class, a price; float64."""
    generator = torch.Generator().manual_seed(rows)
    items = torch.randint(0, num_items, (rows,), generator=generator, dtype=torch.int32)
    labels = torch.stack(
        [
            torch.randint(0, 2, (rows,), generator=generator).double(),
            torch.randint(0, classes, (rows,), generator=generator).double(),
            torch.randn(rows, generator=generator, dtype=torch.float64) * 3,
        ],
        dim=1,
    )
    names = "clicked", "genre", "price"
    return Batch(items[:, None], torch.zeros(rows, 0), labels[:, 0], ("movie",), (), labels, names)


@pytest.fixture(scope="session")
def batch():
    """Makes a batch of so many rows."""
    return _batch


def _check_gradients(task, batch, *inputs, rebuild=lambda x: x):
    def loss(call, *own):
        return task.loss(call(rebuild(*own)), batch)

    torch_checks.check_gradients(task, inputs, loss)


@pytest.fixture(scope="session")
def check_gradients():
    """Compares a loss's gradients with finite differences."""
    return _check_gradients
