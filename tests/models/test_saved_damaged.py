"""Saved models that were damaged, mixed up or made to do harm: an error, and little memory."""

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from wording import Wording

from distrain.errors import DataError, DistrainError, InputError
from distrain.jobs.spec import DcnV2Spec
from distrain.models import build_model, load_model
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), 30),
        ColumnSchema("C2", "int32", (Tags.CATEGORICAL,), 5),
        ColumnSchema("seen", "int32", (Tags.CATEGORICAL,), 9, is_list=True, is_ragged=True),
        ColumnSchema("I1", "float32", (Tags.CONTINUOUS,)),
    )
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small saved model."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    spec = DcnV2Spec(embedding_dim=4, hidden=(8,), cross_depth=2)
    save_model(folder, build_model(SCHEMA, spec, seed=0), spec, SCHEMA)
    return folder


@pytest.fixture
def broken(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def edit(folder: Path, *path: Any, value: object) -> None:
    file = folder / "model.json"
    document = inner = json.loads(file.read_text())
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(document))


def test_what_the_weights_do_not_hold_is_refused_before_it_is_built(
    broken: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(
        "distrain.models.saved_model.build_model",
        Mock(side_effect=AssertionError("a model was built")),
    )
    before = (broken / "model.json").read_text()
    column = ("schema", "columns", 1)
    for path, value in (
        (("model", "hidden"), [2**20, 2**20]),
        (("model", "hidden"), [2**31 - 1] * 3),
        (("model", "hidden"), [1] * 100_000),
        (("model", "cross_depth"), 2_000_000_000),
        (("model", "embedding_dim"), 10**6),
        ((*column, "cardinality"), 10**12),
        ((*column, "cardinality"), 10**400),
        ((*column, "cardinality"), 2.5),
        ((*column, "cardinality"), True),
        ((*column, "properties"), []),
        ((*column, "name"), ["C1"]),
        (("combiners",), {"seen": []}),
    ):
        (broken / "model.json").write_text(before)
        edit(broken, *path, value=value)
        with pytest.raises(InputError) as caught:
            load_model(broken)
        assert len(str(caught.value)) < 4_000
        wording(caught.value)


def test_weights_of_other_types_or_names_are_refused(broken: Path, wording: Wording) -> None:
    for name, dtype in (
        ("embeddings.weights.0", "I32"),
        ("embeddings.weights.0", "F8_E4M3"),
        ("dense.task.logit.bias", "I32"),
    ):
        header, data = parts(broken)
        header[name]["dtype"] = dtype
        write(broken, header, data)
        with pytest.raises(DataError):
            load_model(broken)
    header["\x1b]0;owned\x07"] = header.pop("embeddings.weights.0")
    write(broken, header, data)
    with pytest.raises(DataError) as caught:
        load_model(broken)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def parts(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The header of the weights, and the rest."""
    content = (folder / "weights.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(folder: Path, header: object, data: bytes) -> None:
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + data
    (folder / "weights.safetensors").write_bytes(content)


ODD_VALUES = (
    *(None, True, -1, 0, 1, 7, 2**20, 2**31 - 1, 2**40, 10**12, 10**30, 1.5, float("nan")),
    *("", "mlp", "dlrm", "C1", "no such", "F16", "I64", "BOOL", "x" * 10_000),
    *([], {}, [1], ["C1"], {"a": 1}, [2**20] * 3, [[]]),
)


def mutated(document: Any, chance: random.Random) -> Any:
    """The document with one value replaced, left out, doubled or put elsewhere."""
    document = copy.deepcopy(document)
    places = [place for place in _places(document) if place]
    for _ in range(chance.randint(1, 3)):
        *path, last = chance.choice(places)
        inner = document
        try:
            for key in path:
                inner = inner[key]
            match chance.randrange(4):
                case 0:
                    del inner[last]
                case 1 if isinstance(inner, list):
                    inner.append(copy.deepcopy(inner[last]))
                case 2:
                    inner["more" if isinstance(inner, dict) else last] = inner[last]
                case _:
                    inner[last] = copy.deepcopy(chance.choice(ODD_VALUES))
        except (KeyError, IndexError, TypeError):  # an earlier one took it away
            continue
    return document


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path]
    for key, item in inner:
        deeper = (*path, key)
        found += _places(item, deeper) if isinstance(item, dict | list) else [deeper]
    return found


@settings(
    max_examples=50,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), target=st.sampled_from(["model.json", "header", "bytes"]))
def test_a_changed_model_is_loaded_or_refused_and_nothing_else(
    saved: Path, broken: Path, seed: int, target: str
) -> None:
    chance = random.Random(seed)
    for file in saved.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    header, data = parts(saved)
    if target == "model.json":
        changed = mutated(json.loads((saved / "model.json").read_text()), chance)
        (broken / "model.json").write_text(json.dumps(changed))
    elif target == "header":
        write(broken, mutated(header, chance), data)
    else:
        content = bytearray(
            (saved / chance.choice(["model.json", "weights.safetensors"])).read_bytes()
        )
        name = "model.json" if content[:1] == b"{" else "weights.safetensors"
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(min(len(content), 2_000))] = chance.randrange(256)
        (broken / name).write_bytes(content)
    with contextlib.suppress(DistrainError):
        load_model(broken)
