"""Two real processes that meet: do they find out that their data differ?"""

from pathlib import Path

from gloo_ranks import on_ranks
from loaded_scripts import load_script

from distrain.train.control.rank_setup import check_same_data

rank_side = load_script(Path(__file__).with_name("same_data_rank.py"))


def test_ranks_compare_fingerprints() -> None:
    for rank, (of_same, of_different) in enumerate(on_ranks(2, rank_side.compare)):
        assert of_same == "the same"
        assert "ranks [1] see other files than rank 0" in of_different
        assert f"rank: {rank}" in of_different


def test_a_single_rank_asks_nobody() -> None:
    check_same_data("ab" * 32, 0)
