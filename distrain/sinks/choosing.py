"""Opens sinks by their names on the command line."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from distrain.errors import InputError
from distrain.sinks import mlflow_tracking, tensorboard_files
from distrain.sinks.base import Sink
from distrain.version import how_to_install


def open_sink(word: str) -> Sink:
    """The sink of `tensorboard`, `tensorboard:FOLDER`, `mlflow` or `mlflow:URI`.

    Raises:
        InputError: There is no such sink, or the package that it needs is not installed.

    >>> open_sink("wandb")
    Traceback (most recent call last):
    distrain.errors.InputError: there is no sink 'wandb'
      hint: Known: tensorboard, tensorboard:FOLDER, mlflow, mlflow:URI.
    """
    kind, _, where = word.partition(":")
    if kind == "tensorboard":
        _check_installed(kind, tensorboard_files.NEEDS)
        return tensorboard_files.TensorBoardFiles(Path(where) if where else None)
    if kind == "mlflow":
        _check_installed(kind, mlflow_tracking.NEEDS)
        return mlflow_tracking.MLflowTracking(where or None)
    raise InputError(
        f"there is no sink '{word}'",
        hint="Known: tensorboard, tensorboard:FOLDER, mlflow, mlflow:URI.",
    )


def open_sinks(given: Iterable[str | Sink]) -> dict[str, Sink]:
    """Sinks by name; strings are opened, and refused, as by `open_sink`."""
    sinks: dict[str, Sink] = {}
    for number, one in enumerate(given, 1):
        # Of a word its kind alone: what follows may hold a password, and names are printed.
        name = one.partition(":")[0] if isinstance(one, str) else type(one).__name__
        sink = open_sink(one) if isinstance(one, str) else one
        sinks[f"{name} ({number})" if name in sinks else name] = sink
    return sinks


def _check_installed(kind: str, package: str) -> None:
    if find_spec(package) is None:
        raise InputError(
            f"the sink '{kind}' needs the package {package}, which is not installed",
            hint=how_to_install(kind),
        )
