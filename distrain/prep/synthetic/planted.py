"""The planted model, which defines a row's click probability, and the best possible scores.

    logit = bias + SPREAD * sum_t sqrt(share_t) * (term_t - mean_t) / std_t,    sum_t share_t = 1

Terms are smooth effects of `log(1 + integer)`, an effect per category id, and an effect per pair
of ids of two short columns; a missing value has an effect of its own. Means and standard deviations
come from a fixed pilot sample, so each term has its share of the logit's variance with any seed
(up to the correlation of columns that are missing together). The bias is solved on the pilot
for the requested click rate. Nothing depends on the number of generated rows.

The effect of an id decreases with its rank, by `HEAD / (HEAD + rank)`: a model cannot learn ids
that occur once or twice, so it could not reach a Bayes AUC that depended on rare ids.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.bins import NUM_BINS, bin_of
from distrain.metrics.report import area_under_roc
from distrain.prep.synthetic.draw import DrawnFeatures, Floats, draw_features, pseudo_normal

PILOT_CHUNKS = 2
SPREAD = 1.25
HEAD = 300.0


@dataclass(frozen=True)
class IntegerTerm:
    """`sign * tanh((log(1 + max(x, 0)) - centre) / width)`, or `missing` for a missing value.

    A column that has zeros sets no `missing`: a missing value has the effect of 0, because the
    usual preparation (missing becomes 0, then log) makes the two equal.
    """

    column: str
    centre: float
    width: float
    missing: float | None = None
    sign: int = 1

    def value(self, features: DrawnFeatures, seed: int) -> Floats:
        x = np.maximum(features.integers[self.column], 0).astype(np.float64)
        missing = features.missing.get(self.column)
        if missing is not None:
            x[missing] = 0.0
        effect: Floats = self.sign * np.tanh((np.log1p(x) - self.centre) / self.width)
        if missing is not None and self.missing is not None:
            effect[missing] = self.missing
        return effect


@dataclass(frozen=True)
class CategoryTerm:
    """A pseudo-normal effect per id, smaller for rare ids; a missing value has its own effect."""

    column: str

    def value(self, features: DrawnFeatures, seed: int) -> Floats:
        ids = features.ids[self.column].astype(np.int64)
        effect = pseudo_normal(seed, self.column, ids) * (HEAD / (HEAD + ids))
        if self.column in features.missing:
            missing = features.missing[self.column]
            effect[missing] = pseudo_normal(seed, self.column, np.array([-1]))[0]
        return effect


@dataclass(frozen=True)
class PairTerm:
    """A pseudo-normal effect per pair of ids, which no sum of single effects can express."""

    left: str
    right: str

    def value(self, features: DrawnFeatures, seed: int) -> Floats:
        ids = features.ids[self.left].astype(np.int64) * 2**31 + features.ids[self.right]
        return pseudo_normal(seed, f"{self.left}x{self.right}", ids)


Term = IntegerTerm | CategoryTerm | PairTerm

# Shares of the logit's variance, in percent.
TERMS: tuple[tuple[Term, float], ...] = (
    (IntegerTerm("I1", 2.2, 1.2, missing=-0.6), 5),
    (IntegerTerm("I2", 5.0, 1.5, missing=0.5, sign=-1), 6),
    (IntegerTerm("I3", 1.4, 0.9), 5),
    (IntegerTerm("I4", 3.5, 1.3, sign=-1), 5),
    (IntegerTerm("I5", 1.8, 0.9, missing=-0.7), 7),
    (IntegerTerm("I6", 0.5, 0.8), 5),
    (IntegerTerm("I8", 2.2, 1.4, sign=-1), 5),
    (IntegerTerm("I9", 1.8, 0.9), 5),
    (IntegerTerm("I12", 8.0, 1.8), 8),
    (CategoryTerm("C9"), 6),
    (CategoryTerm("C13"), 5),
    (CategoryTerm("C17"), 4),
    (CategoryTerm("C26"), 6),
    (CategoryTerm("C4"), 6),
    (CategoryTerm("C14"), 4),
    (CategoryTerm("C18"), 4),
    (CategoryTerm("C11"), 4),
    (CategoryTerm("C20"), 4),
    (PairTerm("C13", "C26"), 3),
    (PairTerm("C9", "C19"), 3),
)


@dataclass(frozen=True)
class PlantedModel:
    """The true model of one data set: `bias` is the logit of a row whose terms are at their means.

    `means` and `weights` are in the order of `TERMS`. A term's deviation from its mean over the
    pilot sample is multiplied by its weight.
    """

    seed: int
    bias: float
    means: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(cls, seed: int, scale: float, click_rate: float) -> "PlantedModel":
        """Return the model whose mean probability over the pilot sample is `click_rate`.

        The pilot sample and the model's effects are drawn from `seed`; `scale` is that of the
        columns' cardinalities.
        """
        pilot = [draw_features(seed, "pilot", chunk, scale) for chunk in range(PILOT_CHUNKS)]
        total = sum(share for _, share in TERMS)
        means, weights = [], []
        for term, share in TERMS:
            values = np.concatenate([term.value(features, seed) for features in pilot])
            means.append(float(values.mean()))
            weights.append(SPREAD * (share / total) ** 0.5 / float(values.std()))
        model = cls(seed, 0.0, tuple(means), tuple(weights))
        logits = np.concatenate([model.logits(features) for features in pilot])
        return replace(model, bias=_solve_bias(logits, click_rate))

    def logits(self, features: DrawnFeatures) -> Floats:
        """Return the logit of each row, float64."""
        logits = np.full(len(features.coin), self.bias)
        for (term, _), mean, weight in zip(TERMS, self.means, self.weights, strict=True):
            logits += weight * (term.value(features, self.seed) - mean)
        return logits


def probabilities(logits: Floats) -> Floats:
    """Return the sigmoid of logits."""
    result: Floats = 1.0 / (1.0 + np.exp(-logits))
    return result


def _solve_bias(logits: Floats, click_rate: float) -> float:
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if probabilities(logits + middle).mean() < click_rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True)
class SplitSummary:
    """Numbers of rows and clicks, and the best possible scores, of one split.

    See `Truth` for the formulas.
    """

    rows: int  # number of rows
    clicks: int  # number of rows with label 1
    expected_click_rate: float  # mean true probability
    bayes_auc: float  # the AUC that no model can beat in expectation
    bayes_auc_bound: float  # maximum error of `bayes_auc`
    bayes_log_loss: float  # the log loss, in nats, that no model can beat in expectation
    # AUC of the true logits on the drawn labels; `None` unless both labels were drawn
    realised_auc: float | None
    realised_log_loss: float  # log loss of the true logits on the drawn labels
    files: tuple[str, ...]  # names of the split's files, in row order


class Truth:
    """The best scores that a model can reach on generated rows, from their true probabilities.

    With true probabilities `p_i` and independently drawn labels, the model that scores by `p`
    itself is the best in expectation. Over the generated rows, the expected number of correctly
    ordered (click, no click) pairs over the expected number of pairs is

        bayes_auc = sum_ij p_i (1 - p_j) c_ij / (sum_i p_i * sum_j (1 - p_j))

    with `c_ij` 1, 1/2 or 0 as `p_i` is above, equal to or below `p_j`. It is computed from two
    histograms of the true logit that hold `p` and `1 - p` in place of counts, in the bins of
    `distrain.metrics`. It differs from the exact sum over pairs of different rows for two reasons:
    pairs inside a bin count 1/2 (wrong by at most 1/2 each), and a row is paired with itself (wrong
    by at most 1/2 of `p_i (1 - p_i)`). The bound includes both errors. The ratio of two
    expectations differs from the expectation of the ratio by O(1 / rows). The AUC of labels drawn
    once has a standard deviation around it of at most
    sqrt(auc * (1 - auc) / min(clicks, rows - clicks)) (Birnbaum & Klose 1957).

        bayes_log_loss = sum_i -(p_i ln p_i + (1 - p_i) ln(1 - p_i)) / rows
    """

    def __init__(self) -> None:
        self._clicks = np.zeros(NUM_BINS)
        self._others = np.zeros(NUM_BINS)
        self._entropy_sum = 0.0
        self._variance_sum = 0.0
        self._realised = BinaryMetrics()

    def update(self, logits: Floats, labels: npt.NDArray[np.int32]) -> None:
        """Add rows with these logits and the labels that were drawn from them."""
        p, q = probabilities(logits), probabilities(-logits)
        bins = bin_of(logits)
        self._clicks += np.bincount(bins, p, NUM_BINS)
        self._others += np.bincount(bins, q, NUM_BINS)
        # -p ln p - q ln q, with ln q = ln p - logit; ln p is -log(1 + exp(-logit)).
        self._entropy_sum += float((np.logaddexp(0.0, -logits) + q * logits).sum())
        self._variance_sum += float((p * q).sum())
        self._realised.update(logits, labels)

    def summary(self, files: tuple[str, ...]) -> SplitSummary:
        """Return the scores of all rows passed to `update`, at least one.

        `files` are the names of the split's files.
        """
        clicks, others = float(self._clicks.sum()), float(self._others.sum())
        auc, bound = area_under_roc(self._others, self._clicks)
        report = self._realised.compute()
        assert report.log_loss is not None
        return SplitSummary(
            rows=report.rows,
            clicks=report.positives,
            expected_click_rate=clicks / report.rows,
            bayes_auc=auc,
            bayes_auc_bound=bound + self._variance_sum / (2 * clicks * others),
            bayes_log_loss=self._entropy_sum / report.rows,
            realised_auc=report.auc,
            realised_log_loss=report.log_loss,
            files=files,
        )
