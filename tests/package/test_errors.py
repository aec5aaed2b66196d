import copy
import pickle

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


def test_errors_cross_process_borders_whole():
    for kind in KINDS:
        sent = kind("bad", where={"row group": 3}, hint="Look.")
        for error in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent)):
            assert type(error) is kind
            assert (error.message, error.where, error.hint) == ("bad", {"row group": 3}, "Look.")
            assert str(error) == str(sent)


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.none()), st.none() | st.text())
def test_every_error_can_be_told_and_sent(message, where, hint):
    error = pickle.loads(pickle.dumps(JobCancelled(message, where=where, hint=hint)))
    assert str(error) == str(JobCancelled(message, where=where, hint=hint))
    assert str(error).startswith(message)


def test_exit_codes_are_those_that_scripts_know(wording):
    wording("\n".join(sorted(f"{kind.__name__}: {kind.exit_code}" for kind in KINDS)))
