"""Curves and comparisons of the pages."""

import math
import re
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from distrain.service.page.curves import HEIGHT, WIDTH, Line, draw, thinned
from distrain.service.page.spec_diff import differences

FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=32)
POINTS = st.lists(st.tuples(FLOATS, FLOATS), max_size=30)


@given(POINTS, POINTS)
def test_a_curve_stays_inside_its_picture(train, valid):
    svg = draw("a < b", [Line("train", train), Line("valid", valid)])
    finite = [p for p in train + valid if math.isfinite(p[0]) and math.isfinite(p[1])]
    assert bool(svg) == bool(finite)
    if svg:
        ElementTree.fromstring(svg)
        for points in re.findall(r'points="([^"]*)"', svg):
            for point in points.split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= WIDTH
                assert 0 <= y <= HEIGHT


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=50), st.integers(2, 20))
def test_thinned_points_keep_both_ends(points, most):
    found = thinned(points, most)
    assert len(found) == min(most, len(points))
    assert (found[0], found[-1]) == (points[0], points[-1])


VALUES = st.recursive(
    st.none() | st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4))
def test_a_spec_does_not_differ_from_itself(spec):
    assert differences(spec, spec) == []
    more = {**spec, "of its own": 1}
    assert [row.field for row in differences(more, spec)] == ["of its own"]
    assert [row.there for row in differences(spec, more)] == ["1"]
