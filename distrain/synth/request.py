"""What is asked of the generator, and what it answers."""

from dataclasses import dataclass
from pathlib import Path

from distrain.errors import InputError

FORMATS = ("tsv", "tsv.gz", "parquet")


@dataclass(frozen=True)
class SynthRequest:
    """A data set to generate.

    Attributes:
        out: The folder to write; it appears whole or not at all.
        rows: Training rows, at least 1.
        valid_rows: Validation rows from the same model, 0 for none.
        seed: Names the planted model and the rows, at least 0.
        scale: Factor on the cardinalities of long category columns, in (0, 1].
        click_rate: Wanted mean click probability, in [0.001, 0.999].
        format: "tsv" (Criteo's own), "tsv.gz" or "parquet" (raw values, nullable).
        files: How many files each split is cut into.
        overwrite: Whether an earlier data set of ours at `out` may be replaced.
    """

    out: str | Path
    rows: int
    valid_rows: int = 0
    seed: int = 0
    scale: float = 0.01
    click_rate: float = 0.03
    format: str = "tsv"
    files: int = 1
    overwrite: bool = False

    def __post_init__(self) -> None:
        checks = {
            f"rows is {self.rows}; at least 1": self.rows >= 1,
            f"valid_rows is {self.valid_rows}; at least 0": self.valid_rows >= 0,
            f"seed is {self.seed}; at least 0": self.seed >= 0,
            f"scale is {self.scale}; above 0 and at most 1": 0 < self.scale <= 1,
            f"click_rate is {self.click_rate}; 0.001 to 0.999": 0.001 <= self.click_rate <= 0.999,
            f"format is {self.format!r}; one of {', '.join(FORMATS)}": self.format in FORMATS,
            f"files is {self.files}; at least 1": self.files >= 1,
            f"files is {self.files}; at most rows ({self.rows})": self.files <= max(self.rows, 1),
        }
        mistakes = [text for text, good in checks.items() if not good]
        if mistakes:
            raise InputError("no such data can be generated: " + "; ".join(mistakes))


@dataclass(frozen=True)
class SynthProgress:
    """How far the generator is.

    Attributes:
        split: "train" or "valid".
        rows_done: Rows written so far, over all splits.
        rows_total: Rows to write, over all splits.
    """

    split: str
    rows_done: int
    rows_total: int


@dataclass(frozen=True)
class SplitSummary:
    """What is known of one split; see `distrain.synth.truth` for the formulas.

    Attributes:
        rows: How many rows.
        clicks: How many of them have label 1.
        expected_click_rate: Mean true probability.
        bayes_auc: The AUC that nobody can beat in expectation.
        bayes_auc_bound: `bayes_auc` is within this of its exact value.
        bayes_log_loss: The log loss, in nats, that nobody can beat in expectation.
        realised_auc: AUC of the true logits on the drawn labels; `None` unless both were drawn.
        realised_log_loss: Log loss of the true logits on the drawn labels.
        files: Names of its files, in row order.
    """

    rows: int
    clicks: int
    expected_click_rate: float
    bayes_auc: float
    bayes_auc_bound: float
    bayes_log_loss: float
    realised_auc: float | None
    realised_log_loss: float
    files: tuple[str, ...]


@dataclass(frozen=True)
class SynthResult:
    """A data set that was generated.

    Attributes:
        request: What was asked.
        out: The folder.
        splits: "train", and "valid" if asked for.
        size_bytes: Of all data files.
        wall_s: How long it took.
    """

    request: SynthRequest
    out: Path
    splits: dict[str, SplitSummary]
    size_bytes: int
    wall_s: float

    @property
    def rows_per_s(self) -> float:
        """Rows of all splits over the wall time."""
        return sum(split.rows for split in self.splits.values()) / self.wall_s
