"""Opens sinks by their names on the command line."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NamedTuple

from distrain.errors import InputError
from distrain.runs.sinks.base import Sink
from distrain.runs.sinks.mlflow_tracking import MLflowTracking
from distrain.runs.sinks.tensorboard_files import TensorBoardFiles
from distrain.version import how_to_install


class SinkKind(NamedTuple):
    """A sink that the command line can select by `KIND` or `KIND:WHERE`."""

    package: str  # the required package, installed by the extra with the kind's name
    where: str  # describes the text after the colon
    make: Callable[[str | None], Sink]  # makes the sink from that text; `None`: no colon


SINKS = {
    "tensorboard": SinkKind("tensorboard", "FOLDER", TensorBoardFiles),
    "mlflow": SinkKind("mlflow", "URI", MLflowTracking),
}


def known_sinks() -> list[str]:
    """Return the forms that `open_sink` accepts, `KIND` and `KIND:WHERE` of each kind."""
    return [word for name, kind in SINKS.items() for word in (name, f"{name}:{kind.where}")]


def open_sink(word: str) -> Sink:
    """Return the sink for `tensorboard`, `tensorboard:FOLDER`, `mlflow` or `mlflow:URI`.

    Raises:
        InputError: There is no such sink, or the package that it needs is not installed.

    >>> open_sink("wandb")
    Traceback (most recent call last):
    distrain.errors.InputError: there is no sink 'wandb'
      hint: Known: tensorboard, tensorboard:FOLDER, mlflow, mlflow:URI.
    """
    name, _, where = word.partition(":")
    kind = SINKS.get(name)
    if kind is None:
        raise InputError(f"there is no sink '{word}'", hint=f"Known: {', '.join(known_sinks())}.")
    if find_spec(kind.package) is None:
        raise InputError(
            f"the sink '{name}' needs the package {kind.package}, which is not installed",
            hint=how_to_install(name),
        )
    return kind.make(where or None)


def open_sinks(given: Iterable[str | Sink]) -> dict[str, Sink]:
    """Return sinks by name; strings are opened with `open_sink`, whose errors are raised.

    The name is that of the sink's kind or class. If an earlier sink has the same name, the position
    in `given` is added: `mlflow (2)`.
    """
    sinks: dict[str, Sink] = {}
    for number, one in enumerate(given, 1):
        # Only the kind: the rest may contain a password, and names are printed.
        name = one.partition(":")[0] if isinstance(one, str) else type(one).__name__
        sink = open_sink(one) if isinstance(one, str) else one
        sinks[f"{name} ({number})" if name in sinks else name] = sink
    return sinks
