"""The planted model: what truly makes a row's click probability.

    logit = bias + SPREAD * sum_t sqrt(share_t) * (term_t - mean_t) / std_t,    sum_t share_t = 1

Terms are smooth effects of `log(1 + integer)`, an effect per category id, and an effect per pair
of ids of two short columns; a missing value has an effect of its own. Means and standard deviations
come from a fixed pilot sample, so each term holds its share of the logit's variance with any seed
(up to the correlation of columns that are missing together); the bias is solved on the pilot
for the wanted click rate. Nothing depends on how many rows are generated.

The effect of an id fades with its rank, `HEAD / (HEAD + rank)`: a model cannot learn what it sees
once or twice, so a Bayes AUC that rested on rare ids could not be approached by anybody.
"""

from dataclasses import dataclass, replace

import numpy as np

from distrain.synth.draw import Features, Floats, draw_features
from distrain.synth.hashing import pseudo_normal

PILOT_CHUNKS = 2
SPREAD = 1.25
HEAD = 300.0


@dataclass(frozen=True)
class IntegerTerm:
    """`sign * tanh((log(1 + max(x, 0)) - centre) / width)`, or `missing` where there is no value.

    A column that holds zeros leaves `missing` out and has the effect of 0 there, for the usual
    preparation (missing becomes 0, then log) makes the two one.
    """

    column: str
    centre: float
    width: float
    missing: float | None = None
    sign: int = 1

    def value(self, features: Features, seed: int) -> Floats:
        """The term of each row, `[rows]`."""
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
    """A pseudo-normal effect per id that fades with the id's rank; missing is an id of its own."""

    column: str

    def value(self, features: Features, seed: int) -> Floats:
        """The term of each row, `[rows]`."""
        ids = features.ids[self.column].astype(np.int64)
        effect = pseudo_normal(seed, self.column, ids) * (HEAD / (HEAD + ids))
        if self.column in features.missing:
            missing = features.missing[self.column]
            effect[missing] = pseudo_normal(seed, self.column, np.array([-1]))[0]
        return effect


@dataclass(frozen=True)
class PairTerm:
    """A pseudo-normal effect per pair of ids: no sum of single effects can express it."""

    left: str
    right: str

    def value(self, features: Features, seed: int) -> Floats:
        """The term of each row, `[rows]`."""
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
    """The true model of one data set.

    Attributes:
        seed: The seed of the id effects.
        bias: The logit of a row whose terms are all at their mean.
        means: Each term's mean over the pilot sample, in the order of `TERMS`.
        weights: What each term's deviation from its mean is multiplied with.
    """

    seed: int
    bias: float
    means: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(cls, seed: int, scale: float, click_rate: float) -> "PlantedModel":
        """The model whose mean probability over the pilot sample is `click_rate`."""
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

    def logits(self, features: Features) -> Floats:
        """The true logit of each row, float64 `[rows]`."""
        logits = np.full(len(features.coin), self.bias)
        for (term, _), mean, weight in zip(TERMS, self.means, self.weights, strict=True):
            logits += weight * (term.value(features, self.seed) - mean)
        return logits


def probabilities(logits: Floats) -> Floats:
    """The logistic function."""
    result: Floats = 1.0 / (1.0 + np.exp(-logits))
    return result


def _solve_bias(logits: Floats, click_rate: float) -> float:
    """The bias at which the mean probability is `click_rate`, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if probabilities(logits + middle).mean() < click_rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
