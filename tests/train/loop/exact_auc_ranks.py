"""The real gloo ranks of `test_exact_auc.py`."""

from itertools import product

import numpy as np
import torch
from counted_rows import counted
from mean_label import MeanLabel

from distrain.metrics.exact import DistinctScores
from distrain.metrics.targets import STATES
from distrain.models.embeddings import Peers
from distrain.train.loop.evaluation import own_over_ranks, state_over_ranks
from distrain.train.loop.exact_auc import auc_over_ranks

CPU = torch.device("cpu")
SIZES = (1, 3)
# How scores are drawn, and how many distinct ones a rank may hold.
CASES = {
    "far": (lambda rng, rows: rng.normal(40, 9, rows), 10_000),
    "one bin": (lambda rng, rows: rng.random(rows) * 2**-12, 10_000),
    "ties": (lambda rng, rows: rng.integers(0, 3, rows) * 20.0, 10_000),
    "too many": (lambda rng, rows: rng.normal(40, 9, rows), 50),
    "one class": (lambda rng, rows: rng.normal(0, 1, rows), 10_000),
}


def rows_of(case, rank, num_ranks):
    """Scores and labels of a rank; the last of several has none."""
    rng = np.random.default_rng([list(CASES).index(case), rank])
    rows = 0 if 0 < rank == num_ranks - 1 else 300 + 100 * rank
    scores = CASES[case][0](rng, rows).astype(np.float32)
    labels = rng.random(rows) < 0.5 - 0.3 * (scores < np.median(scores)) if rows else np.zeros(0)
    return scores, np.zeros(rows) if case == "one class" else labels.astype(np.float32)


def weights_of(rows):
    return (np.arange(rows) % 5 / 4).astype(np.float32)


def state_of(kind, weighted, rank, num_ranks):
    scores, labels = rows_of("far", rank, num_ranks)
    scores = np.stack([scores, -scores], axis=1) if kind == "multiclass" else scores
    return counted(kind, scores, labels, *([weights_of(len(labels))] if weighted else []))


def all_aucs(rank, num_ranks):
    """Of each case, the AUC of all ranks' rows and its bound; and other metrics of them."""
    peers, found = Peers(rank, num_ranks), {}
    mean_label = MeanLabel()
    mean_label.update(*rows_of("far", rank, num_ranks))
    found["own"] = own_over_ranks({"ctr": mean_label}, peers, CPU)["ctr"]
    for kind, weighted in product(STATES, (False, True)):
        one = state_over_ranks(state_of(kind, weighted, rank, num_ranks), peers, CPU)
        found[f"{kind} {weighted}"] = one.to_json()
    scores = DistinctScores(weighted=True)
    far, clicks = rows_of("far", rank, num_ranks)
    scores.update(far, clicks, weights_of(len(far)))
    found["weighted"] = tuple(auc_over_ranks(scores, peers, CPU))
    for case, (_, max_entries) in CASES.items():
        scores = DistinctScores(max_entries)
        scores.update(*rows_of(case, rank, num_ranks))
        auc = auc_over_ranks(scores, peers, CPU)
        found[case] = None if auc is None else tuple(auc)
    return found
