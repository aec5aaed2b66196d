"""The reference of the command line, from its click objects."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import click
from markdown_pieces import code, table, table_or_list

from distrain.cli.main import COMMANDS, cli

_FEWEST_COMMANDS = 3
"""Options that this number of commands have with one meaning are explained once."""

_HEADING = "Options of several commands"
_TLS = ("--tls-ca-file", "--tls-cert", "--tls-key")
_GROUPS = {
    "connection options": ("--scheduler", *_TLS, "--server"),
    "TLS options": _TLS,
}
"""Names for options that commands have together; the first group that fits is named."""

_SAID_ONCE = (" Default: DISTRAIN_SCHEDULER.", "JOB is a job's id, or its beginning or end. ")
"""Sentences of many commands' help, which the page has once."""


def commands() -> str:
    """The common options; then a heading, the help and a table of options for each command."""
    parent = click.Context(cli, info_name="distrain", **cli.context_settings)
    counts = Counter(option for name in COMMANDS for option in _options(name, parent))
    meanings: dict[str, str] = {}
    for (forms, meaning), count in counts.most_common():
        if count >= _FEWEST_COMMANDS:
            meanings.setdefault(forms, meaning)
    rows = [(code(forms), meaning) for forms, meaning in meanings.items()]
    parts = [f"## {_HEADING}", _groups(), table(["option", "meaning"], rows)]
    parts += [_command(name, parent, list(meanings.items())) for name in COMMANDS]
    return "\n\n".join(parts)


def command_of(name: str) -> click.Command:
    """One command."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _groups() -> str:
    """Return the meaning of the names of groups, and of JOB."""
    tls, connection = (_GROUPS[name] for name in ("TLS options", "connection options"))
    others = [option for option in connection if option not in tls]
    return (
        f"The *TLS options* are {_enumerated(tls)}. The *connection options* are these and "
        f"{_enumerated(others)}. JOB is a job's id, or its beginning or end."
    )


def _enumerated(options: Sequence[str]) -> str:
    return ", ".join(map(code, options[:-1])) + f" and {code(options[-1])}"


def _options(name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    """The forms and the meaning of each option of a command; `--json` has a section of its own."""
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=parent)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            forms, help_text = parameter.get_help_record(context) or ("", "")
            if forms != "--json":
                yield forms.replace(" RANGE", ""), _escaped(_without_repeats(help_text))


def _command(name: str, parent: click.Context, common: list[tuple[str, str]]) -> str:
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = list(_options(name, parent))
    is_common = [option in common or _is_of_jobs(option, options) for option in options]
    rows = [
        (code(forms), meaning)
        for (forms, meaning), known in zip(options, is_common, strict=True)
        if not known
    ]
    help_text = _without_repeats(inspect.cleandoc(command.help or ""))
    parts = [f"## distrain {name}", f"```text\n{usage}\n```", _prose(help_text)]
    if rows:
        parts.append(table_or_list(["option", "meaning"], rows))
    also = _named(
        [
            forms.split()[0].rstrip(",")
            for (forms, _), known in zip(options, is_common, strict=True)
            if known
        ]
    )
    if also:
        anchor = _HEADING.lower().replace(" ", "-")
        also = [f"[Also](#{anchor}): {', '.join(also)}"]
    if any("--json" in parameter.opts for parameter in command.params):
        also += ["[`--json`](#json)" if also else "Also: [`--json`](#json)"]
    if also:
        parts.append(", ".join(also) + ".")
    return "\n\n".join(parts)


def _is_of_jobs(option: tuple[str, str], options: Sequence[tuple[str, str]]) -> bool:
    """Whether it is the scheduler of a command that also takes the address of a service."""
    forms = [forms.split()[0] for forms, _ in options]
    return option[0].startswith("--scheduler ") and "--server" in forms


def _named(options: list[str]) -> list[str]:
    """The options as code, with the group's name in the place of its options."""
    for name, group in _GROUPS.items():
        if set(group) <= set(options):
            return [f"the {name}", *(code(one) for one in options if one not in group)]
    return [code(one) for one in options]


def _without_repeats(text: str) -> str:
    text = re.sub(r"\[default: \(([^()]*)\)", r"[default: \1", text)  # a default in words
    for sentence in _SAID_ONCE:
        text = text.replace(sentence, "").replace(sentence.strip(), "")
    return text


def _prose(help_text: str) -> str:
    r"""Turn click help into Markdown: what `\b` marks keeps its lines."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", help_text):
        if paragraph.startswith("\b"):
            parts.append("```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(_escaped(" ".join(paragraph.split())))
    return "\n\n".join(part for part in parts if part)


def _escaped(text: str) -> str:
    """Markdown's own marks, and defaults such as `[default: 1]`, as plain text."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([\\*_\[\]<>])", r"\\\1", piece)
        for piece in pieces
    )
