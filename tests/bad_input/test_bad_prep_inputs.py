"""`distrain prep` on bad text and bad parquet: the file, the line and the value are named."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged import (
    BAD_ROW,
    assert_nothing_left,
    assert_one_screen,
    changed,
    converted,
    cut_short,
    flip_bytes,
    tell,
    without,
    write_rows,
)

from distrain.prep.synthetic.generate import SynthRequest, generate
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS

pytestmark = pytest.mark.usefixtures("cluster_here")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Good raw lines."""
    folder = tmp_path_factory.mktemp("synth") / "raw"
    generate(SynthRequest(folder, rows=300, scale=0.001))
    return tuple((folder / "train-00000.tsv").read_text().splitlines())


@pytest.fixture
def raw(tmp_path: Path, lines: tuple[str, ...]) -> Path:
    """A good raw text file."""
    path = tmp_path / "day.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def raw_parquet(tmp_path: Path, lines: tuple[str, ...]) -> Path:
    """The same values in parquet."""
    names = ("label", *CONTINUOUS, *CATEGORICAL)
    fields = zip(names, zip(*(line.split("\t") for line in lines), strict=True), strict=True)
    columns = {
        name: [None if v == "" else v if name in CATEGORICAL else int(v) for v in values]
        for name, values in fields
    }
    path = tmp_path / "day.parquet"
    write_rows(pa.table(columns), path)
    return path


def prep_badly(
    capsys: pytest.CaptureFixture[str], source: Path, *culprits: object, options: tuple = ()
) -> None:
    """The command complains and leaves nothing."""
    out = source.parent / "out"
    done = tell(capsys, "prep", source, "--out", out, *options)
    assert_one_screen(done, 1, source, *culprits)
    assert_nothing_left(out)


def field(column: str, value: str) -> Callable[[str], str]:
    """Changes one field of a line."""
    place = ("label", *CONTINUOUS, *CATEGORICAL).index(column)

    def change(line: str) -> str:
        fields = line.split("\t")
        return "\t".join([*fields[:place], value, *fields[place + 1 :]])

    return change


@pytest.mark.parametrize(
    ("change", "culprits"),
    [
        (field("label", "2"), ["label is '2', not 0 or 1"]),
        (field("label", ""), ["label is ''"]),
        (field("I5", "1.5"), ["I5 is '1.5', not an integer"]),
        (field("C9", "not hex"), ["C9 is 'not hex', not 8 hex digits"]),
        (lambda line: line.rsplit("\t", 1)[0], ["39 fields, not 40"]),
        (lambda line: line + "\t7", ["41 fields, not 40"]),
        (lambda line: "", ["the line is empty"]),
        (lambda line: line[:100] + "\x00\x1b[31m" + line[100:], ["not 8 hex digits"]),
        (lambda line: "x" * 5000, ["1 field, not 40"]),
    ],
)
def test_a_bad_line_is_named(
    raw: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str], str],
    culprits: list[str],
) -> None:  # fmt: skip
    lines = raw.read_text().splitlines()
    lines[BAD_ROW] = change(lines[BAD_ROW])
    raw.write_text("\n".join(lines) + "\n")
    prep_badly(capsys, raw, f"line: {BAD_ROW + 1}", *culprits)


@pytest.mark.parametrize("content", [b"\n", b"\n\n\n", bytes(range(256)) * 20])
def test_a_file_without_a_row(
    raw: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    raw.write_bytes(content)
    prep_badly(capsys, raw)


def test_a_truncated_gzip_file(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = raw.with_suffix(".tsv.gz")
    packed.write_bytes(gzip.compress(raw.read_bytes()))
    cut_short(packed)
    prep_badly(capsys, packed, "gzip")


@pytest.mark.parametrize(
    ("inflict", "culprits"),
    [
        (cut_short, ["cannot be read"]),
        (lambda path: path.write_bytes(b"PAR1"), ["cannot be read"]),
        (lambda path: path.write_text("no parquet\n" * 50), ["not a parquet file"]),
        (without("C7"), ["column C7: missing"]),
        (without("label"), ["column label: missing"]),
        (converted("I3", pa.string()), ["column I3: string, not a number"]),
        (changed("label", 2), ["the label is 2, not 0 or 1", "column: label", "150"]),
        (changed("label", None), ["the label is missing", "column: label", "150"]),
        (flip_bytes("I3", in_header=False), ["cannot be read", "CRC"]),
        (flip_bytes("I3", in_header=True), ["cannot be read"]),
        (lambda path: write_rows(pq.read_table(path)[:0], path), ["no usable rows"]),
    ],
)
def test_bad_parquet(
    raw_parquet: Path, capsys: pytest.CaptureFixture[str], inflict: Callable[[Path], object],
    culprits: list[str],
) -> None:  # fmt: skip
    inflict(raw_parquet)
    prep_badly(capsys, raw_parquet, *culprits)


def test_a_failure_keeps_what_was_there(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = raw.parent / "out"
    out.mkdir()
    (out / "old").write_text("kept")
    raw.write_text(raw.read_text() + "last\n")
    done = tell(capsys, "prep", raw, "--out", out, "--overwrite")
    assert_one_screen(done, 1, raw, "line: 301")
    assert [path.name for path in out.iterdir()] == ["old"]
