"""The two real gloo ranks of `test_same_data.py`."""

from distrain.errors import DataError
from distrain.train.control.rank_setup import check_same_data

SAME = ("ab" * 32, "ab" * 32)
DIFFERENT = ("ab" * 32, "cd" * 32)


def compare(rank, num_ranks):
    """What a rank is told of data that are alike, and of data that differ."""
    told = []
    for fingerprints in (SAME, DIFFERENT):
        try:
            check_same_data(fingerprints[rank], rank)
            told.append("the same")
        except DataError as error:
            told.append(str(error))
    return told
