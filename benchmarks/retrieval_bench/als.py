"""Implicit ALS on customers' items: `PYTHON als.py LOG.npz BEST.npy SEED`.

Of three settings the best is used, chosen on the last known item of each customer, which is held
out for this.
"""

# It imports packages of another Python, which mypy does not see.
# mypy: ignore-errors

import sys
from itertools import pairwise

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

SETTINGS = ((64, 0.01, 1.0), (64, 0.1, 10.0), (128, 1.0, 40.0))
"""Factors, regularisation, and the weight of a purchase."""


def matrix(log, held):
    """Return the customers x items matrix, without the last `held` items of each customer."""
    lists = [log["values"][a : b - held] for a, b in pairwise(log["offsets"])]
    columns, rows = np.concatenate(lists), np.repeat(np.arange(len(lists)), list(map(len, lists)))
    shape = (len(lists), log["values"].max() + 1)
    return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape)


def best_of(known, setting, seed, k=10):
    factors, regularization, alpha = setting
    model = AlternatingLeastSquares(
        factors=factors,
        regularization=regularization,
        alpha=alpha,
        iterations=20,
        random_state=seed,
        num_threads=1,
    )
    model.fit(known, show_progress=False)
    return model.recommend(np.arange(known.shape[0]), known, N=k)[0]


def main():
    log, out, seed = np.load(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    wanted = log["values"][log["offsets"][1:] - 2]
    known = matrix(log, 2)
    recalls = [(best_of(known, one, seed) == wanted[:, None]).any(1).mean() for one in SETTINGS]
    print(dict(zip(SETTINGS, recalls, strict=True)), file=sys.stderr)
    np.save(out, best_of(matrix(log, 1), SETTINGS[int(np.argmax(recalls))], seed))


if __name__ == "__main__":
    main()
