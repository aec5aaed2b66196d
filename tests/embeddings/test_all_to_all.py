"""Rows between two to four real gloo ranks, several exchanges under way at once."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import Gangs, load_script, ran

SCRIPT = Path(__file__).with_name("all_to_all_rank.py")
rank_side = load_script(SCRIPT)


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Gangs:
    return ran(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("num_ranks", rank_side.NUM_RANKS)
def test_every_rank_gets_its_rows_in_rank_order(gangs: Gangs, num_ranks: int) -> None:
    for rank, found in enumerate(gangs.of(num_ranks)):
        for case, dtype in enumerate(rank_side.DTYPES):
            rows = [
                rank_side.rows_of(source, rank, of[rank], dtype)
                for source, of in enumerate(rank_side.lengths(num_ranks, case))
            ]
            assert torch.equal(found[str(case)], torch.cat(rows))


@pytest.mark.parametrize("num_ranks", rank_side.NUM_RANKS)
def test_every_rank_gets_all_rows_filled_up_to_the_most(gangs: Gangs, num_ranks: int) -> None:
    for found in gangs.of(num_ranks):
        for n in (0, 3):
            expected = torch.arange(num_ranks).unsqueeze(1).expand(num_ranks, n)
            assert torch.equal(found[f"gathered at once, {n}"], expected)
        for case, (length, dtype) in enumerate(
            zip(rank_side.GATHERED, rank_side.DTYPES, strict=True)
        ):
            expected = torch.zeros(num_ranks, rank_side.MOST, 8, dtype=dtype)
            for rank in range(num_ranks):
                rows = rank_side.gathered_rows(rank, length, dtype)
                expected[rank, : len(rows)] = rows
            assert torch.equal(found[f"gathered {case}"], expected)
