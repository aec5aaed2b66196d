"""The fast way against a naive parser, and bad lines."""

import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from distrain.prep import raw_lines
from distrain.prep.bad_lines import BadLineTally, num_lines, shown
from distrain.prep.raw_lines import (
    RAW_COLUMNS,
    TextLayout,
    parse_lines,
    parse_plain,
    split_bad_lines,
)

TAB = TextLayout()
COMMA = TextLayout(delimiter=",")


@pytest.fixture(params=["plain lines in C", "Arrow alone"], autouse=True)
def fast_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Arrow alone":
        monkeypatch.setattr(raw_lines, "parse_plain", lambda *_: None)


def naive_rows(lines: list[bytes], delimiter: bytes = b"\t") -> list[dict[str, int | None]]:
    rows = []
    for line in lines:
        fields = line.split(delimiter)
        numbers = [int(f) if f else None for f in fields[:14]]
        categories = [int(f, 16) if f else None for f in fields[14:]]
        rows.append(dict(zip(RAW_COLUMNS, numbers + categories, strict=True)))
    return rows


def block_of(lines: list[bytes], end: bytes = b"\n") -> bytes:
    return b"".join(line + end for line in lines)


def with_field(line: bytes, column: str, value: bytes) -> bytes:
    fields = line.split(b"\t")
    fields[RAW_COLUMNS.index(column)] = value
    return b"\t".join(fields)


def test_the_kernel_takes_plain_lines_and_leaves_all_others(
    make_lines: Callable[..., list[bytes]],
) -> None:
    pytest.importorskip("distrain.prep._lines", reason="distrain was built without a compiler")
    lines = make_lines(9)
    assert parse_plain(block_of(lines), "\t", 9) is not None
    assert parse_plain(block_of(lines, b"\r\n"), "\t", 9) is not None
    assert parse_plain(block_of(lines)[:-1], "\t", 9) is not None
    assert parse_plain(block_of(lines), "\t", 8) is None
    assert parse_plain(block_of(lines), "\t", 10) is None
    assert parse_plain(block_of(lines), ",", 9) is None
    assert parse_plain(block_of(lines), "0", 9) is None
    for column, value in (("label", b"01"), ("I3", b" 1"), ("I3", b"1" * 19), ("C26", b"1\r2")):
        assert parse_plain(block_of([with_field(lines[0], column, value)]), "\t", 1) is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_good_lines_equal_the_naive_parser(
    make_lines: Callable[..., list[bytes]], end: bytes
) -> None:
    lines = make_lines(300)
    table = parse_lines(block_of(lines, end), TAB)
    assert table.to_pylist() == naive_rows(lines)
    assert table.schema.field("label").type == pa.int8()
    assert table.schema.field("I1").type == pa.int64()
    assert table.schema.field("C1").type == pa.uint32()
    unended = parse_lines(block_of(lines, end)[: -len(end)], TAB)
    assert unended.equals(table)
    commas = parse_lines(block_of(make_lines(300, delimiter=","), end), COMMA)
    assert commas.equals(table)


BAD = [
    ("empty line", None, b"", "the line is empty"),
    ("bad label", "label", b"2", "label is '2', not 0 or 1"),
    ("no label", "label", b"", "label is '', not 0 or 1"),
    ("bad label", "label", b"-1", "label is '-1'"),
    ("bad integer", "I2", b"4x", "I2 is '4x', not an integer"),
    ("bad integer", "I2", b"1.5", "I2 is '1.5', not an integer"),
    ("bad integer", "I13", b"0x1F", "I13 is '0x1F', not an integer"),
    ("bad integer", "I1", b"9223372036854775808", "does not fit into 64 bits"),
    ("bad integer", "I1", b"-" + b"9" * 5000, "does not fit into 64 bits"),
    ("bad integer", "I1", b"\xff\xfe", "not an integer"),
    ("bad integer", "I4", b"1\r2", "not an integer"),
    ("bad hex", "C1", b"1234567", "C1 is '1234567', not 8 hex digits"),
    ("bad hex", "C26", b"123456789", "not 8 hex digits"),
    ("bad hex", "C9", b"1234567g", "not 8 hex digits"),
    ("bad hex", "C9", b"-1234567", "not 8 hex digits"),
]


@pytest.mark.parametrize(("kind", "column", "value", "problem"), BAD)
def test_a_bad_line_is_found_and_named(
    make_lines: Callable[..., list[bytes]],
    kind: str,
    column: str | None,
    value: bytes,
    problem: str,
) -> None:
    lines = make_lines(20)
    bad = with_field(lines[6], column, value) if column else value
    block = block_of([*lines[:6], bad, *lines[7:]])
    assert parse_lines(block, TAB) is None
    good, found = split_bad_lines(block, TAB, stop_at_first=False)
    assert [(line.line, line.kind) for line in found] == [(7, kind)]
    assert problem in found[0].problem
    assert good == block_of(lines[:6] + lines[7:])


@pytest.mark.parametrize(
    ("change", "problem", "hint"),
    [
        (lambda line: line.partition(b"\t")[2], "39 fields, not 40", "Unlabelled test files"),
        (lambda line: line + b"\tmore", "41 fields, not 40", None),
        (lambda line: line.replace(b"\t", b","), "1 field, not 40", "--delimiter ','"),
        (lambda line: line[: len(line) // 2], "fields, not 40", "distrain prep INPUT --infer"),
    ],
)
def test_a_wrong_number_of_fields_is_explained(
    make_lines: Callable[..., list[bytes]],
    change: Callable[[bytes], bytes],
    problem: str,
    hint: str | None,
) -> None:
    block = change(make_lines(1)[0]) + b"\n"
    assert parse_lines(block, TAB) is None
    _, (bad,) = split_bad_lines(block, TAB, stop_at_first=False)
    assert bad.kind == "wrong number of fields"
    assert problem in bad.problem
    assert hint is None or hint in str(bad.hint)


def test_blanks_around_numbers_are_taken_either_way(
    make_lines: Callable[..., list[bytes]],
) -> None:
    line = with_field(with_field(make_lines(1)[0], "I2", b" 12 "), "label", b"01")
    table = parse_lines(line, TAB)
    assert (table["I2"][0].as_py(), table["label"][0].as_py()) == (12, 1)
    assert split_bad_lines(line, TAB, stop_at_first=False) == (line + b"\n", [])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_fast_and_the_slow_way_agree_on_mangled_lines(
    make_lines: Callable[..., list[bytes]], data: st.DataObject
) -> None:
    block = bytearray(block_of(make_lines(6)))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(block) - 1))
        block[place] = data.draw(st.sampled_from(b"0129afgxX-+. \t\n\r,\x00\xe9"))
    text = bytes(block)
    good, bad = split_bad_lines(text, TAB, stop_at_first=False)
    table = parse_lines(text, TAB)
    if bad:
        assert table is None
        table = parse_lines(good, TAB)
    assert table is not None
    assert table.num_rows == num_lines(text) - len(bad)
    lines = [line.removesuffix(b"\r") for line in good.splitlines(keepends=False)]
    assert table.to_pylist() == naive_rows([re.sub(rb" ", b"", line) for line in lines])


def test_tallies_add_up_and_keep_the_first_examples(
    make_lines: Callable[..., list[bytes]],
) -> None:
    lines = [with_field(line, "I1", b"no") for line in make_lines(4)]
    _, bad = split_bad_lines(block_of(lines), TAB, stop_at_first=False)
    tally = BadLineTally.of(bad).shifted("a.tsv", 0)
    both = tally.merged(BadLineTally.of([*bad, *bad]).shifted("a.tsv", 4))
    assert both.count == 12
    assert both.by_kind == {"bad integer": 12}
    assert [example.line for example in both.examples] == [1, 2, 3, 4, 5]
    _, first = split_bad_lines(block_of(lines), TAB, stop_at_first=True)
    assert len(first) == 1


def test_a_shown_line_fits_on_the_screen() -> None:
    assert shown(b"1\t2\x1b[31m") == "1 2?[31m"
    assert len(shown(b"x" * 500)) == 72
    assert shown(b"\xff") == r"\xff"
