"""`~` in words that the shell left alone: `--out=~/x`, and whatever was quoted."""

from collections.abc import Sequence

import click


def with_homes(args: Sequence[str]) -> list[str]:
    """A command's words, with a leading `~`, also of an option's value, as the home that it names.

    >>> with_homes(["train", "job.yaml", "--set", "name=~"])
    ['train', 'job.yaml', '--set', 'name=~']

    Raises:
        click.UsageError: It names the home of a user that is not known.
    """
    return [_with_home(word) for word in args]


def _with_home(word: str) -> str:
    option, sign, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not value.startswith("~"):
        return word
    from distrain.spec.paths import with_home  # late: most words need no pydantic

    try:
        return f"{option}{sign}{with_home(value)}"
    except ValueError as error:
        raise click.UsageError(f"{error}. Write ./~NAME for a file of that name.") from None
