"""Scores raw parquet rows on Dask with an export (`distrain export --with-workflow`).

    python examples/score_dask.py served "rows/*.parquet" scores

Workers need NumPy, the model's runtime and access to the folder, but not distrain.
"""

import sys
from functools import lru_cache

import dask.dataframe as dd
import numpy as np
import pandas as pd


@lru_cache
def scorer(folder):
    """Return the folder's scorer, opened once per process."""
    sys.path.insert(0, folder)
    from score import Scorer  # type: ignore[import-not-found]

    return Scorer(folder)


def scores_of(rows, folder):
    """Return the probabilities of a data frame's rows, as a series with the frame's index."""
    return pd.Series(scorer(folder).score(rows)["probability"], rows.index, name="probability")


def main(folder, files, out):
    """Score all rows; write one file of scores per partition."""
    rows = dd.read_parquet(files)
    empty = pd.Series(np.zeros(0, np.float32), name="probability")
    rows.map_partitions(scores_of, folder, meta=empty).to_frame().to_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
