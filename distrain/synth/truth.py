"""The best scores that anybody can reach on generated rows, from their true probabilities.

With true probabilities `p_i` and labels drawn independently, the model that scores by `p` itself is
the best in expectation. Over the very rows generated, the expected number of rightly ordered
(click, no click) pairs over the expected number of pairs is

    bayes_auc = sum_ij p_i (1 - p_j) c_ij / (sum_i p_i * sum_j (1 - p_j))

with `c_ij` 1, 1/2 or 0 as `p_i` is above, equal to or below `p_j`. It is computed from two
histograms of the true logit that hold `p` and `1 - p` in place of counts, in the bins of
`distrain.metrics`. Two things keep it from the exact sum over pairs of different rows: pairs inside
a bin count 1/2 (wrong by at most 1/2 each), and a row is paired with itself (wrong by at most 1/2
of `p_i (1 - p_i)`). The bound holds both. As the ratio of two expectations it differs from the
expectation of the ratio by O(1 / rows); the AUC of labels drawn once scatters about it by at most
sqrt(auc * (1 - auc) / min(clicks, rows - clicks)) (Birnbaum & Klose 1957).

    bayes_log_loss = sum_i -(p_i ln p_i + (1 - p_i) ln(1 - p_i)) / rows
"""

import numpy as np
import numpy.typing as npt

from distrain.metrics import BinaryMetrics
from distrain.metrics.bins import NUM_BINS, bin_of
from distrain.metrics.report import area_under_roc
from distrain.synth.draw import Floats
from distrain.synth.planted import probabilities
from distrain.synth.request import SplitSummary


class Truth:
    """Constant-size state of what is known about a split."""

    def __init__(self) -> None:
        self._clicks = np.zeros(NUM_BINS)
        self._others = np.zeros(NUM_BINS)
        self._entropy_sum = 0.0
        self._variance_sum = 0.0
        self._realised = BinaryMetrics()

    def update(self, logits: Floats, labels: npt.NDArray[np.int32]) -> None:
        """Count some rows: their true logits and drawn labels, `[rows]` each."""
        p, q = probabilities(logits), probabilities(-logits)
        bins = bin_of(logits)
        self._clicks += np.bincount(bins, p, NUM_BINS)
        self._others += np.bincount(bins, q, NUM_BINS)
        # -p ln p - q ln q, with ln q = ln p - logit; ln p is -log(1 + exp(-logit)).
        self._entropy_sum += float((np.logaddexp(0.0, -logits) + q * logits).sum())
        self._variance_sum += float((p * q).sum())
        self._realised.update(logits, labels)

    def summary(self, files: tuple[str, ...]) -> SplitSummary:
        """What is known; some rows must have been counted."""
        clicks, others = float(self._clicks.sum()), float(self._others.sum())
        auc, bound = area_under_roc(self._others, self._clicks)
        found = self._realised.compute()
        assert found.log_loss is not None
        return SplitSummary(
            rows=found.rows,
            clicks=found.positives,
            expected_click_rate=clicks / found.rows,
            bayes_auc=auc,
            bayes_auc_bound=bound + self._variance_sum / (2 * clicks * others),
            bayes_log_loss=self._entropy_sum / found.rows,
            realised_auc=found.auc,
            realised_log_loss=found.log_loss,
            files=files,
        )
