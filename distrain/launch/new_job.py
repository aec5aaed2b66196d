"""Makes a job spec for prepared rows, fitted to their schema and the number of rows."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import DistrainError, SchemaError
from distrain.jobs.spec.fit_to_table import TableFacts, default_kind
from distrain.jobs.spec.presets import job_for, windows_of
from distrain.prep.report_file import read_report
from distrain.schema.column import Tags
from distrain.schema.files import find_schema
from distrain.schema.schema import Schema
from distrain.storage.retrying import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

_LINEAR_RATE = 0.01
"""The learning rate of linear models. It is above that of networks, whose rate would need more than
60 epochs for 300 rows."""


def new_job(
    data: Path,
    model: str | None,
    say: "Callable[[str], object]",
    num_ranks: int = 1,
    *,
    may_be_linear: bool = True,
) -> dict[str, Any]:
    """Return the document of a job spec for a folder that `distrain prep` wrote.

    Args:
        data: The folder, with `train` and perhaps `valid`.
        model: The name of a preset or a model; `None` for the model that suits the table, which
            is linear if a small table has only linear effects and `may_be_linear`.
        say: Called with a note if training settings could not be fitted to the table, and if the
            model is linear.
        num_ranks: Number of ranks of the job.
        may_be_linear: False if the caller sets fields of the model, such as its layers. The
            training settings of a linear model would not suit it.

    Raises:
        SpecError: The model does not fit the schema's columns or targets.
    """
    schema = None
    with suppress(SchemaError):
        schema = find_schema(data)
    loaded = None if schema is None else Schema.load(schema)
    table = None if loaded is None else _facts(data, loaded, say)
    document = job_for(model or default_kind(loaded, table), str(data), loaded, table)
    may_be_linear = may_be_linear and model is None
    if may_be_linear and loaded and table and _is_linear(data, loaded, table.rows):
        document["model"] |= {"hidden": [], "dropout": 0.0, "number_pieces": 0, "members": 1}
        document["train"]["optimizer"] |= {"lr": _LINEAR_RATE}
        say("note: a linear model, since these rows show no effects beyond one (hidden: [])")
    document["resources"]["num_ranks"] = num_ranks
    document["train"]["lanes"] = "auto"
    if not (data / "valid").is_dir():
        document["data"]["valid"] = []
    return document


def _facts(data: Path, schema: Schema, say: "Callable[[str], object]") -> TableFacts | None:
    """Return the facts to which a job is fitted.

    Returns `None` if there are no rows yet, or, with a note, if they cannot be read. The note is
    passed to `say`.
    """
    from distrain.loader.partition.footers import read_footers
    from distrain.loader.partition.scanning import column_moments

    train, windows = data / "train", windows_of(schema)
    if not train.is_dir():
        return None
    targets, weights = (schema.select_by_tag(tag) for tag in (Tags.TARGET, Tags.WEIGHT))
    try:
        table = read_footers(str(train), schema)
        moments = column_moments(table, targets.columns, next(iter(weights.names), None))
        cut = windows and read_footers(str(train), schema, windows=windows).windows
    except (DistrainError, OSError, ValueError) as error:
        say(f"note: the training settings are not chosen for the table: {first_line(error)}")
        return None
    count = len(cut.names) if cut else 1
    has_valid = (data / "valid").is_dir()
    return TableFacts(table.num_rows, has_valid, moments, count, _is_split_off(data))


def _is_linear(data: Path, schema: Schema, num_rows: int) -> bool:
    from distrain.launch.linearity import MOST_ROWS, has_only_linear_effects

    # Training in time order has its own settings.
    if windows_of(schema) or not 1 < num_rows <= MOST_ROWS:
        return False
    with suppress(DistrainError, OSError, ValueError):  # training reports rows that cannot be used
        return has_only_linear_effects(data / "train", schema)
    return False


def _is_split_off(data: Path) -> bool:
    """Return True if `distrain prep` took the validation rows from the training input.

    False if validation files were given, or the rows were prepared by another tool.
    """
    report = read_report(data)  # `None` if the rows were prepared by another tool
    return isinstance(report, dict) and report.get("valid_inputs") == []
