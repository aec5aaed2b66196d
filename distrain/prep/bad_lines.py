"""Lines of text that cannot be used: the problem of each line, and counts by kind of problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from distrain.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark, which some programs write at the start of a file."""

NO_LABEL = "no label"
"""The kind of bad lines that lack only their label."""
_MAX_EXAMPLES = 5
_SHOWN_CHARS = 72


def num_lines(block: bytes) -> int:
    """Return the number of lines in a block; the last may lack its line end."""
    return block.count(b"\n") + (not block.endswith(b"\n") if block else 0)


def shown(content: bytes) -> str:
    """Return a line as printable text, cut to 72 characters."""
    text = content.decode("utf-8", "backslashreplace").replace("\t", " ")
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


@dataclass(frozen=True)
class BadLine:
    """A line of text that is not a valid row."""

    line: int  # the line's number, from 1: in the block, and after `at` in the file
    kind: str  # the kind of the problem in few words, by which bad lines are counted
    problem: str  # the column, its value and the expected value
    text: str  # the line, cut to fit on a screen
    hint: str | None = None  # the likely cause, if known
    file: str = ""  # the file's name, set by `at`

    def at(self, file: str, lines_before: int) -> BadLine:
        """Return the bad line with the name of its file, and with its number in the file.

        `lines_before` is the number of lines of the file before the block in which the line's
        number was counted.
        """
        return replace(self, file=file, line=self.line + lines_before)

    def error(self) -> DataError:
        """Return the `DataError` for a caller that stops at this line."""
        return DataError(
            self.problem,
            where={"file": self.file, "line": self.line, "content": self.text},
            hint=self.hint or "Correct the line, or pass --bad-lines skip to drop such lines.",
        )


@dataclass(frozen=True)
class BadLineTally:
    """The number of bad lines of each kind, and the first five bad lines as examples."""

    by_kind: dict[str, int] = field(default_factory=dict)
    examples: tuple[BadLine, ...] = ()

    @property
    def count(self) -> int:
        """The number of bad lines."""
        return sum(self.by_kind.values())

    @property
    def causes(self) -> str:
        """The number of bad lines of each kind as text, the most frequent kind first."""
        kinds = sorted(self.by_kind.items(), key=lambda kind: -kind[1])
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds)

    @property
    def where(self) -> dict[str, object]:
        """The entries for an error's `where`: counts by kind, and the first bad line.

        `{}` without bad lines.
        """
        if not self.count:
            return {}
        first = self.examples[0]
        description = f"{first.file}, line {first.line}: {first.problem}"
        return {"bad lines": self.causes, "first": description}

    def check_share(self, num_rows: int, most: float) -> None:
        """Raise a `DataError` if the share of bad lines among all lines exceeds `most`.

        `num_rows` is the number of good lines.
        """
        num_lines = num_rows + self.count
        if self.count <= most * num_lines:
            return
        hint = "Correct the lines or the document; if they may be dropped, raise --max-bad."
        if max(self.by_kind, key=lambda kind: self.by_kind[kind]) == NO_LABEL:
            hint = (
                "In a features document `target: {column: ..., missing: drop}` drops rows "
                "without a label; otherwise raise --max-bad."
            )
        raise DataError(
            f"{self.count:,} of {num_lines:,} lines ({self.count / num_lines:.1%}) cannot be used, "
            f"more than the {most:.1%} of --max-bad",
            where=self.where,
            hint=hint,
        )

    @classmethod
    def of(cls, lines: Iterable[BadLine]) -> BadLineTally:
        """Return the tally of some bad lines."""
        lines = list(lines)
        return cls(dict(Counter(line.kind for line in lines)), tuple(lines[:_MAX_EXAMPLES]))

    def merged(self, later: BadLineTally) -> BadLineTally:
        """Return the sum of this tally and `later`, whose lines come after this tally's lines."""
        return BadLineTally(
            dict(Counter(self.by_kind) + Counter(later.by_kind)),
            (*self.examples, *later.examples)[:_MAX_EXAMPLES],
        )

    def shifted(self, file: str, lines_before: int) -> BadLineTally:
        """Return the tally, with the file's name and line numbers in the file for its examples.

        The examples' lines were numbered from the start of a block. `lines_before` is the number of
        the file's lines before that block.
        """
        return replace(self, examples=tuple(e.at(file, lines_before) for e in self.examples))
