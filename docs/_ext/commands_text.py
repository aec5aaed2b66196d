"""The reference of the command line, from its click objects."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator

import click
from markdown_pieces import code, table

from distrain.cli.main import COMMANDS, cli

_FEWEST_COMMANDS = 3
"""Options that this number of commands have with one meaning are explained once."""

_HEADING = "Options of several commands"


def commands() -> str:
    """The common options; then a heading, the help and a table of options for each command."""
    parent = click.Context(cli, info_name="distrain", **cli.context_settings)
    counts = Counter(option for name in COMMANDS for option in _options(name, parent))
    meanings: dict[str, str] = {}
    for (forms, meaning), count in counts.most_common():
        if count >= _FEWEST_COMMANDS:
            meanings.setdefault(forms, meaning)
    rows = [(code(forms), meaning) for forms, meaning in meanings.items()]
    parts = [f"## {_HEADING}", table(["option", "meaning"], rows)]
    parts += [_command(name, parent, list(meanings.items())) for name in COMMANDS]
    return "\n\n".join(parts)


def command_of(name: str) -> click.Command:
    """One command."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _options(name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    """The forms and the meaning of each option of a command."""
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=parent)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            forms, help_text = parameter.get_help_record(context) or ("", "")
            yield forms, _escaped(help_text)


def _command(name: str, parent: click.Context, common: list[tuple[str, str]]) -> str:
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = list(_options(name, parent))
    rows = [(code(option[0]), option[1]) for option in options if option not in common]
    parts = [f"## distrain {name}", f"```text\n{usage}\n```", _prose(command.help or "")]
    if rows:
        parts.append(table(["option", "meaning"], rows))
    also = [code(option[0].split()[0].rstrip(",")) for option in options if option in common]
    if also:
        anchor = _HEADING.lower().replace(" ", "-")
        parts.append(f"[Also](#{anchor}): {', '.join(also)}.")
    return "\n\n".join(parts)


def _prose(help_text: str) -> str:
    r"""Turn click help into Markdown: what `\b` marks keeps its lines."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_text)):
        if paragraph.startswith("\b"):
            parts.append("```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(_escaped(" ".join(paragraph.split())))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Markdown's own marks, and defaults such as `[default: 1]`, as plain text."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([\\*_\[\]<>])", r"\\\1", piece)
        for piece in pieces
    )
