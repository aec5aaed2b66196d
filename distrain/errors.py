"""Every error that distrain raises on purpose.

    DistrainError                  exit code
    ├── InputError                 1    something given to us cannot be used
    │   ├── SpecError              1    the job spec
    │   ├── SchemaError            1    a schema, or a column it lacks
    │   ├── DataError              1    a data file, row group, column or value
    │   └── ModelError             1    a model whose output is not finite
    ├── OutputError                1    something could not be written whole
    ├── ClusterError               69   no cluster, or too few workers
    └── JobError                   100  a job that started and did not end well
        └── JobCancelled           103  somebody stopped it

An error says what failed, where, the likely cause and what to do next. The command line prints
exactly `str(error)`, and a traceback only for errors that are not in this tree.
"""

from collections.abc import Mapping


class DistrainError(Exception):
    """What failed, where it failed and what to do next.

    Args:
        message: What failed, in one sentence, with the offending value.
        where: Named places in reading order: file, row group, column, job, attempt, rank, ...
        hint: The likely cause, or the next command.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, where: Mapping[str, object] | None = None, hint: str | None = None
    ):
        self.message = message
        self.where = dict(where or {})
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        """Render the message, then one indented line per place, then the hint.

        >>> print(DataError("label is 2, not 0 or 1", where={"file": "a.parquet"}, hint="Look."))
        label is 2, not 0 or 1
          file: a.parquet
          hint: Look.
        """
        lines = [self.message]
        lines += [f"  {place}: {value}" for place, value in self.where.items()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Dask tasks); the default would drop the keyword arguments.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(
    kind: type[DistrainError], message: str, where: Mapping[str, object], hint: str | None
) -> DistrainError:
    return kind(message, where=where, hint=hint)


class InputError(DistrainError):
    """Something given to us cannot be used."""


class SpecError(InputError):
    """A job spec with an unknown key or an unusable value."""


class SchemaError(InputError):
    """A schema that cannot be read, or that lacks what is asked of it."""


class DataError(InputError):
    """A data file that is missing, damaged, or holds a value that cannot be used."""


class ModelError(InputError):
    """A model that cannot be built as asked, or that cannot score the rows it is given."""


class NonFiniteOutput(ModelError):
    """A model whose output is not finite."""


class OutputError(DistrainError):
    """An output that could not be written whole; nothing was left under its name."""


class ClusterError(DistrainError):
    """No cluster could be reached, or it has too few workers."""

    exit_code = 69


class JobError(DistrainError):
    """A job that started and did not end well."""

    exit_code = 100


class JobCancelled(JobError):
    """A job that somebody stopped."""

    exit_code = 103
