"""The first lines of text: what is no header is told as what it is, with what mends it."""

import errno
import gzip
import io
from pathlib import Path
from unittest.mock import MagicMock, Mock, patch

import pytest
from wording import Wording

from distrain.errors import DataError
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.inference.infer import infer_features
from distrain.prep.features.table_file import look_at
from distrain.prep.features.text_head import first_lines
from distrain.storage.inputs import list_inputs

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


@pytest.mark.parametrize("first", ["# made, 2024-05-01\n", "sep=;\n"])
def test_a_file_without_rows_is_reported_with_the_names_in_its_first_line(
    tmp_path: Path, first: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(first + HEADER + BODY)
    with pytest.raises(DataError) as caught:
        infer_features(list_inputs([str(path)]))
    assert first[:4] in str(caught.value.where["columns here"])


def test_a_file_whose_first_bytes_cannot_be_read_or_decompressed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + BODY).encode())[:-20])
    with pytest.raises(DataError, match="gzip file cannot be decompressed") as caught:
        infer_features(list_inputs([str(path)]))
    assert caught.value.where["file"] == str(path)
    broken = Mock(spec=io.BytesIO, read=Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    opened = MagicMock(__enter__=Mock(return_value=broken), __exit__=Mock(return_value=None))
    with (
        patch("distrain.prep.features.text_head.open_input", return_value=opened),
        pytest.raises(DataError, match=r"could not be read: .*Input/output error") as caught,
    ):
        first_lines("t.csv", None, "utf-8")
    assert caught.value.where == {"file": "t.csv"}
