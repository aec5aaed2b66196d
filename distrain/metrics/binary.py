"""The metrics state of a binary classifier."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from distrain.metrics.bins import (
    LOGIT_LIMIT,
    NUM_BINS,
    Doubles,
    Floats,
    Weights,
    add_packed,
    bin_of,
    pack_counts,
)
from distrain.metrics.report import BinaryReport, report
from distrain.metrics.state import Parts, checked_weights

_FORMAT = {"kind": "binary", "version": 2, "num_bins": NUM_BINS, "logit_limit": LOGIT_LIMIT}


class BinaryMetrics:
    """Counts and sums of constant size (1 MiB) from which every metric is computed.

    Merging states is exact for the counts, so AUC, average precision and their bounds do not depend
    on the distribution of rows over ranks; the two sums agree up to float64 rounding. After the
    first rows with weights, the bins hold sums of weights as float64. These are exact for float32
    weights of similar size, and otherwise rounded.

    Attributes:
        negatives: Rows with label 0 per bin of the logit, int64 `[NUM_BINS]`; or their weights,
            float64.
        positives: Rows with label 1 per bin of the logit, like `negatives`.
        sums: The sums named in `SUMS`, float64, in this order.
        counted: Numbers of rows and of positive rows; `None` without weights.

    >>> metrics = BinaryMetrics()
    >>> metrics.update(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0, 1, 0, 1]))
    >>> metrics.compute().auc
    0.75
    """

    kind: ClassVar[str] = "binary"
    SUMS = ("log_loss_sum", "prediction_sum")

    __slots__ = ("counted", "negatives", "positives", "sums")

    def __init__(
        self,
        negatives: Weights | None = None,
        positives: Weights | None = None,
        sums: Doubles | None = None,
        counted: tuple[int, int] | None = None,
    ):
        self.negatives = np.zeros(NUM_BINS, np.int64) if negatives is None else negatives
        self.positives = np.zeros(NUM_BINS, np.int64) if positives is None else positives
        self.sums = np.zeros(len(self.SUMS)) if sums is None else sums
        self.counted = counted

    @property
    def rows(self) -> int:
        return self.counted[0] if self.counted else int(self.negatives.sum() + self.positives.sum())

    @staticmethod
    def of_rows(losses: Any, predictions: Any) -> tuple[Any, ...]:
        """Return what each row adds to each of `SUMS`, without its weight.

        The arguments may be NumPy's arrays or torch's tensors, each `[rows]`: the logistic losses
        in nats, and the predicted probabilities.
        """
        return losses, predictions

    def update(
        self, logits: Floats, labels: np.ndarray[Any, Any], weights: Floats | None = None
    ) -> None:
        """Count some rows.

        Args:
            logits: `[rows]`, any float dtype.
            labels: `[rows]`, 0 or 1 in any dtype.
            weights: `[rows]`, 0 or more; `None`: 1 each.

        Raises:
            ValueError: The shapes differ, a logit is not finite, a label is neither 0 nor 1, or a
                weight is below 0 or not finite; the state is unchanged.
        """
        _check(logits, labels)
        if weights is not None:
            weights = checked_weights(weights, len(labels))
            self.begin_weights()
        x = logits.astype(np.float64)
        positive = labels != 0
        bins = bin_of(logits) + positive * NUM_BINS
        counts = np.bincount(bins, weights, minlength=2 * NUM_BINS)
        self.negatives += counts[:NUM_BINS]
        self.positives += counts[NUM_BINS:]
        if self.counted is not None:
            rows, positives = self.counted
            self.counted = rows + len(labels), positives + int(positive.sum())
        mass = 1.0 if weights is None else weights
        added = self.of_rows(*losses_and_predictions(x, positive))
        self.sums += [float((part * mass).sum()) for part in added]

    def begin_weights(self) -> None:
        """Make the bins float64 sums of weights, in which each row so far has the weight 1.

        Does nothing if they are sums of weights already.
        """
        if self.counted is None:
            self.counted = self.rows, int(self.positives.sum())
            self.negatives = self.negatives.astype(np.float64)
            self.positives = self.positives.astype(np.float64)

    def merge(self, other: "BinaryMetrics") -> "BinaryMetrics":
        merged = BinaryMetrics(
            self.negatives + other.negatives,
            self.positives + other.positives,
            self.sums + other.sums,
        )
        if self.counted is not None or other.counted is not None:
            both = (self._counted(), other._counted())
            merged.counted = both[0][0] + both[1][0], both[0][1] + both[1][1]
        return merged

    def _counted(self) -> tuple[int, int]:
        return self.counted or (self.rows, int(self.positives.sum()))

    def parts(self) -> Parts:
        counts = None if self.counted is None else np.array(self.counted)
        return Parts(np.concatenate([self.negatives, self.positives]), self.sums, counts)

    @classmethod
    def of_parts(cls, parts: Parts) -> "BinaryMetrics":
        negatives, positives = np.split(parts.bins, 2)
        counted = None if parts.counts is None else (int(parts.counts[0]), int(parts.counts[1]))
        return cls(negatives, positives, parts.sums, counted)

    def compute(self) -> BinaryReport:
        return report(self.negatives, self.positives, counted=self.counted, **self._named_sums)

    @property
    def _named_sums(self) -> dict[str, Any]:
        return dict(zip(self.SUMS, self.sums.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        return {
            **_FORMAT,
            "negatives": pack_counts(self.negatives),
            "positives": pack_counts(self.positives),
            **self._named_sums,
            **({} if self.counted is None else {"counted": list(self.counted)}),
        }

    @classmethod
    def from_json(cls, *documents: Mapping[str, Any]) -> "BinaryMetrics":
        """Return the state of documents from `to_json`, with the rows of all of them.

        The sums are added in the documents' order.

        Raises:
            ValueError: A document is damaged, or has another kind, version or binning.
        """
        metrics = cls()
        for document in documents:
            for key, ours in _FORMAT.items():
                value = document.get(key)
                if value != ours:
                    raise ValueError(f"not a state of binary metrics: {key} is {value!r}")
        try:
            if any("counted" in document for document in documents):
                metrics.begin_weights()
            add_packed(metrics.negatives, [document["negatives"] for document in documents])
            add_packed(metrics.positives, [document["positives"] for document in documents])
            sums = [[float(document[name]) for name in cls.SUMS] for document in documents]
            if sums:  # `accumulate` adds in order, `sum` need not
                metrics.sums += np.add.accumulate(sums)[-1]
            if metrics.counted is not None:
                both = [d.get("counted") or cls.from_json(d)._counted() for d in documents]
                metrics.counted = sum(int(rows) for rows, _ in both), sum(int(p) for _, p in both)
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged state of binary metrics: {error!r}") from None
        return metrics


def losses_and_predictions(
    logits: Doubles, positive: npt.NDArray[np.bool_]
) -> tuple[Doubles, Doubles]:
    """Return each row's logistic loss in nats, and its predicted probability, `[rows]` each.

    `positive` is whether each row's label is 1.
    """
    # log(1 + exp(x)) - y * x without overflow: exp is only computed of -|x|.
    decay = np.exp(-np.abs(logits))
    losses = np.log1p(decay) + np.maximum(np.where(positive, -logits, logits), 0.0)
    return losses, np.where(logits >= 0, 1.0, decay) / (1.0 + decay)


def _check(logits: Floats, labels: np.ndarray[Any, Any]) -> None:
    if logits.ndim != 1 or logits.shape != labels.shape:
        raise ValueError(
            f"logits {list(logits.shape)} and labels {list(labels.shape)} must both be [rows]"
        )
    finite = np.isfinite(logits)
    if not finite.all():
        index = int(np.argmin(finite))
        raise ValueError(f"the logit at index {index} is {logits[index]}, not a finite number")
    binary = (labels == 0) | (labels == 1)
    if not binary.all():
        index = int(np.argmin(binary))
        raise ValueError(f"the label at index {index} is {labels[index]}, not 0 or 1")
