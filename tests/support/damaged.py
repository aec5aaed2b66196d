"""Files damaged in every way that bad input comes, and what a command must say about them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_jobs import CARDINALITIES, draw_rows

from distrain.cli.main import main
from distrain.schema import criteo_schema

ROWS, ROW_GROUP_ROWS = 300, 100
BAD_ROW = 150
"""In row group 1, its row 50."""

MOST_LINES, LONGEST_LINE = 24, 250  # a line may list all models


def write_small(root: Path) -> Path:
    """A folder as `distrain prep` leaves it, of one small file per split."""
    for split, seed in (("train", 1), ("valid", 2)):
        (root / split).mkdir(parents=True)
        write_rows(draw_rows(ROWS, seed), root / split / "part-0.parquet")
    criteo_schema(CARDINALITIES).save(root / "schema.pbtxt")
    return root


def write_rows(rows: pa.Table, path: Path, **settings: Any) -> None:
    """Write rows the way `distrain prep` does."""
    settings = {"compression": "lz4", "write_page_checksum": True, **settings}
    pq.write_table(rows, path, row_group_size=ROW_GROUP_ROWS, **settings)


@dataclass(frozen=True)
class Damage:
    """One way in which a prepared file goes bad.

    Attributes:
        name: In words.
        inflict: Damages the good file at a path.
        culprits: What the complaint must name, besides the file.
    """

    name: str
    inflict: Callable[[Path], object]
    culprits: tuple[str, ...]


def changed(column: str, value: object, **settings: Any) -> Callable[[Path], None]:
    """One value changed, in row `BAD_ROW`."""

    def inflict(path: Path) -> None:
        rows = pq.read_table(path)
        values = rows[column].to_pylist()
        values[BAD_ROW] = value
        _replace(path, rows, column, pa.array(values, rows[column].type), **settings)

    return inflict


def converted(column: str, kind: pa.DataType) -> Callable[[Path], None]:
    """A column of another type."""

    def inflict(path: Path) -> None:
        rows = pq.read_table(path)
        _replace(path, rows, column, rows[column].cast(kind))

    return inflict


def without(column: str) -> Callable[[Path], None]:
    """A column left out."""
    return lambda path: write_rows(pq.read_table(path).drop_columns([column]), path)


def cut_short(path: Path) -> None:
    """A file whose second half is missing."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_bytes(column: str, *, in_header: bool) -> Callable[[Path], None]:
    """Bytes of a column's first page in row group 1 turned over, or those of its header."""

    def inflict(path: Path) -> None:
        group = pq.read_metadata(path).row_group(1)
        chunk = next(
            group.column(i)
            for i in range(group.num_columns)
            if group.column(i).path_in_schema == column
        )
        data = bytearray(path.read_bytes())
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        start, length = (first, 8) if in_header else (first + 100, 16)
        data[start : start + length] = bytes(b ^ 0xFF for b in data[start : start + length])
        path.write_bytes(data)

    return inflict


def _replace(path: Path, rows: pa.Table, column: str, values: Any, **settings: Any) -> None:
    index = rows.column_names.index(column)
    write_rows(rows.set_column(index, column, values), path, **settings)


_UNTOLD = {"write_statistics": False}
_TOO_LARGE = CARDINALITIES["C2"]
_BAD_GROUP = "row group: 1"

FOOTER_DAMAGES = (
    Damage("missing file", Path.unlink, ("no such file",)),
    Damage("empty file", lambda path: path.write_bytes(b""), ("the file is empty (0 bytes)",)),
    Damage("truncated", cut_short, ("not a complete parquet file",)),
    Damage(
        "text", lambda path: path.write_text("label,I1\n" * 50), ("not a complete parquet file",)
    ),
    Damage("no rows", lambda path: write_rows(draw_rows(0, 1), path), ("no rows",)),
    Damage("missing column", without("C7"), ("column 'C7' is missing",)),
    Damage("missing label", without("label"), ("column 'label' is missing",)),
    Damage("text for ids", converted("C7", pa.string()), ("'C7' has type string", "integer ids")),
    Damage("floats for ids", converted("C7", pa.float32()), ("'C7' has type float", "integer ids")),
    Damage("text for numbers", converted("I3", pa.string()), ("'I3' has type string", "numbers")),
    Damage(
        "id too large",
        changed("C2", _TOO_LARGE),
        (f"id {_TOO_LARGE} of column 'C2' is not in 0..{_TOO_LARGE - 1}", _BAD_GROUP),
    ),
    Damage("negative id", changed("C2", -1), ("id -1 of column 'C2'", _BAD_GROUP)),
    Damage("null", changed("C2", None), ("column 'C2' has 1 nulls", _BAD_GROUP)),
    Damage("infinity", changed("I1", float("inf")), ("column 'I1' holds inf", _BAD_GROUP)),
    Damage(
        "label 2", changed("label", 2.0), ("'label' is 2.0, not 0 or 1", _BAD_GROUP),
    ),
)  # fmt: skip
"""What the footers tell, before anything is started."""

_BAD_PLACE = (_BAD_GROUP, "row in the group: 50")

ROW_DAMAGES = (
    Damage(
        "label 0.5",
        changed("label", 0.5),
        ("'label' is 0.5, not 0 or 1", "column: label", *_BAD_PLACE),
    ),
    Damage(
        "label 2 without statistics",
        changed("label", 2.0, **_UNTOLD),
        ("'label' is 2.0, not 0 or 1", "column: label", *_BAD_PLACE),
    ),
    Damage(
        "id too large without statistics",
        changed("C2", _TOO_LARGE, **_UNTOLD),
        (f"id {_TOO_LARGE} of column 'C2'", "column: C2", "another run of prep", *_BAD_PLACE),
    ),
    Damage(
        "null without statistics",
        changed("C2", None, **_UNTOLD),
        ("column 'C2' holds a null", "column: C2", *_BAD_PLACE),
    ),
    Damage(  # no statistics tell of NaN: it is neither the least nor the greatest
        "NaN",
        changed("I3", float("nan")),
        ("column 'I3' holds nan", "column: I3", *_BAD_PLACE),
    ),
    Damage(
        "damaged page",
        flip_bytes("I3", in_header=False),
        ("could not read a row group", "column: I3", _BAD_GROUP),
    ),
    Damage(
        "damaged page header",
        flip_bytes("I3", in_header=True),
        ("could not read a row group", "column: I3", _BAD_GROUP),
    ),
)
"""What only the rows tell, when they are read."""


@dataclass(frozen=True)
class Told:
    """What a command said."""

    exit_code: int
    stdout: str
    stderr: str


def tell(capsys: pytest.CaptureFixture[str], *words: object) -> Told:
    """Run the command line in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return Told(int(ended.value.code or 0), said.out, said.err)


def assert_one_screen(
    done: Told | CompletedProcess[str], exit_code: int, *culprits: object, hint: bool = True
) -> None:
    """The command ended with this code and one screen of words that name the culprits."""
    code = done.exit_code if isinstance(done, Told) else done.returncode
    story = f"exit code {code}\n{done.stdout}\n{done.stderr}"
    assert code == exit_code, story
    lines = done.stderr.splitlines()
    said = done.stderr + (done.stdout or "")
    assert lines, story
    assert lines[0].startswith("error: "), story
    assert len(lines) <= MOST_LINES, story
    assert max(map(len, lines)) <= LONGEST_LINE, story
    assert all(line.isprintable() for line in lines), story
    assert "Traceback" not in said, story
    for culprit in culprits:
        assert str(culprit) in done.stderr, f"{culprit!r} is not named\n{story}"
    if hint:
        assert re.search(r"^ {2,3}hint: \S", done.stderr, re.MULTILINE), story


def assert_nothing_left(out: Path) -> None:
    """No output under its final name, and nothing unfinished beside it."""
    assert not out.exists()
    if out.parent.is_dir():
        left = [path.name for path in out.parent.iterdir() if ".partial-" in path.name]
        assert not left
