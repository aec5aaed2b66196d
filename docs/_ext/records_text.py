"""References of dataclasses, events, phases and exit codes, from their docstrings and comments."""

import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Collection
from typing import Any

from markdown_pieces import code, table

from distrain import client, errors
from distrain.errors import INTERRUPTED, TERMINATED, DistrainError
from distrain.jobs.events import EVENT_TYPES, PHASES
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.runs.summary import Summary

# Fields that mean the same in all records and are not described again in each docstring.
_COMMON = {
    "attempt": "The number of the attempt, from 1; 0 before the first.",
    "attempts": "The number of attempts.",
    "auc_bound": "Maximum error of the AUC due to counting scores in bins.",
    "device": "`cpu` or `cuda:0`.",
    "elapsed_s": "Wall time since training started on this rank.",
    "epoch": "From 0.",
    "host": "The name of its host.",
    "job_id": "The job's id.",
    "message": "The cause in words: what failed, where, and a hint.",
    "model": "The folder of the saved model.",
    "name": "The job spec's `name`.",
    "num_ranks": "The number of ranks that trained together.",
    "parameters": "Trainable values, embeddings included.",
    "path": "Its folder.",
    "pid": "Its process id.",
    "rank": "The number of the reporting rank, from 0.",
    "scored_rows": "The number of rows to which the following figures apply.",
    "loader": "Per rank, the loader's statistics since the start of the last attempt.",
    "seconds": "Per rank, wall time by phase since the start of the last attempt.",
    "steps": "The number of completed steps.",
    "train_loss": "Mean log loss of the training rows.",
}
_PHASE_WORDS = {
    "data_wait": "waiting for the loader's next batch",
    "copy": "moving a batch to the device",
    "forward_backward": "embedding lookup, model, loss and gradients; with several ranks also the "
    "all-reduce of the dense gradients, and the wait for slower ranks",
    "exchange": "fetching embedding rows from other ranks; the part of the exchange of gradients "
    "that the step waits for; finding out which rows a batch needs",
    "optimizer": "updating dense parameters and the embedding rows of the batch",
    "evaluate": "validation",
    "checkpoint": "the pause of training for a checkpoint: agreeing with the other ranks on the "
    "step, copying the state, and waiting for the writing of an earlier checkpoint or the last",
    "save": "writing the model: rank 0 writes it, and the others send their parts of the tables",
    "other": "everything else, such as sending reports",
}
_JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "Any": "any value",
    "object": "any value",
    "JobState": "string, a [job state](failures.md#job-states)",
}
_CODE_1 = (
    "An input cannot be used, an output cannot be written, storage does not answer, or the service "
    "refused the request. `distrain doctor` also ends with this code if a check fails."
)
_OF_THE_COMMAND_LINE = {
    0: ("", "The command succeeded."),
    2: ("", "The command line is invalid."),
    INTERRUPTED: ("", "Ctrl-C ended the command; a line lists what remains."),
    TERMINATED: ("", "SIGTERM ended the command; a line lists what remains."),
}


def fields(record: Any, without: Collection[str] = ()) -> str:
    """A table of a dataclass's fields, each with its comment or its line in `Attributes:`."""
    described = _attributes(inspect.getdoc(record) or "")
    for base in reversed(record.__mro__):
        if dataclasses.is_dataclass(base):
            described |= _comments(base)
    rows = []
    for field in dataclasses.fields(record):
        meaning = described.get(field.name) or _COMMON.get(field.name)
        if not meaning:
            raise LookupError(
                f"{record.__name__}.{field.name} is not described; add a comment beside it, or a "
                "line to the docstring's `Attributes:`"
            )
        if field.name not in without:
            meaning = meaning.replace("`None`", "`null`")  # as in the files
            rows.append((code(field.name), _type(field.type), meaning))
    return table(["field", "type", "meaning"], rows)


def events() -> str:
    """A table of the events; their fields are described in the code."""
    rows = []
    for kind, event in EVENT_TYPES.items():
        fields(event, without=("rank",))  # raises LookupError for a field without a comment
        rows.append((code(kind), (inspect.getdoc(event) or "").partition("\n\n")[0]))
    return table(["`kind`", "meaning"], rows)


def view() -> str:
    """The fields of the coordinator's view that the summary does not have."""
    names = {field.name for field in dataclasses.fields(Summary)}
    names |= {f"rank_{name}" for name in names}
    names.remove("state")  # of a job that has not ended, too
    known = [field.name for field in dataclasses.fields(JobView) if field.name in names]
    listed = ", ".join(map(code, known[:-1])) + f" and {code(known[-1])}"
    return (
        f"{listed} have the values of the summary (without `rank_`) once they are known. The other "
        "fields are:\n\n" + fields(JobView, without=known)
    )


def phases() -> str:
    """The meaning of each phase of a rank's wall time."""
    missing = set(PHASES) - set(_PHASE_WORDS)
    if missing:
        raise LookupError(f"no words for the phases {', '.join(sorted(missing))}")
    return table(["phase", "what the rank does"], [(code(p), _PHASE_WORDS[p]) for p in PHASES])


def reasons() -> str:
    """Each reason of an early end, what happened, and what to do."""
    rows = [(code(reason.value), reason.meaning, reason.advice) for reason in Reason]
    return table(["reason", "what happened", "what to do"], rows)


def exit_codes() -> str:
    """Each exit code with the errors that end in it."""
    found = dict(_OF_THE_COMMAND_LINE)
    for cls in _tree(DistrainError):
        names, about = found.get(cls.exit_code, ("", ""))
        names = f"{names}, {code(cls.__name__)}" if names else code(cls.__name__)
        about = about or (_CODE_1 if cls is DistrainError else inspect.getdoc(cls) or "")
        found[cls.exit_code] = (names, about)
    return table(
        ["exit code", "errors", "meaning"],
        [(code(number), *found[number]) for number in sorted(found)],
    )


def exit_code_numbers() -> list[int]:
    """All exit codes."""
    return sorted({*_OF_THE_COMMAND_LINE, *(cls.exit_code for cls in _tree(DistrainError))})


_TOLD = (errors.__name__, client.errors.__name__)
"""Modules whose errors end commands."""


def _tree(root: type[DistrainError]) -> list[type[DistrainError]]:
    own = [cls for cls in root.__subclasses__() if cls.__module__ in _TOLD]
    return [root, *(found for cls in own for found in _tree(cls))]


def _type(annotation: Any) -> str:
    """A field's type in JSON's words, for all of these are written as JSON."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _in_json(ast.parse(text, mode="eval").body)


def _in_json(node: ast.expr, several: bool = False) -> str:
    """The type in words; with `several`, its plural, as in `objects of numbers`."""
    ending = "s" if several else ""
    if isinstance(node, ast.BinOp):  # a union
        kinds = [_in_json(kind, several) for kind in (node.left, node.right)]
        return (" or " if several or kinds[1] != "null" else ", or ").join(kinds)
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = ast.unparse(node.value).rpartition(".")[2]
        if name == "Literal":
            return " or ".join(code(ast.literal_eval(value)) for value in inner)
        if name in ("Mapping", "dict"):
            values = _in_json(inner[1], several=True)
            return f"object{ending}" if values == "any values" else f"object{ending} of {values}"
        if name in ("Sequence", "list", "tuple"):
            return f"list{ending} of {_in_json(inner[0], several=True)}"
    name = ast.unparse(node).rpartition(".")[2]
    return f"{_JSON_TYPES[name]}{ending}" if name in _JSON_TYPES else name


def _comments(record: Any) -> dict[str, str]:
    """The comments of a class's fields: at the end of a field's line, or in lines before it."""
    source = textwrap.dedent(inspect.getsource(record))
    notes = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    alone = {n for n, line in enumerate(source.splitlines(), 1) if line.lstrip().startswith("#")}
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        first = node.lineno
        while first - 1 in alone:
            first -= 1
        lines = [notes[line] for line in range(first, node.lineno)]
        lines += [notes[node.end_lineno]] if node.end_lineno in notes else []
        if lines:
            found[node.target.id] = _sentence(" ".join(lines))
    return found


def _sentence(text: str) -> str:
    """A comment as the sentence of a page."""
    text = text if text[:1] in "`'\"" else text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _attributes(doc: str) -> dict[str, str]:
    """The `Attributes:` of a Google docstring."""
    section = doc.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if not line.strip():
            continue
        if not line.startswith("    "):
            break
        match = re.match(r"    (\w+): (.+)", line)
        if match:
            name = match[1]
            found[name] = match[2]
        elif name:
            found[name] += " " + line.strip()
    return found
