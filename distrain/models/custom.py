"""User-defined models: a function, named in the job spec, that creates a blueprint.

Permission to submit a job must not include the choice of code that workers load. So a function is
only imported from packages that the process's operator names in `DISTRAIN_MODEL_PACKAGES`. A
function that the same process has passed to `handed_over` needs no import.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from distrain.errors import ModelError, SpecError
from distrain.jobs.spec.models.kinds import CustomSpec
from distrain.models.blueprint import Blueprint, ModelContext

PACKAGES_VARIABLE = "DISTRAIN_MODEL_PACKAGES"
"""The environment variable with the top-level packages from which models may be imported.

The packages are separated by commas.
"""

_handed_over: dict[str, Callable[..., Any]] = {}


def custom(given: ModelContext, spec: CustomSpec) -> Blueprint:
    """Return the blueprint that the function creates from the schema and the options.

    The function itself decides how list columns are combined, in its `Embeddings`.

    Raises:
        SpecError: The function's package is not allowed, the function cannot be imported, or it
            does not accept the options.
        ModelError: The function did not return a `Blueprint`.
    """
    make = function_named(spec.function)
    try:
        made = make(given.schema, **spec.options)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # from inside the function
        raise SpecError(
            f"the model's function does not accept these options: {error}",
            where={"model.function": spec.function, "model.options": ", ".join(spec.options)},
        ) from None
    if not isinstance(made, Blueprint):
        raise ModelError(
            f"the model's function returned a {type(made).__name__}, not a Blueprint",
            where={"model.function": spec.function},
            hint="Return distrain.models.Blueprint(inputs, body, task).",
        )
    return made


def function_named(name: str, field: str = "model.function") -> Callable[..., Any]:
    """Return the function that a field of a job spec names as `module:name`.

    Raises SpecError if its package is not allowed, or if it cannot be imported or called. Functions
    in `handed_over` need no import.
    """
    hint = "open its run in Python with distrain.Run(run_dir, model_fn=...)"
    return _handed_over.get(name) or _imported(name, field, hint)


def check_function(name: str, field: str, *, here: bool) -> None:
    """Raise `SpecError` if a job spec's function cannot be imported, or its package is not allowed.

    `here`: whether this process itself will build the model. If so, a function in `handed_over`
    needs no import. Other processes can only import it.
    """
    inline = "train with resources.backend inline, in its own process"
    hand_over = "hand it to distrain.fit, as model_fn or in metrics"
    if not (here and name in _handed_over):
        _imported(name, field, hand_over if here else inline)


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name in a job spec, `module:name`; the name of a lambda is "model".

    >>> name_of(custom)
    'distrain.models.custom:custom'
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    last = name.rpartition(".")[2]
    return (
        f"{getattr(function, '__module__', '__main__')}:{last if last.isidentifier() else 'model'}"
    )


def is_importable(function: Callable[..., Any]) -> bool:
    """Return True if another process can import a function by its `name_of`.

    >>> is_importable(custom), is_importable(lambda schema: None)
    (True, False)
    """
    module_name, _, name = name_of(function).partition(":")
    module = sys.modules.get(module_name)
    return module_name != "__main__" and getattr(module, name, None) is function


@contextmanager
def handed_over(
    *functions: Callable[..., Any] | None, names: Mapping[str, Callable[..., Any]] | None = None
) -> Iterator[None]:
    """Context in which this process uses these functions directly, without importing them.

    Args:
        names: More functions, by their names in a job spec.

    Raises:
        SpecError: Two of the functions have one name.
    """
    before, given = dict(_handed_over), dict(names or {})
    for one in functions:
        if one is not None and given.setdefault(name := name_of(one), one) is not one:
            raise SpecError(
                f"two functions or classes are named {name!r}", hint="Give each its own name."
            )
    _handed_over.update(given)
    try:
        yield
    finally:
        _handed_over.clear()
        _handed_over.update(before)


def allowed_packages() -> tuple[str, ...]:
    """Return the top-level packages from which this process may import models."""
    words = os.environ.get(PACKAGES_VARIABLE, "").split(",")
    return tuple(word.strip() for word in words if word.strip())


def _imported(name: str, field: str, otherwise: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    package = module_name.partition(".")[0]
    if package == "__main__":
        raise SpecError(
            f"{field} is defined in a notebook or script, from which no other process can import "
            "it",
            where={field: name},
            hint=f"{otherwise[0].upper()}{otherwise[1:]}; or train with it from a module of a "
            f"package that {PACKAGES_VARIABLE} names.",
        )
    if package not in allowed_packages():
        raise SpecError(
            f"{field} may not be imported from the package {package!r} here",
            where={field: name, PACKAGES_VARIABLE: ", ".join(allowed_packages())},
            hint=f"The cluster's operator allows a package by {PACKAGES_VARIABLE}={package} in the "
            "environment of its workers, and of this command.",
        )
    try:
        function: Callable[..., Any] = getattr(import_module(module_name), attribute)
    except Exception as error:  # raised by arbitrary code of the module
        kind = (
            "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        )
        raise SpecError(
            f"{field} cannot be imported: {kind}{error}",
            where={field: name},
            hint="Install its package wherever workers run, or put its folder into PYTHONPATH "
            "there: ranks import nothing from the current folder.",
        ) from None
    if not callable(function):
        raise SpecError(f"{field} is a {type(function).__name__}: {name}")
    return function
