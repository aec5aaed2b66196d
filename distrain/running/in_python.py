"""Errors that speak to who calls functions, not to who types commands."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from distrain.errors import DistrainError

_WORDS: tuple[tuple[str, str], ...] = (
    (
        r"distrain train --resume (\S+?) --scheduler (\S+)",
        r'distrain.fit(resume="\1", scheduler="\2")',
    ),
    (r"distrain train --resume (\S+)", r'distrain.fit(resume="\1")'),
    (r"(?:pass )?--set ([\w.]+)=([^\s,;]+?)(?=\.?$|\.? |[,;])", r'pass overrides={"\1": \2}'),
    (r"another --run-dir, remove that one", "another run_dir, replace that one (overwrite=True)"),
    (r"begin anew from step 0: --without-checkpoint", "begin a new run"),
    (r"`distrain predict RUN FILE` scores them.*", "run.predict(rows) scores them."),
    (
        r"--raw or --prepared",
        "distrain.scoring.score_rows(model, rows, raw=RawOptions(is_raw=True)), or False",
    ),
    (r"--run-dir", "run_dir"),
    (r"--scheduler", "scheduler"),
)


@contextmanager
def speaking_python() -> Iterator[None]:
    """Have an expected error that leaves the block name arguments, where it names options."""
    try:
        yield
    except DistrainError as error:
        for one in (error, *error.parts):
            one.message = in_python(one.message)
            one.hint = one.hint and in_python(one.hint)
            one.args = (one.message,)
        raise


def in_python(text: str) -> str:
    """A message or hint about commands, as one about functions.

    >>> in_python("Go on from the checkpoint of step 4: distrain train --resume runs/a")
    'Go on from the checkpoint of step 4: distrain.fit(resume="runs/a")'
    >>> in_python("To train longer, pass --set train.epochs=N, or train.max_steps.")
    'To train longer, pass overrides={"train.epochs": N}, or train.max_steps.'
    """
    for command, function in _WORDS:
        text = re.sub(command, function, text)
    return text
