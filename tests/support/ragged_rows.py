"""List columns of a batch, from rows kept as Python lists and back."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from distrain.loader.batch import Ragged


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """The column that holds these rows, with the types of the loader's."""
    ids = torch.tensor([item for row in rows for item in row], dtype=torch.int32)
    ends = accumulate((len(row) for row in rows), initial=0)
    return Ragged(ids, torch.tensor(list(ends), dtype=torch.int32))


def rows_of(column: Ragged) -> list[list[int]]:
    """The rows that a column holds."""
    return [column.values[a:b].tolist() for a, b in pairwise(column.offsets.tolist())]


def draw_rows_of_ids(
    num_rows: int, cardinality: int, generator: torch.Generator, most: int = 4
) -> list[list[int]]:
    """Random lists of `0 .. most` ids each; an id may come twice."""
    lengths = torch.randint(0, most + 1, (num_rows,), generator=generator).tolist()
    return [
        torch.randint(0, cardinality, (length,), generator=generator).tolist() for length in lengths
    ]
