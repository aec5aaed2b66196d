import copy
import pickle

from hypothesis import given, strategies as st

from distrain import errors
from distrain.errors import DataError, DistrainError


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


@given(
    st.sampled_from(KINDS),
    st.text(),
    st.dictionaries(st.text(), st.integers() | st.none()),
    st.none() | st.text(),
)
def test_every_error_can_be_told_and_sent(kind, message, where, hint):
    sent = kind(message, where=where, hint=hint)
    assert str(sent).startswith(message)
    for error in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent)):
        assert (type(error), str(error)) == (kind, str(sent))
        assert (error.message, error.where, error.hint) == (message, where, hint)


def test_exit_codes_are_those_that_scripts_know(wording):
    wording("\n".join(sorted(f"{kind.__name__}: {kind.exit_code}" for kind in KINDS)))
