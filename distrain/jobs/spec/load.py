"""Makes a JobSpec from YAML or JSON text and overrides; all mistakes are reported together."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.spec.explain import explain_all
from distrain.jobs.spec.job import JobSpec
from distrain.storage.inputs import TABLE_SUFFIXES
from distrain.storage.urls import without_secrets


def load_spec(path: str | Path, overrides: Iterable[str] = ()) -> JobSpec:
    """Read a job spec from a YAML file, or a JSON file if its name ends in `.json`.

    Args:
        path: The file.
        overrides: `section.field=value` assignments; values are read as YAML.

    Raises:
        SpecError: The file is missing or not YAML, or the spec has mistakes (all are listed).
    """
    return parse_spec(read_document(Path(path)), overrides, source=str(path))


def is_named_as_table(name: str) -> bool:
    """Return True for a glob, a folder, and the names of tables, which no job spec has.

    >>> is_named_as_table("day_0.csv.gz"), is_named_as_table("job.yaml")
    (True, False)
    """
    return name.lower().endswith(TABLE_SUFFIXES) or "*" in name or Path(name).is_dir()


def parse_spec(
    document: object,
    overrides: Iterable[str] = (),
    *,
    source: str | None = None,
) -> JobSpec:
    """Make a JobSpec from a document of plain values and from `section.field=value` overrides.

    The document is not changed. Errors name the file `source`, if it is given.

    >>> spec = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}},
    ...                   ["train.optimizer.lr=0.5"])
    >>> spec.train.optimizer.lr
    0.5

    Raises:
        SpecError: The document or an override has mistakes; all are listed, each with its path.
    """
    from pydantic import ValidationError

    where = {"file": source} if source else {}
    if not isinstance(document, Mapping):
        raise SpecError(
            "a job spec is a mapping of sections",
            where=where,
            hint="At least `data: {train: PATH}` and `model: {kind: dlrm}`.",
        )
    try:
        merged = plain(document)
    except RecursionError:
        raise SpecError("the job spec is nested too deeply", where=where) from None
    problems = [problem for text in overrides if (problem := _override(merged, text))]
    try:
        spec = JobSpec.model_validate(merged)
    except ValidationError as error:
        problems += explain_all(error.errors())
    if problems:
        raise SpecError(without_secrets("\n".join(problems)), where=where)
    return spec


def parse_stored_spec(document: object) -> JobSpec:
    """Make a JobSpec from the spec of a run or a checkpoint, to read what the job wrote.

    Unlike `parse_spec`, it also takes a spec of version 0.2.0 that trained on raw rows. Such a job
    cannot continue; its `data.workflow` is left out.

    Raises:
        SpecError: As from `parse_spec`.
    """
    if isinstance(document, Mapping) and isinstance(data := document.get("data"), Mapping):
        data = {key: value for key, value in data.items() if key != "workflow"}
        document = {**document, "data": data}
    return parse_spec(document)


def check_overrides(overrides: Iterable[str], kind: str | None = None) -> None:
    """Check `section.field=value` overrides before the rest of the spec is known.

    Only mistakes in the overrides themselves are reported: unknown fields and unsuitable values.

    Args:
        overrides: The overrides.
        kind: The kind of the model; if `None`, overrides of the section `model` are not checked.

    Raises:
        SpecError: An override has mistakes; all are listed.
    """
    from pydantic import ValidationError

    document: dict[str, Any] = {"data": {"train": "unknown"}, "model": {"kind": kind or "mlp"}}
    checked = [o for o in overrides if kind is not None or not sets_section([o], "model")]
    problems = [problem for text in checked if (problem := _override(document, text))]
    paths = [tuple(text.partition("=")[0].strip().split(".")) for text in checked]

    def is_of_override(item: Any) -> bool:
        loc = item["loc"]
        if loc[:1] == ("model",):  # after it comes the kind, which is not a key
            loc = ("model", *loc[2:])
        is_unknown = item["type"] == "extra_forbidden"
        return any(
            loc[: len(path)] == path or (is_unknown and path[: len(loc)] == loc) for path in paths
        )

    try:
        JobSpec.model_validate(document)
    except ValidationError as error:
        problems += explain_all([item for item in error.errors() if is_of_override(item)])
    if problems:
        raise SpecError(without_secrets("\n".join(problems)))


def set_values(overrides: Iterable[str], section: str) -> dict[str, Any]:
    """Return the values that `section.field=value` overrides set in a section, by field.

    >>> set_values(["train.epochs=3", "name=first"], "train")
    {'epochs': 3}
    """
    document: dict[str, Any] = {}
    for text in overrides:
        _override(document, text)
    values = document.get(section)
    return values if isinstance(values, dict) else {}


def plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a document, nested mappings included, whose keys are all texts."""
    return {_key(k): plain(v) if isinstance(v, Mapping) else v for k, v in document.items()}


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a nested document by their dotted names, which begin with `prefix`.

    An empty mapping is a value.

    >>> flat({"name": "a", "train": {"optimizer": {"lr": 0.1}}})
    {'name': 'a', 'train.optimizer.lr': 0.1}
    """
    values: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def differences(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the fields that differ between documents, by dotted name, with each document's value.

    A missing field counts as null, and so does an empty section.

    >>> differences([{"name": "a", "train": {"seed": 0}}, {"name": "b", "train": {"seed": 0}}])
    {'name': ['a', 'b']}
    """
    values = [flat(document) for document in documents]
    names = dict.fromkeys(name for one in values for name in one)
    rows = {name: [one.get(name) for one in values] for name in names}
    filled = {name: row for name, row in rows.items() if any(v not in (None, {}) for v in row)}
    return {name: row for name, row in filled.items() if any(value != row[0] for value in row)}


def sets_section(overrides: Iterable[str], section: str) -> bool:
    """Return True if `section.field=value` overrides set a section, or some of its fields.

    >>> sets_section(["model.hidden=[64]"], "model"), sets_section(["train.epochs=3"], "model")
    (True, False)
    """
    paths = (assignment.partition("=")[0] for assignment in overrides)
    return any(path.strip().split(".")[0] == section for path in paths)


def _key(key: object) -> str:
    # YAML and JSON can escape half a surrogate pair, which cannot be written to files or terminals.
    return str(key).encode(errors="backslashreplace").decode()


def _override(document: dict[str, Any], assignment: str) -> str | None:
    """Set a field in the document, in place; return the reason if this is impossible.

    `assignment` is `section.field=value`, and the value is YAML. Missing sections are made.
    """
    path, sign, text = assignment.partition("=")
    if not sign or not all(path.strip().split(".")):
        return f"cannot use the override {assignment!r}; write it as section.field=value"
    try:
        set_at(document, path.strip(), parse_yaml(text))
    except KeyError as error:
        return f"cannot set {path}: {error.args[0]} is not a section"
    except ValueError as error:
        return f"cannot set {path} to {text!r}: {error}"
    return None


def set_at(document: dict[str, Any], path: str, value: object) -> None:
    """Set a value at a dotted path of a document, in place. Missing sections are made.

    Raises `KeyError` with the key that is empty, as in `a..b`, or that is not a section.

    >>> document = {"train": {"epochs": 1}}
    >>> set_at(document, "train.epochs", 3)
    >>> set_at(document, "queue.priority", 1)
    >>> document
    {'train': {'epochs': 3}, 'queue': {'priority': 1}}
    """
    *sections, last = path.split(".")
    for key in sections:
        inner = document.setdefault(key, {}) if key else None
        if not isinstance(inner, dict):
            raise KeyError(key)
        document = inner
    if not last:
        raise KeyError(last)
    document[last] = value


MOST_VALUES = 1_000_000
"""Maximum number of values in a YAML document after its aliases (`*NAME`) are expanded.

Without a limit, a few lines of aliases to lists of aliases could expand to 2**30 values.
"""

# What PyYAML raises, besides its own errors, for text that it cannot read, such as a month 13,
# `!!bool perhaps`, or a nesting deeper than the stack.
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


# A number of YAML 1.2 that YAML 1.1, and therefore PyYAML, reads as a text: 1e-3, 2.5E4.
_EXPONENT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+\Z")
_TAG = "tag:yaml.org,2002:"
_FLOAT_TAG, _FIRST_CHARACTERS = f"{_TAG}float", list("-+.0123456789")

# The types, patterns and first characters of values that are not read as texts with `keep_words`:
# a user who writes yes, 007, 12:30 or 2024-05-01 means these characters.
_FEWEST_WORDS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+", "-+.0123456789"),
    ("merge", r"<<", "<"),
)


def read_document(
    path: Path,
    what: str = "job spec",
    writes_one: str = "`distrain init` writes one.",
    keep_words: bool = False,
) -> object:
    """Read a YAML file, or a JSON file if its name ends in `.json`.

    Args:
        path: The file.
        what: What the file should contain, for the errors.
        writes_one: A sentence for the errors: which command writes such a file.
        keep_words: As in `parse_yaml`.

    Raises:
        SpecError: The file is missing, cannot be read, is not UTF-8, or is not YAML (JSON if its
            name ends in `.json`).
    """
    where = {"file": str(path)}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SpecError(
            f"no such {what}", where=where, hint=f"Check the path; {writes_one}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(
            f"cannot read the {what}: {reason}",
            where=where,
            hint=f"A {what} is a file of YAML or JSON; {writes_one}",
        ) from None
    return parse_document(text, str(path), what, writes_one, keep_words)


def parse_document(
    text: str, source: str, what: str, writes_one: str, keep_words: bool = False
) -> object:
    """Parse the content of the file or URL `source`: as JSON if it ends in `.json`, else as YAML.

    The other parameters are those of `read_document`. Raises `SpecError` if the text cannot be
    parsed.
    """
    try:
        return _parse_json(text) if source.endswith(".json") else parse_yaml(text, keep_words)
    except ValueError as error:
        hint = f"Correct it there. Or is the file not a {what}? {writes_one}"
        if r"'\t' that cannot start" in str(error):
            hint = "YAML is indented with spaces: replace the tab with spaces."
        raise SpecError(str(error), where={"file": source}, hint=hint) from None


def parse_yaml(text: str, keep_words: bool = False) -> Any:
    """Return a YAML document as plain values.

    >>> parse_yaml("{lr: 1e-3, name: '1e-3', widths: [8, 4]}")
    {'lr': 0.001, 'name': '1e-3', 'widths': [8, 4]}
    >>> parse_yaml("{no: yes, 1.50: 007, is_new: true}", keep_words=True)
    {'no': 'yes', '1.50': '007', 'is_new': True}

    Args:
        keep_words: If True, all keys, and all values except `true`, `false`, `null` and decimal
            numbers, are read as texts, exactly as written. If False, YAML 1.1 applies, which reads
            `yes` as true and 010 as 8.

    Raises:
        ValueError: The text is not YAML, a mapping names a key twice, or the aliases (`*NAME`)
            expand to more than `MOST_VALUES` values.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def get_single_node(self) -> Any:
            node = super().get_single_node()
            if node is not None:
                _expanded_size(node, {})
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            # Checked here, since PyYAML later adds the keys of `<<` merges to the mapping's own.
            node = super().compose_mapping_node(anchor)
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            _refuse_repeats([k.value for k in keys], f" (line {node.start_mark.line + 1} on)")
            for key in keys:
                if keep_words and key.tag != f"{_TAG}merge":
                    key.tag = f"{_TAG}str"
            return node

    if keep_words:
        Loader.yaml_implicit_resolvers = {}
        for kind, pattern, first in _FEWEST_WORDS:
            Loader.add_implicit_resolver(_TAG + kind, re.compile(rf"(?:{pattern})\Z"), list(first))
    Loader.add_implicit_resolver(_FLOAT_TAG, _EXPONENT, _FIRST_CHARACTERS)
    try:
        return yaml.load(text, Loader)
    except _Refused:
        raise
    except (yaml.YAMLError, *_UNREADABLE) as error:
        told = str(error).replace('in "<unicode string>", line', "in line")
        raise ValueError(f"not YAML: {told}") from None


def dump_yaml(document: object, *, flow: bool = False) -> str:
    r"""Return plain values as YAML that `parse_yaml` reads back.

    With `flow`, the text is one line without a line break, for an entry that people read: letters
    of all languages are written as they are, and a value that occurs twice is written twice.

    >>> dump_yaml({"lr": 0.001, "name": "1e-3"})
    "lr: 0.001\nname: '1e-3'\n"
    >>> dump_yaml({"größe": ["a\nb", "yes", None]}, flow=True)
    '{größe: ["a\\nb", \'yes\', null]}'
    >>> shared = [1]
    >>> dump_yaml([shared, shared], flow=True)
    '[[1], [1]]'
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return flow or bool(super().ignore_aliases(data))

    def one_line(dumper: yaml.SafeDumper, text: str) -> Any:
        return dumper.represent_scalar(f"{_TAG}str", text, None if text.isprintable() else '"')

    Dumper.add_implicit_resolver(_FLOAT_TAG, _EXPONENT, _FIRST_CHARACTERS)
    if not flow:
        return str(yaml.dump(document, Dumper=Dumper, sort_keys=False))
    Dumper.add_representer(str, one_line)
    settings: dict[str, Any] = {"width": float("inf"), "allow_unicode": True, "sort_keys": False}
    # In a list, a single value gets no end-of-document mark.
    return str(yaml.dump([document], Dumper=Dumper, default_flow_style=True, **settings))[1:-2]


class _Refused(ValueError): ...


def _expanded_size(node: Any, known: dict[int, int | None]) -> int:
    """Return the number of values of a YAML node with all its aliases expanded.

    Raises `_Refused` if the node contains itself, or has more than `MOST_VALUES` values. `known`
    caches the sizes of nodes by their ids.
    """
    if isinstance(node.value, str):
        return 1
    if id(node) in known:
        if (size := known[id(node)]) is None:
            raise _Refused(f"the value of line {node.start_mark.line + 1} contains itself")
        return size
    known[id(node)] = None
    parts = (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
    size = 1
    for part in parts:
        size += _expanded_size(part, known)
        if size > MOST_VALUES:
            raise _Refused(
                f"the aliases of the value of line {node.start_mark.line + 1} expand to more than "
                f"{MOST_VALUES} values"
            )
    known[id(node)] = size
    return size


def _parse_json(text: str) -> Any:
    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _refuse_repeats([key for key, _ in pairs])
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=mapping)
    except _Refused:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _refuse_repeats(keys: list[str], place: str = "") -> None:
    twice = sorted(key for key, count in Counter(keys).items() if count > 1)
    if twice:
        raise _Refused(f"a mapping{place} names {', '.join(map(_key, twice))} twice")
