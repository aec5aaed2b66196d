"""The first lines of text: what is no header is told as what it is, with what mends it."""

from pathlib import Path

import pytest
from wording import Wording

from distrain.errors import DataError
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.table_file import look_at

BODY = "".join(f"n{number},{number},{number % 2}\n" for number in range(50))
HEADER = "name,price,y\n"


def looked_at(folder: Path, content: str, **text: object) -> list[str]:
    path = folder / "t.csv"
    path.write_bytes(content.encode())
    return list(look_at(str(path), path.stat().st_size, FormatSpec.model_validate(text)).types)


@pytest.mark.parametrize(
    ("content"),
    [
        ((HEADER + BODY).replace("\n", "\r")),
        ("name,pri\rce,y\n" + BODY),
        ("\n\n" + HEADER + BODY),
        (",,\n" + HEADER + BODY),
        ("name,y," + "x" * 200_000 + "\n" + BODY),
    ],
)
def test_a_first_line_that_is_no_header_is_told_with_what_mends_it(
    tmp_path: Path, content: str, wording: Wording
) -> None:
    caught = wording.refused(DataError, lambda: looked_at(tmp_path, content))
    assert str(tmp_path / "t.csv") == caught.where["file"]
    assert len(str(caught)) < 500


def test_first_lines_that_are_headers_or_rows_stay_so(tmp_path: Path) -> None:
    assert looked_at(tmp_path, "#id,price,y\n" + BODY) == ["#id", "price", "y"]
    assert looked_at(tmp_path, "\ufeff" + HEADER.replace("\n", "\r\n") + BODY)[0] == "name"
    names = ["a", "b", "c"]
    assert looked_at(tmp_path, "\n" + BODY, header=False, names=names) == names
    assert looked_at(tmp_path, 'a"b;c\n' + BODY, quote=None, delimiter=";") == ['a"b', "c"]
