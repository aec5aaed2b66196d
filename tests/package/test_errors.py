import copy
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from distrain import errors
from distrain.errors import DataError, DistrainError, JobCancelled


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


KINDS = [DistrainError, *(k for k in subclasses(DistrainError) if k.__module__ == errors.__name__)]


def test_an_error_says_what_where_and_what_next_in_that_order():
    error = DataError("bad value", where={"file": "a.parquet", "column": "C1"}, hint="Look at it.")
    assert str(error) == "bad value\n  file: a.parquet\n  column: C1\n  hint: Look at it."


def test_an_error_without_place_and_hint_is_its_message():
    assert str(DistrainError("bad")) == "bad"
    assert repr(DistrainError("bad")) == "DistrainError('bad')"


def test_where_is_a_copy():
    places = {"file": "a"}
    error = DistrainError("bad", where=places)
    places["file"] = "b"
    assert error.where == {"file": "a"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("travel", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
def test_errors_cross_process_borders_whole(kind, travel):
    error = travel(kind("bad", where={"row group": 3}, hint="Look."))
    assert type(error) is kind
    assert (error.message, error.where, error.hint) == ("bad", {"row group": 3}, "Look.")
    assert str(error) == str(kind("bad", where={"row group": 3}, hint="Look."))


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.none()), st.none() | st.text())
def test_every_error_can_be_told_and_sent(message, where, hint):
    error = pickle.loads(pickle.dumps(JobCancelled(message, where=where, hint=hint)))
    assert str(error) == str(JobCancelled(message, where=where, hint=hint))
    assert str(error).startswith(message)


def parents_in_the_package():
    """The parent of each expected error, as the sources of all packages name it."""
    heads = re.compile(r"^ *class (\w+)\(([\w, ]+)\):", re.MULTILINE)
    bases = {
        name: above.replace(" ", "").split(",")
        for file in Path(errors.__file__).parent.rglob("*.py")
        for name, above in heads.findall(file.read_text())
    }
    parents: dict[str, str] = {}
    while found := {
        name: base
        for name, above in bases.items()
        for base in above
        if name not in parents and (base == "DistrainError" or base in parents)
    }:
        parents |= found
    return parents


def test_the_drawn_tree_is_the_tree():
    # A line is: the branches, the class, its exit code, and words about it.
    drawn, codes, path = {}, {}, []
    for line in errors.__doc__.splitlines():
        if match := re.match(r"^    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+) +(.*)$", line):
            branches, name, rest = match.groups()
            path[len(branches) // 4 :] = [name]
            code = re.match(r"\d+", rest)
            drawn[name] = path[-2] if path[1:] else "Exception"
            codes[name] = code and int(code.group())
    assert drawn.pop("DistrainError") == "Exception"
    assert codes.pop("DistrainError") is None  # its column is the heading
    assert drawn == parents_in_the_package()
    here = {kind.__name__: kind.exit_code for kind in KINDS if kind is not DistrainError}
    assert here == {name: code for name, code in codes.items() if name in here}
