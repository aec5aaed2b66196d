"""Errors that speak to who calls functions, not to who types commands."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distrain.errors import DistrainError

_END = r"(?=\.?(?:\s|$)|[,;`'])"
_SET = rf"--set '?([\w.]+)=([^\s,;`']+?)'?{_END}"
_SETS = rf"(`|or |pass |distrain train JOB )?{_SET}(?: {_SET})*"
_WORDS_OF_YAML = {"null": "None", "true": "True", "false": "False"}

_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        rf"distrain train --resume (\S+?) --scheduler (\S+?){_END}",
        r'distrain.fit(resume="\1", scheduler="\2")',
    ),
    (rf"distrain train --resume (\S+?){_END}", r'distrain.fit(resume="\1")'),
    (_SETS, lambda match: _overrides(match)),
    (r"--keep (?=\S)", "keep "),
    (r"another --run-dir, remove that one", "another run_dir, replace that one (overwrite=True)"),
    (r"begin anew from step 0: --without-checkpoint", "begin a new run"),
    (r"`distrain predict RUN FILE` scores them.*", "run.predict(rows) scores them."),
    (r"--raw or --prepared", "raw=True or raw=False"),
    (r"Say --raw if", "Say raw=True if"),
    (r"--run-dir", "run_dir"),
    (r"(?<!doctor )--scheduler", "scheduler"),
)


def _overrides(match: re.Match[str]) -> str:
    before, pairs = match[1] or "pass ", re.findall(_SET, match[0])
    fields = ", ".join(f'"{path}": {_literal(value)}' for path, value in pairs)
    if before.startswith("distrain"):
        return f"distrain.fit(JOB, overrides={{{fields}}})"
    return f"{before}overrides={{{fields}}}"


def _literal(value: str) -> str:
    """A value of YAML in Python; a placeholder such as N stays as it is."""
    plain = re.fullmatch(r"[A-Z]+|-?[0-9.]+", value)
    return _WORDS_OF_YAML.get(value, value if plain else f'"{value}"')


@contextmanager
def speaking_python() -> Iterator[None]:
    """Have expected errors that leave the block name arguments instead of options."""
    try:
        yield
    except DistrainError as error:
        for one in (error, *error.parts):
            one.message = in_python(one.message)
            one.hint = one.hint and in_python(one.hint)
            one.args = (one.message,)
        raise


def in_python(text: str) -> str:
    """A message or hint about commands, turned into one about functions.

    >>> in_python("Go on from the checkpoint of step 4: distrain train --resume runs/a")
    'Go on from the checkpoint of step 4: distrain.fit(resume="runs/a")'
    >>> in_python("To train longer, pass --set train.epochs=N, or train.max_steps.")
    'To train longer, pass overrides={"train.epochs": N}, or train.max_steps.'
    >>> in_python("`--set train.init_from=runs/a --set train.early_stopping=null`")
    '`overrides={"train.init_from": "runs/a", "train.early_stopping": None}`'
    """
    for command, function in _WORDS:
        text = re.sub(command, function, text)
    return text
