"""Bad lines: which they are and what is wrong with them.

Only blocks that the fast way refuses come here, line by line in Python.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from distrain.errors import DataError
from distrain.etl.raw_lines import RAW_COLUMNS, TextLayout
from distrain.schema import CATEGORICAL, CONTINUOUS, LABEL

MAX_EXAMPLES = 5
_SHOWN_CHARS = 72
_INT64_RANGE = range(-(2**63), 2**63)

# The same values that the fast way takes: Arrow allows blanks around a number.
_BLANKS = b" \t"
_LABEL = re.compile(rb"0*1|-?0+")
_INTEGER = re.compile(rb"-?\d+")
_HEX = re.compile(rb"[0-9a-fA-F]{8}")


@dataclass(frozen=True)
class BadLine:
    """One bad line.

    Attributes:
        line: Its number, from 1; counted from the block's start until the caller knows better.
        kind: In few words, for counting.
        problem: The column, its value and what it should be.
        text: The line, cut to fit on a screen.
        hint: The likely cause, if there is one.
        file: The file's name, once known.
    """

    line: int
    kind: str
    problem: str
    text: str
    hint: str | None = None
    file: str = ""

    def at(self, file: str, lines_before: int) -> BadLine:
        """The same line, numbered in its file."""
        return replace(self, file=file, line=self.line + lines_before)

    def error(self) -> DataError:
        """The error that stops on this line."""
        return DataError(
            self.problem,
            where={"file": self.file, "line": self.line, "content": self.text},
            hint=self.hint or "Mend the line, or pass --bad-lines skip to leave such lines out.",
        )


@dataclass(frozen=True)
class BadLineTally:
    """Bad lines that were skipped.

    Attributes:
        by_kind: How many of each kind.
        examples: The first few.
    """

    by_kind: dict[str, int] = field(default_factory=dict)
    examples: tuple[BadLine, ...] = ()

    @property
    def count(self) -> int:
        """How many in all."""
        return sum(self.by_kind.values())

    @classmethod
    def of(cls, lines: Iterable[BadLine]) -> BadLineTally:
        """The tally of these lines."""
        lines = list(lines)
        return cls(dict(Counter(line.kind for line in lines)), tuple(lines[:MAX_EXAMPLES]))

    def merged(self, later: BadLineTally) -> BadLineTally:
        """Both together; `later` comes after in input order."""
        return BadLineTally(
            dict(Counter(self.by_kind) + Counter(later.by_kind)),
            (*self.examples, *later.examples)[:MAX_EXAMPLES],
        )

    def shifted(self, file: str, lines_before: int) -> BadLineTally:
        """The same, with the examples numbered in their file."""
        return replace(self, examples=tuple(e.at(file, lines_before) for e in self.examples))


def split_bad_lines(
    block: bytes, layout: TextLayout, *, stop_at_first: bool
) -> tuple[bytes, list[BadLine]]:
    """The good lines of a block, and its bad ones.

    Args:
        block: Whole lines.
        layout: Their layout.
        stop_at_first: Return at the first bad line; the good lines are then of no use.
    """
    plain = _plain_line(layout.delimiter)
    good: list[bytes] = []
    bad: list[BadLine] = []
    lines = block.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix(b"\r")
        found = None if plain.fullmatch(content) else _diagnose(content, layout)
        if found is None:
            good.append(line)
            continue
        kind, problem, hint = found
        bad.append(BadLine(number, kind, problem, shown(content), hint))
        if stop_at_first:
            break
    return b"".join(line + b"\n" for line in good), bad


def shown(content: bytes) -> str:
    """A line as text that fits on a screen."""
    text = content.decode("utf-8", "backslashreplace").replace("\t", " ")
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


@lru_cache
def _plain_line(delimiter: str) -> re.Pattern[bytes]:
    """Matches good lines in their usual form; one match is much faster than 40 checks."""
    label, integer, category = rb"[01]", rb"(?:-?\d{1,18})?", rb"(?:[0-9a-fA-F]{8})?"
    fields = [label] + [integer] * len(CONTINUOUS) + [category] * len(CATEGORICAL)
    return re.compile(re.escape(delimiter.encode()).join(fields))


def _diagnose(content: bytes, layout: TextLayout) -> tuple[str, str, str | None] | None:
    """Kind, problem and hint of a bad line; `None` if it is good after all."""
    fields = content.split(layout.delimiter.encode())
    if len(fields) != len(RAW_COLUMNS):
        return _wrong_field_count(content, len(fields), layout)
    for name, value in zip(RAW_COLUMNS, fields, strict=True):
        if (found := _diagnose_field(name, value)) is not None:
            return found
    return None


def _wrong_field_count(
    content: bytes, found: int, layout: TextLayout
) -> tuple[str, str, str | None]:
    wanted = len(RAW_COLUMNS)
    if not content:
        return "empty line", f"the line is empty; it should have {wanted} fields", None
    hint = None
    if found == wanted - 1:
        hint = "Unlabelled test files have 39 fields; prep needs the label as the first of 40."
    for other, name in ((",", "','"), ("\t", "'\\t'")):
        if other != layout.delimiter and content.count(other.encode()) == wanted - 1:
            hint = f"Its fields seem to be separated otherwise: pass --delimiter {name}."
    fields = "field" if found == 1 else "fields"
    return "wrong number of fields", f"{found} {fields}, not {wanted}", hint


def _diagnose_field(name: str, value: bytes) -> tuple[str, str, str | None] | None:
    said = f"{name} is {shown(value)!r}"
    bare = value.strip(_BLANKS)
    if name == LABEL:
        if _LABEL.fullmatch(bare):
            return None
        hint = (
            "If the first line names the columns, pass --header." if value[:1].isalpha() else None
        )
        return "bad label", f"{said}, not 0 or 1", hint
    if value == b"":
        return None
    if name in CONTINUOUS:
        if not _INTEGER.fullmatch(bare):
            return "bad integer", f"{said}, not an integer", None
        if int(bare) not in _INT64_RANGE:
            return "bad integer", f"{said}, which does not fit into 64 bits", None
        return None
    if _HEX.fullmatch(value):
        return None
    return "bad hex", f"{said}, not 8 hex digits", None
