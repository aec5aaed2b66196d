"""The real gloo ranks of `test_all_to_all.py`."""

import torch

from distrain.models.embeddings import Peers

NUM_RANKS = (2, 3, 4)
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
MOST = 40_000
"""Rows of 8 values: more bytes than a connection takes at once."""


GATHERED = (MOST, 1, MOST // 2)
"""Rows of the first rank in each gather."""


def lengths(num_ranks: int, case: int) -> list[list[int]]:
    """How many rows each rank has for each, `[from][to]`; some have none."""
    drawn = torch.Generator().manual_seed(case)
    counts = torch.randint(0, MOST, (num_ranks, num_ranks), generator=drawn)
    counts[torch.rand(num_ranks, num_ranks, generator=drawn) < 0.3] = 0
    return counts.tolist()


def rows_of(source: int, target: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """What `source` has for `target`: every value says whose it is."""
    values = torch.arange(length * 8).reshape(length, 8) % 50
    return (values + 100 * source + 50 * target).to(dtype)


def compute(rank: int, num_ranks: int) -> dict[str, torch.Tensor]:
    """All cases, each exchange begun before the one before it has arrived."""
    peers = Peers(rank, num_ranks)
    begun = []
    for case, dtype in enumerate(DTYPES):
        of = lengths(num_ranks, case)
        sent = torch.cat([rows_of(rank, to, n, dtype) for to, n in enumerate(of[rank])])
        begun.append(peers.begin_exchange_rows(sent, of[rank], [row[rank] for row in of]))
    gathered = [
        peers.begin_gather(gathered_rows(rank, length, dtype), MOST)
        for length, dtype in zip(GATHERED, DTYPES, strict=True)
    ]
    told = {str(case): peers.wait_for_rows(one) for case, one in enumerate(begun)}
    at_once = {str(n): peers.gather_counts(torch.full((n,), rank)) for n in (0, 3)}
    told |= {f"gathered at once, {n}": counts for n, counts in at_once.items()}
    return told | {
        f"gathered {case}": peers.wait_for_rows(one) for case, one in enumerate(gathered)
    }


def gathered_rows(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank gives to all; each rank another number of rows."""
    return rows_of(rank, rank, max(0, length - rank), dtype)
