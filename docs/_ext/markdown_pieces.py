"""Pieces of Markdown."""

import inspect
import re
from collections.abc import Iterable, Sequence

MOST_ROWS_OF_A_LIST = 3


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; `|` and line ends in cells are taken care of."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def table_or_list(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; of few rows a list, with the name first, the meaning last, and the rest between."""
    if len(rows) > MOST_ROWS_OF_A_LIST:
        return table(header, rows)
    return "\n".join(
        f"- {name}" + f" ({'; '.join(rest)})" * bool(rest) + f": {meaning}" * bool(meaning)
        for name, *rest, meaning in rows
    )


def code(text: object) -> str:
    """Inline code, or nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def comments_of(module: object) -> dict[str, str]:
    """The comments in a module's source after `NAME = ...  #` or `"name",  #`, by the name."""
    pattern = re.compile(r'^ +(?:(\w+) = "[^"]*"|"(\w+)",) +# (.+)$', re.MULTILINE)
    found = pattern.finditer(inspect.getsource(module))  # type: ignore[arg-type]
    return {match[1] or match[2]: match[3] for match in found}


def first_sentence_capital(text: str) -> str:
    """The text as a sentence: capital at the start, full stop at the end."""
    return text[:1].upper() + text[1:].removesuffix(".") + "." if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
