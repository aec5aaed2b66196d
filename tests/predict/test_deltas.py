"""Deltas of exports: a base and its deltas are the whole export, and no other order is taken."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.predict.serving.deltas import DamagedExport, WrongDelta, apply_deltas, signed
from distrain.predict.serving.folder import write_manifest
from distrain.predict.serving.make_delta import previous_export, write_delta
from distrain.predict.serving.program import write_vocabulary
from distrain.prep.vocabulary import Vocabulary

WIDTHS = {"shop": 3, "user": 8, "shop.steps": 2}
words = st.lists(st.text("ab", max_size=2), max_size=6, unique=True)
states = st.fixed_dictionaries(
    {
        "tables": st.dictionaries(
            st.sampled_from(sorted(WIDTHS)), st.lists(st.integers(0, 2), max_size=6), max_size=3
        ),
        "dense": st.binary(max_size=5),
        "texts": words,
        "numbers": st.lists(st.integers(-2, 2), max_size=5, unique=True),
        "items": st.none() | st.binary(max_size=3),
        "has_names": st.booleans(),
    }
)


def export(folder: Path, state: dict[str, Any]) -> Path:
    """A folder as `distrain export` makes it, of made-up bytes."""
    (folder / "vocabularies").mkdir(parents=True)
    places, content = [], state["dense"]
    for name, rows in state["tables"].items():
        table, _, part = name.partition(".")
        at = {"table": table, "part": part or "codes", "file": "model.onnx.data"}
        at |= {"offset": len(content), "rows": len(rows), "row_bytes": WIDTHS[name]}
        places.append(at)
        content += b"".join(bytes([row] * WIDTHS[name]) for row in rows) + b"--"
    (folder / "model.onnx").write_bytes(state["dense"][:1])
    (folder / "model.onnx.data").write_bytes(content)
    described = {"tables": {"form": "int8", "places": places}}
    (folder / "inputs.json").write_text(json.dumps(described))
    if state["items"] is not None:
        (folder / "items.parquet").write_bytes(state["items"])
    vocabularies = {"number": pa.array(state["numbers"], pa.int64())}
    if state["has_names"]:
        vocabularies["name.of"] = pa.array(state["texts"], pa.string())
    for name, values in vocabularies.items():
        vocabulary = Vocabulary(values, pa.nulls(len(values), pa.int64()))
        write_vocabulary(folder / "vocabularies", name, vocabulary)
    if state["numbers"]:
        numbers = np.array(state["numbers"], np.float64)
        np.save(folder / "vocabularies" / "number.numbers.npy", numbers)
    write_manifest(folder, {"model": "model.onnx"})
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def delta_of(path: Path, since: Path, after: Path) -> Path:
    with previous_export(since) as before:
        write_delta(path, since, before, after)
    return path


@settings(max_examples=20, deadline=None)
@given(st.lists(states, min_size=2, max_size=5), st.data())
def test_a_base_and_its_deltas_are_the_whole_export_in_their_order_alone(
    tmp_path_factory: pytest.TempPathFactory, trained: list[dict[str, Any]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("exports")
    whole = [export(root / f"e{n}", state) for n, state in enumerate(trained)]
    versions = [json.loads((one / "manifest.json").read_text())["version"] for one in whole]
    deltas: list[Path] = []
    for number, after in enumerate(whole[1:], 1):
        since = whole[number - 1]
        if deltas and data.draw(st.booleans()):
            since = deltas[-1]
        deltas.append(delta_of(root / f"d{number}", since, after))
    first = data.draw(st.integers(0, len(whole) - 1))
    chosen = data.draw(
        st.lists(st.integers(1, len(deltas)), max_size=4)
        | st.integers(first, len(deltas)).map(lambda last: list(range(first + 1, last + 1)))
    )
    given_deltas = [deltas[number - 1] for number in chosen]
    at, wrong = versions[first], None
    for number in chosen:
        if versions[number - 1] != at:
            wrong = f"d{number}"
            break
        at = versions[number]
    if wrong is not None:
        with pytest.raises(WrongDelta, match=wrong):
            apply_deltas(root / "out", whole[first], given_deltas)
        assert not (root / "out").exists()
        assert not list(root.glob(".out*"))
        return
    apply_deltas(root / "out", whole[first], given_deltas)
    assert content_of(root / "out") == content_of(whole[versions.index(at)])


STATE: dict[str, Any] = {
    "tables": {"shop": [1] * 1000, "shop.steps": [1] * 1000, "user": [2] * 1000},
    "dense": b"12345",
    "texts": [f"t{n}" for n in range(3, 1000)],
    "numbers": [],
    "items": None,
    "has_names": True,
}


def changed(**parts: Any) -> dict[str, Any]:
    return STATE | parts


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """`e0` to `e2` whole, and the deltas `d1` and `d2`."""
    shop, user = STATE["tables"]["shop"], STATE["tables"]["user"]
    tables = {"shop": [*shop[:7], 9, *shop[8:], 3], "user": user[:-2]}
    texts = [*STATE["texts"][:2], "n5", *STATE["texts"][3:], "new"]
    after = changed(tables=tables | {"shop.steps": [*shop, 1]}, texts=texts)
    states = [STATE, after, after | {"dense": b"54321"}]
    for number, state in enumerate(states):
        export(tmp_path / f"e{number}", state)
    delta_of(tmp_path / "d1", tmp_path / "e0", tmp_path / "e1")
    delta_of(tmp_path / "d2", tmp_path / "d1", tmp_path / "e2")
    return tmp_path


def test_a_delta_holds_what_changed_alone(chain: Path) -> None:
    told = json.loads((chain / "d1" / "delta.json").read_text())
    assert told["rows"] == {
        "rows": 1001 + 998,
        "changed_rows": 2,
        "dropped_rows": 2,
        "new_values": 2,
        "dropped_values": 0,
    }
    files = [f"vocabularies/name.of.{what}.npy" for what in ("keys", "offsets", "text")]
    assert list(told["patches"]) == ["model.onnx.data", *files]
    size = sum(len(content) for name, content in content_of(chain / "d1" / "patches").items())
    assert size < 2500 < len((chain / "e1" / "model.onnx.data").read_bytes()) // 4
    nameless = export(chain / "nameless", changed(has_names=False))
    named = delta_of(chain / "named", nameless, chain / "e0")
    assert json.loads((named / "delta.json").read_text())["rows"]["new_values"] == 997


def test_a_process_without_distrain_applies_deltas(chain: Path) -> None:
    site = str(Path(np.__file__).parents[1])
    code = f"import sys; sys.path.append({site!r}); sys.argv[0] = 'deltas.py'; import runpy; "
    code += f"runpy.run_path({str(chain / 'd1' / 'deltas.py')!r}, run_name='__main__')"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run([*command, "out", "e0", "d1", "d2"], cwd=chain, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert content_of(chain / "out") == content_of(chain / "e2")
    done = subprocess.run([*command, "o", "e0", "d2"], cwd=chain, capture_output=True, text=True)
    assert done.returncode == 1
    assert "d2" in done.stderr


DELTA = ("patches/model.onnx.data", "whole/inputs.json", "deltas.py", "delta.json")


@pytest.mark.parametrize("name", [*(f"d1/{one}" for one in DELTA), "e0/model.onnx.data"])
def test_a_changed_file_of_a_base_or_a_delta_is_refused_by_name(chain: Path, name: str) -> None:
    content = (chain / name).read_bytes()
    (chain / name).write_bytes(content.replace(b"1", b"2").replace(b"\1", b"\2"))
    with pytest.raises(DamagedExport, match=name.partition("/")[2]):
        apply_deltas(chain / "out", chain / "e0", [chain / "d1"])
    assert not (chain / "out").exists()


def test_a_delta_takes_the_place_of_none_that_it_needs(chain: Path) -> None:
    for out, since in (("e0", "e0"), ("d2", "d2"), ("e0", "d2"), ("d1", "d2")):
        with pytest.raises(InputError):
            write_delta(chain / out, chain / since, chain / "e2", chain / "e1", replace=True)
    document = json.loads((chain / "d1" / "delta.json").read_text())
    del document["version"]
    outside = signed(document | {"files": {"../e2/inputs.json": "0" * 64}})
    (chain / "d1" / "delta.json").write_text(json.dumps(outside))
    with pytest.raises(DamagedExport):
        apply_deltas(chain / "out", chain / "e0", [chain / "d1"])
    (chain / "d1" / "delta.json").write_text(json.dumps(signed(document | {"since": "../d2"})))
    with pytest.raises(DataError):
        delta_of(chain / "d", chain / "d2", chain / "e2")


def test_what_a_delta_cannot_be_made_since_is_refused(chain: Path, wording: Wording) -> None:
    wording.refused(InputError, lambda: delta_of(chain / "d", chain, chain / "e2"))
    (chain / "e0").rename(chain / "away")
    wording.refused(InputError, lambda: delta_of(chain / "d", chain / "d2", chain / "e2"))
    (chain / "away").rename(chain / "e0")
    (chain / "e0" / "inputs.json").write_text("{}")
    wording.refused(DataError, lambda: delta_of(chain / "d", chain / "e0", chain / "e2"))
