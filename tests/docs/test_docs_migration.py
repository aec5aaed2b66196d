"""The page for people who come from Merlin names whatever NVIDIA's documents use."""

import re
from pathlib import Path

import pytest

LIBRARIES = "nvtabular|merlin_standard_lib|merlin_models|merlin|fastai|numba|IPython"
ALIASES = "ml|mm|nvt|tf"
# Python, NumPy, Jupyter and HTML; the rest is Merlin's, NVTabular's, TensorFlow's or fastai's.
OTHERS = {
    *("append", "expanduser", "get", "glob", "items", "join", "keys", "time", "values", "seed"),
    *("border", "class", "highlight", "src", "style", "text", "numpy"),
}


def names_in(text):
    """Imported names, attributes of the libraries, classes, methods, and keyword arguments."""
    text = text.replace('\\"', '"')
    found = set(re.findall(rf"\b(?:{ALIASES})\.(\w+)", text))
    for line in re.findall(rf"from (?:{LIBRARIES})[\w.]* import ([\w, ]+)", text):
        found |= {name.strip() for name in line.split(",") if name.strip()}
    found |= set(re.findall(r"\b([A-Z][a-z]\w*[a-z]|AUC|APScoreBinary)\(", text))
    found |= set(re.findall(r"\w\)?\.([a-z_]{3,})\(", text))
    found |= set(re.findall(r"[(,]\s*([a-z_]{3,})=(?!=)", text))
    return found - OTHERS


def named(page):
    """Every word in code on the page."""
    return {word for code in re.findall(r"`([^`\n]+)`", page) for word in re.findall(r"\w+", code)}


@pytest.fixture
def seeds(shared_data):
    found = sorted((shared_data.parent / "seeds").glob("0*.txt"))
    if not found:
        pytest.skip("the documents that distrain begins with are not among the shared files")
    return found


def test_every_name_of_the_documents_is_in_the_page(seeds, sources):
    known = named(sources[Path("docs/migration.md")])
    missing = {path.name: sorted(names_in(path.read_text()) - known) for path in seeds}
    assert not {name: words for name, words in missing.items() if words}


def test_the_names_are_found(seeds):
    found = set().union(*(names_in(path.read_text()) for path in seeds))
    for name in ("KerasSequenceLoader", "RocAucBinary", "part_mem_fraction", "TwoTowerBlock"):
        assert name in found
    assert {"sparse_as_dense", "select_by_tag", "LogitsTemperatureScaler", "map"} <= found
    assert len(found) > 80
