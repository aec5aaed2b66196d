"""Reads the first lines of text: their encoding, delimiter and header."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from typing import Any

from distrain.errors import DataError
from distrain.prep.features.document import FormatSpec
from distrain.prep.text_files.compressed import Inflated, read_errors
from distrain.storage.inputs import open_input
from distrain.storage.retrying import RETRY_S

_HEAD_BYTES = 1 << 20
_PROBED_LINES = 1000
_OTHER_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_SHOWN_CHARS = 72
_DELIMITERS = ",\t;|"


def header_of(
    path: str, lines: list[str], text: FormatSpec, may_lack: str | None = None
) -> tuple[str, list[str]]:
    """Return the delimiter of CSV and the names of its columns.

    A file without a header may lack the column `may_lack` of `format.names`. Raises a `DataError`
    if the first line should name the columns but does not, or if a value spans several lines.
    """
    if text.header:
        _refuse_no_header(path, lines, text)
    delimiter = text.delimiter or _guessed_delimiter(lines[0])
    names = list(text.names)
    if text.header:
        names = _fields(path, lines[0], delimiter, text)
        if not any(names):
            raise _no_header(path, "holds no names", lines, 1)
    elif may_lack in names and len(_fields(path, lines[0], delimiter, text)) == len(names) - 1:
        names.remove(may_lack)
    _refuse_lines_inside_values(path, lines, delimiter, text)
    return delimiter, names


def _refuse_no_header(path: str, lines: list[str], text: FormatSpec) -> None:
    first = lines[0].strip().lower()
    if not first:
        blank = next(number for number, line in enumerate(lines) if line.strip())
        raise _no_header(path, "is blank", lines, blank)


def _no_header(path: str, problem: str, lines: list[str], num_lines: int) -> DataError:
    return DataError(
        f"the first line {problem}; it should name the columns",
        where={"file": path, "line": 1, "content": lines[0][:_SHOWN_CHARS]},
        hint=f"Remove it: tail -n +{num_lines + 1} FILE > NEW. For a file without names set "
        "format.header to false, and format.names.",
    )


def _fields(path: str, line: str, delimiter: str, text: FormatSpec) -> list[str]:
    options: dict[str, Any] = {"delimiter": delimiter, "escapechar": text.escape}
    options |= {"quotechar": text.quote} if text.quote else {"quoting": csv.QUOTE_NONE}
    try:
        return next(csv.reader([line], **options))
    except csv.Error as error:
        where = {"file": path, "line": 1, "content": line[:_SHOWN_CHARS].replace("\r", "?")}
        problem, hint = f"the first line cannot be read: {error}", "Does it name the columns?"
        if "\r" in line:
            problem = "the first line contains a carriage return"
            hint = "Lines end with \\n or \\r\\n; write the file again."
        raise DataError(problem, where=where, hint=hint) from None


def first_lines(path: str, codec: str | None, encoding: str) -> list[str]:
    """Return a text file's first lines, at most 1,000, without line ends.

    Bytes that `encoding` does not allow are replaced. Raises a `DataError` if the file cannot be
    read or decompressed, has no lines, or is not text with line ends of single bytes (unlike
    UTF-16), and `Unavailable` if the storage does not answer. `codec` is the file's compression,
    `gzip` or `zstd`; `None` for plain text.
    """
    with read_errors(path), open_input(path, retry_s=RETRY_S) as handle:
        source = handle if codec is None else Inflated(handle, path, codec)
        head = source.read(_HEAD_BYTES)
    _refuse_other_encodings(path, head)
    lines = head.decode(encoding, "replace").removeprefix("\ufeff").split("\n")
    if len(head) == _HEAD_BYTES and len(lines) > 1:
        lines.pop()  # the last line may be incomplete
    lines = [line.removesuffix("\r") for line in lines[:_PROBED_LINES]]
    if b"\r" in head and b"\n" not in head:
        raise DataError(
            "its lines end with carriage returns only",
            where={"file": path},
            hint=r"Old programs write such lines; convert them: tr '\r' '\n' < FILE > NEW",
        )
    if not any(line.strip() for line in lines):
        raise DataError("the file holds no lines", where={"file": path})
    if "\0" in lines[0]:
        raise DataError(
            "neither parquet nor text",
            where={"file": path},
            hint="Text must be UTF-8, or in the encoding of format.encoding.",
        )
    return lines


def _refuse_other_encodings(path: str, head: bytes) -> None:
    """Raise a `DataError` if the first bytes of a file, `head`, mark UTF-16 or UTF-32.

    Their line ends are not single bytes, so tasks could not find them.
    """
    name = next((name for mark, name in _OTHER_MARKS.items() if head.startswith(mark)), None)
    if name is None:
        return
    raise DataError(
        f"the file is encoded as {name}, which is not supported",
        where={"file": path},
        hint=f"Convert it: `iconv -f {name} -t UTF-8 FILE`. Supported encodings (format.encoding): "
        "UTF-8, latin-1 and cp1252.",
    )


def _refuse_lines_inside_values(
    path: str, lines: list[str], delimiter: str, text: FormatSpec
) -> None:
    """Raise a `DataError` if a quoted value in the first lines contains a line end.

    Other mistakes in the lines are ignored here; they are reported when the rows are read.
    """
    if text.quote is None:
        return
    reader = csv.reader(
        (line + "\n" for line in lines),
        delimiter=delimiter,
        quotechar=text.quote,
        escapechar=text.escape,
    )
    before = 0
    with suppress(csv.Error):  # errors are reported when the rows are read
        for row in reader:
            if reader.line_num > before + 1 and any("\n" in value for value in row):
                raise DataError(
                    f"a quoted value spans {reader.line_num - before} lines",
                    where={"file": path, "line": before + 1, "content": lines[before][:72]},
                    hint="Files are cut at line ends, so values cannot contain one: write it "
                    "without them, or as parquet. If quotes are text, set format.quote to null.",
                )
            before = reader.line_num


def _guessed_delimiter(line: str) -> str:
    plain = re.sub(r'"[^"]*"', "", line)  # quoted names may contain delimiters
    return max(_DELIMITERS, key=plain.count) if any(d in plain for d in _DELIMITERS) else ","
