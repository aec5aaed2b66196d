"""Exports of a model, for scoring without distrain: torch.export and ONNX.

In training, the tables are separate from the network, and ranks exchange their rows. Scoring only
needs plain lookups. `ScoringModel` has the model's weights and uses only torch's own
operations on tensors, so torch's compiler and exporters accept it. `write_export` writes a folder:

    model.pt2                   torch: an exported program, for `torch.export.load`
    model.onnx, model.onnx.data onnx: the graph, and its weights
    inputs.json                 both: inputs, outputs, and the schema's columns in order
"""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from distrain.errors import InputError, ModelError
from distrain.jobs.spec.tasks import INPUT_NAMES
from distrain.loader.batch import Batch, Ragged
from distrain.models.blocks.block import ParallelBlock
from distrain.models.click_model import ClickModel, Ensemble
from distrain.models.exported_tables import TablePart, lookups_of, row_places
from distrain.models.heads.scores import mean_scores
from distrain.models.heads.targets import Target, output_names
from distrain.models.quantised import TableForm
from distrain.models.saved_model import SavedModel
from distrain.models.shapes import flat
from distrain.schema.column import ColumnSchema
from distrain.storage.outputs import atomic_dir
from distrain.version import how_to_install

Form = Literal["torch", "onnx"]
FORMS: tuple[Form, ...] = get_args(Form)
_FILES: dict[Form, str] = {"torch": "model.pt2", "onnx": "model.onnx"}
INPUTS_FILE = "inputs.json"
# Loggers of exporting libraries. Their messages are for the developers of these libraries.
_NOISY = ("torch.onnx", "onnxscript", "onnx_ir")
_LIST_PARTS = ("values", "lengths")


class ScoringModel(nn.Module):
    """Computes the scores of a model from plain tensors.

    It shares the model's weights, except for bfloat16 tables, which are copied to float32. It is
    always in evaluation mode: no dropout, and batch norms use their running statistics.

    Args:
        model: A model with all rows of its tables on this rank, such as from `load_model`. Its
            network is put into evaluation mode.
        tables: The precision of the tables (`QuantisedTable`), other than "fp32" as a copy.

    Attributes:
        input_names: The arguments of `forward`, in order.
        output_names: "logits" of one binary target, otherwise the targets' names.

    Shape:
        - categorical: `[rows, flat categorical columns]`, int32 or int64, ids that are in range.
        - continuous: `[rows, continuous columns]`, float32.
        - lists: for each list column (lists of numbers last) its values, `[values of all rows]`,
          and its lengths, `[rows]`, int32 or int64. Of a column with a `max_list_length`, only the
          first values of each row count. Lists that describe the same events (such as
          items and their times) have equal lengths in each row. Lengths are used because torch's
          exporters accept offsets, as in `Ragged`, only for 2 rows or more.
        - result: for one binary target the logits, `[rows]`, float32; a sigmoid makes them
          probabilities. For other or several targets a tensor for each, as in `Task.scores`.

    Raises:
        ModelError: The tables are sharded over ranks, or tables of one width have several
            placements.
    """

    def __init__(self, model: ClickModel, tables: TableForm = "fp32"):
        super().__init__()
        self._inputs = model.inputs
        self._lists = (*model.inputs.list_names, *model.inputs.number_names)
        lists = [f"{name}.{part}" for name in self._lists for part in _LIST_PARTS]
        self.input_names = (*INPUT_NAMES, *lists)
        self.targets = model.task.targets
        self.output_names = output_names(self.targets)
        limits = model.inputs.list_limits
        self._found = list(lookups_of(model.embeddings, tables, limits))
        self.lookups = nn.ModuleList(self._found)
        self._sequences = [c.name for c in model.embeddings.columns if c.is_sequence]
        self.dense = model.dense
        self.eval()

    def forward(
        self, categorical: Tensor, continuous: Tensor, *lists: Tensor
    ) -> Tensor | tuple[Tensor, ...]:
        scores = self.scores(categorical, continuous, *lists)
        return scores[0] if len(scores) == 1 else scores

    def scores(self, categorical: Tensor, continuous: Tensor, *lists: Tensor) -> tuple[Tensor, ...]:
        """Return each target's scores, as `Task.scores` does."""
        output = self.dense(*self._looked_up(categorical, continuous, lists))
        result: tuple[Tensor, ...] = self.dense.scores(output)
        return result

    def _looked_up(
        self, categorical: Tensor, continuous: Tensor, lists: tuple[Tensor, ...]
    ) -> tuple[Any, ...]:
        """Return the inputs of the network: the looked-up embeddings, the numbers, and the events.

        `lists` has the values and the lengths of each list column, in turn.
        """
        inputs = self._inputs
        columns = zip(self._lists, lists[::2], lists[1::2], strict=True)
        batch = Batch(
            categorical,
            continuous,
            None,
            inputs.categorical_names,
            inputs.continuous_names,
            lists={name: Ragged(values, _offsets(lengths)) for name, values, lengths in columns},
        )
        ids, listed = inputs.table_ids(batch)
        pooled = tuple(lookup(ids, listed) for lookup in self.lookups)
        values_of = {name: values for one in self._found for name, values in one.sequences(listed)}
        sequences = (values_of[name] for name in self._sequences)
        return (*pooled, *sequences), continuous, inputs.event_lists(batch)

    @property
    def table_bytes(self) -> dict[str, int]:
        """The bytes of all tables: `bytes` as they are exported, and `fp32_bytes` as float32."""
        own = [one.fp32_bytes if one.table is None else one.table.size_bytes for one in self._found]
        return {"bytes": sum(own), "fp32_bytes": sum(one.fp32_bytes for one in self._found)}

    @property
    def table_parts(self) -> list[TablePart]:
        return [
            TablePart(f"lookups.{place}.{name}", name.rpartition(".")[2], values, one.tables)
            for place, one in enumerate(self._found)
            for name, values in one.state_dict().items()
            if name != "starts"
        ]

    def example(self, rows: int = 3) -> tuple[Tensor, ...]:
        """Return example inputs of zeros, int64 and float32; each list has two values."""
        inputs = self._inputs
        lists: list[Tensor] = []
        for name in self._lists:
            dtype = torch.int64 if name in inputs.list_names else torch.float32
            lists += [torch.zeros(2 * rows, dtype=dtype), torch.full((rows,), 2)]
        return (
            torch.zeros(rows, len(inputs.categorical_names), dtype=torch.int64),
            torch.zeros(rows, len(inputs.continuous_names)),
            *lists,
        )

    def dynamic_shapes(self) -> tuple[object, ...]:
        rows = Dim("rows", min=0)
        # Lists that describe the same events have equal lengths.
        events = [self._inputs.schema[name].event for name in self._lists]
        sizes = {name: Dim(f"ids_{i}", min=0) for i, name in enumerate(dict.fromkeys(events))}
        lists = [({0: sizes[name]}, {0: rows}) for name in events]
        varying = tuple(part for pair in lists for part in pair)
        return ({0: rows}, {0: rows}, varying) if varying else ({0: rows}, {0: rows})


class MeanScoringModel(ScoringModel):
    """Computes an ensemble's scores from plain tensors, like `ScoringModel`.

    Its members' tables are called `0/TABLE`, `1/TABLE`, ...
    """

    members: Sequence[ScoringModel]

    def __init__(self, model: Ensemble, tables: TableForm = "fp32"):
        nn.Module.__init__(self)
        members = [ScoringModel(one, tables) for one in model.members]
        self.members = cast(Any, nn.ModuleList(members))
        first = members[0]
        self._inputs, self._lists = first._inputs, first._lists
        self.input_names, self.output_names = first.input_names, first.output_names
        self.targets = first.targets
        self._found = [lookup for one in members for lookup in one._found]
        self.eval()

    def scores(self, categorical: Tensor, continuous: Tensor, *lists: Tensor) -> tuple[Tensor, ...]:
        result = [one.scores(categorical, continuous, *lists) for one in self.members]
        return mean_scores(self.targets, result)

    @property
    def table_parts(self) -> list[TablePart]:
        return [
            part._replace(
                tensor=f"members.{number}.{part.tensor}",
                tables=tuple((f"{number}/{name}", at, rows) for name, at, rows in part.tables),
            )
            for number, member in enumerate(self.members)
            for part in member.table_parts
        ]


def scoring_model(model: ClickModel, tables: TableForm = "fp32") -> ScoringModel:
    """Return a `ScoringModel` of a model, or of an ensemble."""
    if isinstance(model, Ensemble):
        return MeanScoringModel(model, tables)
    return ScoringModel(model, tables)


class QueryModel(ScoringModel):
    """Computes the users' vectors of a two-tower model, `[rows, dim]`.

    The values of the items' columns are ignored.
    """

    def __init__(self, model: ClickModel):
        super().__init__(model)
        self.output_names = ("vector",)

    def forward(self, categorical: Tensor, continuous: Tensor, *lists: Tensor) -> Tensor:
        assert isinstance(self.dense.body, ParallelBlock)
        taken = self._looked_up(categorical, continuous, lists)
        return flat(self.dense.body["user"](self.dense.features(*taken)))


def export_program(model: ScoringModel) -> ExportedProgram:
    """Return the model as torch's exported program, for any number of rows; ids are int64.

    `torch.export.save` writes the result. Loading it needs only torch.
    """
    with torch.no_grad():
        return torch.export.export(model, model.example(), dynamic_shapes=model.dynamic_shapes())


def _offsets(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths]).cumsum(0)


def model_file(to: Form) -> str:
    return _FILES[to]


def write_export(
    path: str | Path,
    saved: SavedModel,
    to: Form,
    *,
    replace: bool = False,
    tables: TableForm = "fp32",
    beside: Callable[[Path], None] | None = None,
) -> None:
    """Write a saved model, from `load_model`, to a folder that is usable without distrain.

    Args:
        path: A folder that does not exist yet, unless `replace` is true.
        to: The format of the model's file, "torch" or "onnx".
        tables: The precision of the tables, such as "int8" (`QuantisedTable`).
        beside: Called with the folder, to write more files into it.

    Raises:
        OutputError: The folder exists and `replace` is false, or it could not be written.
        InputError: The libraries that write ONNX are not installed.
        ModelError: torch cannot export the model, or for ONNX a target has an input's name.
    """
    model = scoring_model(saved.model, tables)
    if to == "onnx":
        _check_onnx(model)
    with atomic_dir(path, replace=replace) as folder:
        _write_program(folder / model_file(to), model, to)
        described = _described(model, saved)
        places = row_places(folder / model_file(to), model.table_parts)
        described["tables"] = {"form": tables, **model.table_bytes, "places": places}
        text = json.dumps(described, indent=2)
        (folder / INPUTS_FILE).write_text(text + "\n")
        if beside is not None:
            beside(folder)


def write_query(folder: Path, saved: SavedModel, to: Form) -> None:
    """Write the `QueryModel` of a two-tower model to the file `query` in an existing folder.

    The suffix of the file is that of the format `to`. Raises `ModelError` if torch cannot export
    the model, and `OSError` if the file cannot be written.
    """
    file = (folder / model_file(to)).with_stem("query")
    _write_program(file, QueryModel(saved.model), to)


def _write_program(file: Path, model: ScoringModel, to: Form) -> None:
    with _quiet(), _translated_errors(to):
        if to == "torch":
            with _WrittenFile(file, "wb") as written:
                torch.export.save(export_program(model), written)
            if written.failed is not None:
                raise written.failed
        else:
            _write_onnx(file, model)


class _WrittenFile(io.FileIO):
    """A file that does not raise write errors, which would abort torch; `failed` has the first."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        try:
            while rest and self.failed is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failed = error
        return len(data)


def _write_onnx(file: Path, model: ScoringModel) -> None:
    with torch.no_grad():
        program = torch.onnx.export(
            model,
            model.example(),
            dynamic_shapes=model.dynamic_shapes(),
            input_names=list(model.input_names),
            output_names=list(model.output_names),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    # The weights are in a second file: a file of this format is limited to 2 GiB.
    program.save(file, external_data=True)


def _described(model: ScoringModel, saved: SavedModel) -> dict[str, Any]:
    inputs, schema = saved.model.inputs, saved.schema
    described: list[dict[str, Any]] = [
        {
            "name": "categorical",
            "dtype": "int64",
            "shape": ["rows", len(inputs.categorical_names)],
            "columns": [_column(schema[name]) for name in inputs.categorical_names],
        },
        {
            "name": "continuous",
            "dtype": "float32",
            "shape": ["rows", len(inputs.continuous_names)],
            "columns": [_column(schema[name]) for name in inputs.continuous_names],
        },
    ]
    for name in (*inputs.list_names, *inputs.number_names):
        values = ("int64", "ids") if name in inputs.list_names else ("float32", "numbers")
        for part, (dtype, size) in zip(_LIST_PARTS, (values, ("int64", "rows")), strict=True):
            size = size if part == "lengths" else f"{size} of {name}"
            entry = {"name": f"{name}.{part}", "dtype": dtype, "shape": [size]}
            described.append(entry | {"columns": [_column(schema[name])]})
    pairs = zip(model.output_names, model.targets, strict=True)
    outputs = [_output(name, target) for name, target in pairs]
    return {"inputs": described, "outputs": outputs, "model": saved.spec.model_dump(mode="json")}


def _output(name: str, target: Target) -> dict[str, Any]:
    shape = ["rows", target.classes] if target.kind == "multiclass" else ["rows"]
    output = {"name": name, "dtype": "float32", "shape": shape}
    is_plain = name == "logits" and target.kind == "binary"
    return output if is_plain else output | {"target": target.kind}


def _column(column: ColumnSchema) -> Mapping[str, Any]:
    facts = {"cardinality": column.cardinality, "max_list_length": column.max_list_length}
    return {"name": column.name, **{name: fact for name, fact in facts.items() if fact is not None}}


def _check_onnx(model: ScoringModel) -> None:
    both = sorted({*model.input_names} & {*model.output_names})
    if both:
        raise ModelError(
            f"an ONNX graph cannot have an output with an input's name: {', '.join(both)}",
            hint="Export it with --to torch, or train it with another name in model.tasks.",
        )
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the libraries that write ONNX are missing: {', '.join(missing)}",
            hint=how_to_install("onnx"),
        )


@contextlib.contextmanager
def _translated_errors(to: Form) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # torch's exporters raise errors of several classes for operations they cannot follow.
        first = next(iter(str(error).strip().splitlines()), "")
        raise ModelError(
            f"torch could not export the model: {type(error).__name__}: {first}",
            where={"to": to},
            hint="Its blocks may use operations that torch.export does not support, such as "
            "data-dependent ifs.",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporters' messages that are addressed to torch's developers."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
