"""What differs between specs."""

from hypothesis import given
from hypothesis import strategies as st

from distrain.service.page.spec_diff import differences

VALUES = st.recursive(
    st.none() | st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4))
def test_a_spec_does_not_differ_from_itself(spec):
    assert differences([spec, spec, spec]) == []
    more = {**spec, "of its own": 1}
    (row,) = differences([spec, more, spec])
    assert (row.field, row.values) == ("of its own", ("-", "1", "-"))
