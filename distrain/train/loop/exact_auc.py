"""Computes the AUC of all ranks' rows from their scores; each rank gets a range of the scores.

An entry is a score with its numbers of negatives and positives. The ranks exchange their entries so
that rank 0 gets the lowest scores, rank 1 the next, and so on. The bounds of the ranges come from
regular sampling (Shi and Schaeffer, "Parallel sorting by regular sampling", 1992): if the ranks
have equal numbers of entries, none gets more than about twice that number, except for ties. Then
each rank has all rows whose scores are in its range. From other ranks it only needs the number of
negatives with lower scores.
"""

import numpy as np
import torch

from distrain.metrics.bins import Counts
from distrain.metrics.exact import Bounded, DistinctScores, Keys
from distrain.models.embeddings.peers import Peers

_SAMPLES = 64
"""Sampled scores per rank. If there are more ranks than this, the ranges are less even."""


def auc_over_ranks(scores: DistinctScores, peers: Peers, device: torch.device) -> Bounded | None:
    """Return the AUC of the rows of all ranks, the same on every rank; a collective operation.

    `scores` has the counts of this rank's rows. Returns `None` unless both labels occur. If a rank
    has coarsened its scores to save memory, the scores of all ranks are coarsened to the same
    number of bits, and the bound of the result may be above 0.
    """
    if peers.num_ranks == 1:
        return scores.auc()
    shifts = peers.gather_counts(torch.tensor([scores.shift], device=device))
    scores.coarsen(int(shifts.max()))
    part = _own_part(scores, peers, device)
    negatives, positives = part.negatives.astype(np.float64), part.positives.astype(np.float64)
    # Gathered as int64 bits, since the sums may be float64 weights.
    own = torch.tensor([negatives.sum(), positives.sum()], dtype=torch.float64, device=device)
    totals = peers.gather_counts(own.view(torch.int64)).view(torch.float64).numpy()
    pairs = float(totals[:, 0].sum()) * float(totals[:, 1].sum())
    if pairs == 0:
        return None
    below = float(totals[: peers.rank, 0].sum()) + np.cumsum(negatives) - negatives
    ordered = float((positives * (below + negatives / 2)).sum())
    within = float((positives * negatives).sum())
    sums = peers.all_reduce_sum(
        torch.tensor([ordered, within], dtype=torch.float64, device=device)
    ).cpu()
    bound = float(sums[1]) / (2 * pairs) if scores.shift else 0.0
    return Bounded(float(sums[0]) / pairs, bound)


def _own_part(scores: DistinctScores, peers: Peers, device: torch.device) -> DistinctScores:
    """Exchange the ranks' entries; return the entries of all ranks in this rank's range."""
    cuts = np.searchsorted(scores.keys, _first_keys(scores.keys, peers, device))
    send = np.diff(np.concatenate([[0], cuts, [len(scores.keys)]]))
    sent = peers.gather_counts(torch.from_numpy(send).to(device))
    held = (scores.negatives.view(np.int64), scores.positives.view(np.int64))  # weights: their bits
    entries = np.stack([scores.keys.astype(np.int64), *held], axis=1)
    received = peers.exchange_rows(
        torch.from_numpy(entries).to(device), send.tolist(), sent[:, peers.rank].tolist()
    )
    keys, *both = received.cpu().numpy().T
    part = DistinctScores(max(len(keys), 1), scores.weighted)
    negatives, positives = (np.ascontiguousarray(one).view(scores.negatives.dtype) for one in both)
    part.add(keys.astype(np.uint32), negatives, positives)
    return part


def _first_keys(keys: Keys, peers: Peers, device: torch.device) -> Counts:
    """Return the lowest key of each rank's range of scores, `[num_ranks - 1]`, int64.

    A key orders scores (`exact.key_of`). The range of rank 0 has no lower end, so it is omitted.
    The keys are chosen from samples of all ranks' keys, so that all ranges have about equally many
    keys. `keys` are this rank's, ascending.
    """
    samples = np.full(_SAMPLES, -1)
    if len(keys):
        samples = keys[np.linspace(0, len(keys) - 1, _SAMPLES).astype(np.int64)].astype(np.int64)
    gathered = peers.gather_counts(torch.from_numpy(samples).to(device)).numpy().ravel()
    known = np.sort(gathered[gathered >= 0])
    if not len(known):
        return np.zeros(peers.num_ranks - 1, np.int64)
    places = np.arange(1, peers.num_ranks) * len(known) // peers.num_ranks
    cuts: Counts = known[places]
    return cuts
