"""Forms of a batch, and the example with torch's DataLoader."""

from pathlib import Path

import pytest
import torch
from interop_tables import ALL, ROWS, SCHEMA, run_example

from distrain import Dataset, Loader
from distrain.interop.torch import as_dict, as_tuple


def test_forms(table: Path) -> None:
    (batch,) = Loader(Dataset(table, ALL), batch_size=ROWS, lanes=1, shuffle="none")
    columns = as_dict(batch)
    assert set(columns) == {column.name for column in ALL.columns}
    assert [len(row) for row in columns["visited"].unbind()] == [row % 5 for row in range(ROWS)]
    assert torch.equal(columns["bought"], batch.labels[:, 1])
    ids, numbers, targets = as_tuple(batch)
    assert torch.equal(ids[:, 0], columns["row"])
    assert numbers.shape == targets.shape == (ROWS, 2)
    (one,) = Loader(Dataset(table, SCHEMA), batch_size=ROWS, lanes=1, shuffle="none")
    assert torch.equal(as_tuple(one)[2], as_dict(one)["label"])


@pytest.mark.usefixtures("in_prepared")
def test_the_page_s_example_runs() -> None:
    names = run_example("import DataLoader")
    assert names["loss"].isfinite()
