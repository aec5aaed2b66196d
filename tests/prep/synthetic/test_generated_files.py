import gzip
import hashlib
import json
from functools import cache, partial

import pyarrow.parquet as pq
import pytest

from distrain.errors import InputError, OutputError
from distrain.prep.synthetic.draw import CHUNK_ROWS
from distrain.prep.synthetic.generate import SynthRequest, generate
from distrain.prep.synthetic.planted import PlantedModel

ROWS = CHUNK_ROWS + 1_500


def digest(folder):
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()


def text_of(folder, split="train"):
    return b"".join(file.read_bytes() for file in sorted(folder.glob(f"{split}-*")))


@pytest.fixture(scope="module", autouse=True)
def fitted_once():
    """Most of a small request's time is what the planted model is fitted to: 65,536 rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlantedModel, "fit", cache(PlantedModel.fit))
        yield


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    out = tmp_path_factory.mktemp("synth") / "one"
    generate(SynthRequest(out, ROWS, valid_rows=300))
    return out


@pytest.mark.parametrize("file_format", ["tsv.gz", "parquet"])
def test_equal_requests_give_equal_bytes(tmp_path, file_format):
    for name in "ab":
        generate(SynthRequest(tmp_path / name, 700, 50, format=file_format, files=3))
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_neither_files_nor_row_counts_change_the_rows(tmp_path, one_file):
    generate(SynthRequest(tmp_path / "cut", ROWS, valid_rows=300, files=7))
    assert len(list((tmp_path / "cut").glob("train-*.tsv"))) == 7
    assert text_of(tmp_path / "cut") == text_of(one_file)
    assert text_of(tmp_path / "cut", "valid") == text_of(one_file, "valid")
    generate(SynthRequest(tmp_path / "short", 500))
    assert text_of(one_file).startswith(text_of(tmp_path / "short"))


def test_every_format_holds_the_same_rows(tmp_path, one_file):
    lines = text_of(one_file).decode().splitlines()[:800]
    generate(SynthRequest(tmp_path / "gz", 800, format="tsv.gz", files=2))
    unpacked = b"".join(
        gzip.decompress(file.read_bytes()) for file in sorted((tmp_path / "gz").glob("*.gz"))
    )
    assert unpacked.decode().splitlines() == lines
    generate(SynthRequest(tmp_path / "pq", 800, format="parquet", files=2))
    rows = [
        "\t".join("" if value is None else str(value) for value in row.values())
        for file in sorted((tmp_path / "pq").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert rows == lines
    types = pq.read_schema(tmp_path / "pq" / "train-00000.parquet").types
    assert [str(t) for t in types] == ["int32"] + ["int64"] * 13 + ["string"] * 26


def test_the_truth_is_written_beside_the_data(one_file):
    document = json.loads((one_file / "planted.json").read_text())
    labels = [line[:1] for line in text_of(one_file).decode().splitlines()]
    train = document["splits"]["train"]
    assert train["rows"] == ROWS
    assert train["clicks"] == labels.count("1")
    assert train["files"] == ["train-00000.tsv"]
    assert document["splits"]["valid"]["rows"] == 300
    assert 0.78 < train["bayes_auc"] < 0.82
    assert document["seed"] == 0


def test_progress_ends_at_the_total(tmp_path):
    told = []
    generate(SynthRequest(tmp_path / "out", 1000, 200, files=2), told.append)
    assert [(p.split, p.rows_done) for p in told] == [
        ("train", 500),
        ("train", 1000),
        ("valid", 1100),
        ("valid", 1200),
    ]
    assert {p.rows_total for p in told} == {1200}


def test_a_single_row_is_a_data_set(tmp_path):
    result = generate(SynthRequest(tmp_path / "out", 1))
    assert result.splits["train"].rows == 1
    assert result.splits["train"].realised_auc is None
    assert len(text_of(tmp_path / "out").splitlines()) == 1


def test_every_mistake_of_a_request_is_told(wording):
    wording.refused(
        InputError,
        partial(
            SynthRequest, "out", 0, -1, seed=-1, scale=0, click_rate=1.0, format="csv", files=0
        ),
    )
    wording.refused(InputError, partial(SynthRequest, "out", 4, files=5))


def test_overwriting_replaces_ours_and_nothing_else(tmp_path, wording):
    out = tmp_path / "out"
    generate(SynthRequest(out, 10, files=2))
    wording.refused(OutputError, lambda: generate(SynthRequest(out, 20)))
    generate(SynthRequest(out, 20, overwrite=True))
    assert sorted(file.name for file in out.iterdir()) == ["planted.json", "train-00000.tsv"]
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "photo.jpg").write_text("precious")
    wording.refused(OutputError, lambda: generate(SynthRequest(foreign, 20, overwrite=True)))
    assert (foreign / "photo.jpg").read_text() == "precious"
