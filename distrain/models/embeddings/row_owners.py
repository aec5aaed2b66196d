"""Owners of the rows of tables that ranks share. Keys are numbers, or int64 tensors.

A key is the number of a row among the rows of all tables that share a weight. Block `b` is the keys
`b * W .. b * W + W - 1`. Each of `W` ranks holds one of them, in row `b` of its weight; a hash of
`b` selects the rank of the first. So the ranks' numbers of rows differ by at most one, and
keys of any stride are spread evenly. With `key % W`, all multiples of `W` would be on one rank.
"""

from typing import Any

from distrain.models.embeddings.kernels import lowbias32


def owner_and_row(key: Any, num_ranks: int) -> tuple[Any, Any]:
    """Return the rank that has a key's row, and the row's index on that rank.

    >>> [owner_and_row(key, 2) for key in range(0, 10, 2)]
    [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)]
    """
    row = key // num_ranks
    owner = lowbias32(row)
    owner += key  # in place: tensors have up to millions of keys
    owner %= num_ranks
    return owner, row


def key_at(row: Any, rank: int, num_ranks: int) -> Any:
    """Return the key of a rank's row; keys ascend with rows.

    >>> [[key_at(row, rank, 3) for row in range(4)] for rank in range(3)]
    [[0, 5, 6, 11], [1, 3, 7, 9], [2, 4, 8, 10]]
    """
    return row * num_ranks + place_in_block(row, rank, num_ranks)


def place_in_block(block: Any, rank: int, num_ranks: int) -> Any:
    """Return which of the `num_ranks` consecutive rows of a block belongs to `rank`.

    The result is in `0 .. num_ranks - 1`. For blocks and keys, see the module docstring.
    """
    return (rank - lowbias32(block)) % num_ranks


def num_rows_before(key: int, rank: int, num_ranks: int) -> int:
    """Return the number of the rows of `rank` whose keys are below `key`.

    >>> [num_rows_before(7, rank, 3) for rank in range(3)]
    [3, 2, 2]
    """
    row = key // num_ranks
    return row + int(key_at(row, rank, num_ranks) < key)
