"""Writes a job spec as short YAML with comments: changed fields, and those that users often set."""

from collections.abc import Iterator

from distrain.jobs.spec.fields import Section
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml

_COMMENTS = {
    "data.train": "prepared parquet: files, folders, globs or URLs",
    "data.valid": "scored during training; [] for none",
    "model.kind": "docs/models/index.md lists the models and their options",
    "model.embedding_dim": "the number of learnt values per category",
    "model.hidden": "widths of the hidden layers; wider ones learn more and take longer",
    "model.dropout": "a higher rate reduces overfitting on small tables",
    "model.members": "several make an ensemble in one network, and steps several times as long",
    "train.global_batch_size": "rows of a step, over all ranks together",
    "train.epochs": "passes over the training rows",
    "train.early_stopping": "stops after `patience` validations without improvement",
    "train.refit": "then trains again with the validation rows; false takes half the time",
    "train.optimizer": "first try a larger and a smaller lr",
    "train.schedule": "the learning rate schedule",
    "train.ema": "the model is a moving average of the weights; null: the last weights",
    "train.seed": "of the initial weights and the order of rows",
    "evaluate.every_steps": "steps between two validations",
    "resources.num_ranks": "processes that train together: one for each GPU",
    "checkpoint.keep_best": "the metric that selects the best validation",
}
"""The fields that users often set, by path, with their comments; they are always written."""


def short_yaml(spec: JobSpec) -> str:
    """Return a spec as YAML without most default values; `parse_spec` reads it as the same spec.

    >>> from distrain.jobs.spec.load import parse_spec
    >>> document = {"data": {"train": "day_0"}, "model": {"kind": "mlp", "dropout": 0.5}}
    >>> print(short_yaml(parse_spec(document)).split("model:")[1].split("train:")[0].rstrip())
    <BLANKLINE>
      kind: mlp  # docs/models/index.md lists the models and their options
      embedding_dim: 16  # the number of learnt values per category
      hidden: [128, 128, 128]  # widths of the hidden layers; wider ones learn more and take longer
      dropout: 0.5  # a higher rate reduces overfitting on small tables
      members: 1  # several make an ensemble in one network, and steps several times as long
    """
    head = "# `distrain init --full` writes every field; docs/spec.md explains each.\n"
    return head + "\n".join(_lines(spec, "", "")) + "\n"


def default_spec(spec: JobSpec) -> JobSpec:
    """Return a spec with the values of `spec` in `model.kind` and in the required fields.

    All other fields have their defaults.

    >>> from distrain.jobs.spec.load import parse_spec
    >>> document = {"data": {"train": "day_0"}, "model": {"kind": "mlp", "dropout": 0.5}}
    >>> default_spec(parse_spec(document)).model.dropout
    0.0
    """
    sections = {"data": spec.data, "model": spec.model}
    required = {
        name: {"kind", *(n for n, f in type(one).model_fields.items() if f.is_required())}
        for name, one in sections.items()
    }
    return JobSpec.model_validate(spec.model_dump(mode="json", by_alias=True, include=required))


def _lines(section: Section, prefix: str, indent: str) -> Iterator[str]:
    """Yield a section's lines: changed fields, and those of `_COMMENTS`, with their comments.

    `prefix` is the section's path in the spec, with a dot at its end.
    """
    values = section.model_dump(mode="json", by_alias=True)
    changed = section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name, field in type(section).model_fields.items():
        path, key = prefix + name, field.alias or name
        value = getattr(section, name)
        if isinstance(value, Section) and path not in _COMMENTS:
            inner = list(_lines(value, f"{path}.", indent + "  "))
            if inner:
                yield f"{indent}{key}:"
                yield from inner
        elif key in changed or path in _COMMENTS:
            comment = f"  # {_COMMENTS[path]}" if path in _COMMENTS else ""
            shown = changed if isinstance(value, Section) and changed.get(key) else values
            yield f"{indent}{key}: {dump_yaml(shown[key], flow=True)}{comment}"
