"""`distrain prep` on bad parquet: the file, the row and the value are named."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged import (
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


@pytest.mark.parametrize(
    ("inflict", "culprits"),
    [
        (cut_short, ["cannot be read"]),
        (lambda path: path.write_bytes(b"PAR1"), ["cannot be read"]),
        (lambda path: path.write_text("no parquet\n" * 50), ["not a parquet file"]),
        (without("C7"), ["column C7: missing"]),
        (without("label"), ["column label: missing"]),
        (converted("I3", pa.string()), ["column I3: string, not a number"]),
        (changed("label", 2), ["label is 2", "column: label", "150"]),
        (changed("label", None), ["label is missing", "column: label", "150"]),
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
