"""Each operator against a naive oracle."""

import math
import zlib
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, InputError, SpecError
from distrain.prep import (
    Categorify,
    Clip,
    FeatureConfig,
    FillMissing,
    LogOp,
    MissingFlag,
    Normalize,
)
from distrain.prep.operators.counts import Counts
from distrain.prep.operators.numbers import Moments
from distrain.prep.vocabulary import Vocabulary, check_cardinality, mistake_of_name

quick = settings(max_examples=30, deadline=None)
integers = st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=40)
small_integers = st.lists(st.none() | st.integers(-4, 12), max_size=60)
words = st.lists(st.none() | st.text("abé", max_size=2), max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=4)


def int_array(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


@quick
@given(integers, st.integers(-9, 9))
def test_fill_missing_equals_the_loop(values: list[int | None], constant: int) -> None:
    filled = FillMissing(constant).transform("I1", int_array(values))
    assert filled.to_pylist() == [constant if v is None else v for v in values]


def test_fill_missing_takes_nan_for_missing_and_keeps_fractions() -> None:
    floats = pa.array([1.5, math.nan, None], pa.float32())
    assert FillMissing(2).transform("I1", floats).to_pylist() == [1.5, 2.0, 2.0]
    assert FillMissing(0.5).transform("I1", int_array([1, None])).to_pylist() == [1.0, 0.5]


@quick
@given(integers, st.none() | st.integers(-50, 0), st.none() | st.integers(0, 50))
def test_clip_equals_the_loop(values: list[int | None], low: int | None, high: int | None) -> None:
    if low is None and high is None:
        with pytest.raises(InputError):
            Clip(low, high)
        return
    bottom, top = (-math.inf if low is None else low), (math.inf if high is None else high)
    clipped = Clip(low, high).transform("I1", int_array(values)).to_pylist()
    assert clipped == [None if v is None else min(max(v, bottom), top) for v in values]


def test_clip_refuses_crossed_bounds(wording: Wording) -> None:
    wording.refused(InputError, lambda: Clip(3, 1))


@quick
@given(st.lists(st.none() | st.integers(0, 2**50), max_size=30))
def test_log_equals_the_loop(values: list[int | None]) -> None:
    logs = LogOp().transform("I1", int_array(values)).to_pylist()
    assert logs == [None if v is None else pytest.approx(math.log1p(v)) for v in values]


@quick
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), cuts)
def test_merged_moments_equal_those_of_the_whole(values: list[float], at: list[int]) -> None:
    whole = np.array(values)
    operator = Normalize()
    pieces = [operator.fit(pa.array(piece)) for piece in np.split(whole, sorted(at))]
    merged = operator.merge(*pieces)
    assert merged.count == len(values)
    assert merged.mean == pytest.approx(whole.mean(), abs=1e-6)
    assert merged.m2 == pytest.approx(np.square(whole - whole.mean()).sum(), rel=1e-6, abs=1e-3)


def test_moments_do_not_cancel_far_from_zero() -> None:
    values = 1e9 + np.arange(1000.0)
    operator = Normalize()
    merged = operator.merge(*(operator.fit(pa.array(piece)) for piece in np.split(values, 10)))
    assert merged.std == pytest.approx(np.arange(1000.0).std(), rel=1e-9)


@pytest.mark.parametrize(
    "parts", [[[math.inf], [1.0]], [[1.0], [-math.inf, math.inf]], [[], [-math.inf], [2.0]]]
)
def test_normalize_tells_infinite_values_of_any_part_from_nan(
    parts: list[list[float]], wording: Wording
) -> None:
    operator = Normalize()
    states = [operator.fit(pa.array(part, pa.float64())) for part in parts]
    wording.refused(DataError, lambda: operator.finish(operator.merge(*states)))
    states.append(operator.fit(pa.array([math.nan])))
    wording.refused(DataError, lambda: operator.finish(operator.merge(*states)))


def naive_ids(
    train: list[object], new: list[object], threshold: int, max_size: int, num_buckets: int
) -> list[int]:
    counts: dict[object, int] = {}
    for value in train:
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    kept = sorted((v for v, n in counts.items() if n >= threshold), key=lambda v: (-counts[v], v))
    kept = kept[: max_size or None]
    num_oov = max(1, num_buckets)
    ids = []
    for value in new:
        if value is None:
            ids.append(1)
        elif value in kept:
            ids.append(2 + num_oov + kept.index(value))
        else:
            ids.append(2 + naive_bucket(value, num_oov))
    return ids


def naive_bucket(value: object, num_buckets: int) -> int:
    mask = 2**64 - 1
    x = zlib.crc32(value.encode()) if isinstance(value, str) else int(str(value)) & mask
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) % num_buckets


def fit_in_pieces(operator: Categorify, values: pa.Array, at: list[int]) -> Counts:
    edges = [0, *sorted(min(a, len(values)) for a in at), len(values)]
    return operator.merge(*(operator.fit(values.slice(a, b - a)) for a, b in pairwise(edges)))


@quick
@given(
    st.one_of(
        st.tuples(st.just(pa.int64()), small_integers, small_integers),
        st.tuples(st.just(pa.string()), words, words),
    ),
    cuts,
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(0, 3),
)
def test_categorify_equals_the_loop_however_the_rows_are_cut(
    data: tuple[pa.DataType, list[object], list[object]],
    at: list[int],
    threshold: int,
    max_size: int,
    num_buckets: int,
) -> None:
    dtype, train, new = data
    operator = Categorify(threshold, max_size, num_buckets)
    vocabulary = operator.finish(fit_in_pieces(operator, pa.array(train, dtype), at))
    ids = operator.with_fitted({"C1": vocabulary}).transform("C1", pa.array(new, dtype))
    assert ids.type == pa.int32()
    assert ids.to_pylist() == naive_ids(train, new, threshold, max_size, num_buckets)
    assert max(ids.to_pylist(), default=0) < vocabulary.cardinality
    observed = vocabulary.nulls_observed + vocabulary.oov_observed
    assert observed + sum(vocabulary.counts.to_pylist()) == len(train)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([7, 3, 7, None], pa.uint32()),
        pa.array([7, 3, 7, None], pa.int8()),
        pa.array(["7", "3", "7", None], pa.large_string()),
        pa.chunked_array([["7", "3"], ["7", None]]).combine_chunks(),
    ],
)
def test_categorify_takes_any_width_of_integers_and_strings(values: pa.Array) -> None:
    operator = Categorify()
    fitted = operator.with_fitted({"C1": operator.finish(operator.fit(values))})
    assert fitted.transform("C1", values).to_pylist() == [3, 4, 3, 1]


def test_categorify_says_when_the_type_is_not_that_of_its_vocabulary(wording: Wording) -> None:
    operator = Categorify()
    fitted = operator.with_fitted({"C1": operator.finish(operator.fit(int_array([1])))})
    wording.refused(
        DataError,
        lambda: fitted.transform("C1", pa.array(["1"])),
        lambda: operator.fit(pa.array([2**64 - 1], pa.uint64())),
    )
    wording.refused(InputError, lambda: Categorify(-1))


def test_categories_are_counted_by_their_texts() -> None:
    state = Categorify().fit(pa.array([0.0, -0.0, 1.5, math.nan, None]))
    vocabulary = Categorify().finish(state)
    assert dict(zip(vocabulary.values.to_pylist(), vocabulary.counts.to_pylist(), strict=True)) == {
        "0": 2,
        "1.5": 1,
    }
    assert vocabulary.nulls_observed == 2


def test_a_vocabulary_is_saved_in_merlins_layout(tmp_path) -> None:
    operator = Categorify(freq_threshold=2, num_buckets=4)
    values = int_array([5, 5, 9, 9, 9, 1, None, None])
    vocabulary = operator.finish(operator.fit(values))
    vocabulary.save(tmp_path, "C7")
    assert pq.read_table(tmp_path / "unique.C7.parquet").to_pydict() == {
        "C7": [9, 5],
        "C7_size": [3, 2],
    }
    assert pq.read_table(tmp_path / "meta.C7.parquet").to_pydict() == {
        "kind": ["pad", "null", "oov", "unique"],
        "offset": [0, 1, 2, 6],
        "num_indices": [1, 1, 4, 2],
        "num_observed": [0, 2, 1, 5],
    }
    loaded = Vocabulary.load(tmp_path, "C7")
    assert loaded.cardinality == vocabulary.cardinality == 8
    assert loaded.encode(values).tolist() == vocabulary.encode(values).tolist()


def test_a_damaged_vocabulary_is_named(tmp_path, wording: Wording) -> None:
    vocabulary = Vocabulary(int_array([9, 5]), int_array([3, 2]))
    vocabulary.save(tmp_path, "C7")
    Vocabulary(int_array([9]), int_array([3])).save(tmp_path, "other")
    (tmp_path / "meta.other.parquet").rename(tmp_path / "meta.C7.parquet")
    wording.refused(DataError, lambda: Vocabulary.load(tmp_path, "C7"))
    file = tmp_path / "unique.C7.parquet"
    file.write_bytes(b"PAR1 no more")
    with pytest.raises(DataError) as caught:
        Vocabulary.load(tmp_path, "C7")
    assert str(caught.value.where["file"]) == str(file)
    meta = tmp_path / "meta.C7.parquet"
    vocabulary.save(tmp_path, "C7")
    rows = pq.read_table(meta)
    for number in (1, 2, 3):  # null, oov, unique
        pq.write_table(pa.concat_tables([rows[:number], rows[number + 1 :]]), meta)
        wording.refused(DataError, lambda: Vocabulary.load(tmp_path, "C7"), file=str(meta))


def test_parts_without_values_merge_with_those_of_any_type() -> None:
    operator = Categorify()
    states = [operator.fit(pa.nulls(2, pa.int64())), operator.fit(pa.array(["b", "a", "b"]))]
    for parts in (states, states[::-1]):
        assert operator.finish(operator.merge(*parts)).values.to_pylist() == ["b", "a"]


def test_ids_are_those_that_int32_holds(wording: Wording) -> None:
    check_cardinality(2**31 - 1)
    wording.refused(DataError, lambda: check_cardinality(2**31))


@pytest.mark.parametrize("value", [2.302585092994046, -1e9 / 3, 1e-300])
def test_a_long_constant_column_becomes_zero(value: float) -> None:
    values = pa.array(np.full(300_001, value))
    cuts = [values[:7], values[7:200_000], values[200_000:]]
    operator = Normalize()
    whole, merged = operator.fit(values), operator.merge(*map(operator.fit, cuts))
    # As versions before this one saved it: the sum's rounding is in mean and m2.
    mean = float(np.full(300_001, value).sum() / 300_001)
    saved = Moments(300_001, mean, 300_001 * (mean - value) ** 2 + 6e-26 * value * value)
    for moments in (whole, merged, saved):
        assert moments.std == 1.0
        fitted = operator.with_fitted({"I1": moments})
        zero, later = fitted.transform("I1", pa.array([value, value + 5.0])).to_pylist()
        assert abs(zero) <= 1e-6 * abs(value)
        assert later == pytest.approx(5.0 if moments is saved else zero)


@quick
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    cuts,
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_later_value_counts_as_one_at_most_a_range_beyond_the_training_rows(
    numbers: list[float], at: list[int], later: float
) -> None:
    x = np.array(numbers)
    operator = Normalize()
    pieces = [operator.fit(pa.array(piece)) for piece in np.split(x, sorted(at))]
    moments = operator.merge(*pieces)
    fitted = operator.with_fitted({"I1": moments})
    plain = (x - moments.mean) / moments.std
    np.testing.assert_array_equal(fitted.transform("I1", pa.array(x)).to_numpy(), plain)
    width = x.max() - x.min()
    limited = min(max(later, x.min() - width), x.max() + width)
    (got,) = fitted.transform("I1", pa.array([later])).to_pylist()
    assert got == (limited - moments.mean) / moments.std


def test_integers_beyond_2_to_the_53_are_taken_as_the_nearest_float() -> None:
    values = pa.array([2**53 + 1, -(2**62) - 1, None, 0])
    for operator in (Normalize(), LogOp(), FillMissing(0.5)):
        if isinstance(operator, Normalize):
            operator = operator.with_fitted({"I1": operator.finish(operator.fit(values))})
        got = operator.transform("I1", values.fill_null(0).slice(0, 1 + (operator != LogOp())))
        assert np.isfinite(got.to_numpy(zero_copy_only=False)).all()
    assert operator.transform("I1", values).to_pylist() == [2.0**53, -(2.0**62), 0.5, 0.0]


def test_nan_is_no_number_to_clip_or_to_normalise(wording: Wording) -> None:
    values = pa.array([float("nan"), -3.0, 9.0, None])
    got = Clip(min=0, max=5).transform("I1", values).to_pylist()
    assert np.isnan(got[0])
    assert got[1:] == [0.0, 5.0, None]
    operator = Normalize()
    wording.refused(DataError, lambda: operator.finish(operator.fit(values)))


def test_strings_that_are_too_long_together_for_32_bit_offsets(monkeypatch) -> None:
    parts = [pa.array([f"value-{i % 13}-{i % (7 + k)}" for i in range(90)]) for k in range(3)]
    operator = Categorify(freq_threshold=2)

    def vocabulary(limit: int):
        monkeypatch.setattr("distrain.prep.operators.counts._STRING_BYTES", limit)
        return operator.finish(operator.merge(*map(operator.fit, parts)))

    narrow, wide, mixed = vocabulary(2**31 - 1), vocabulary(100), vocabulary(4000)
    assert narrow.values.type == mixed.values.type == pa.string()
    assert wide.values.type == pa.large_string()
    rows = pa.array(["value-1-1", "never seen", None, "value-0-0"])
    for found in (wide, mixed):
        assert found.values.to_pylist() == narrow.values.to_pylist()
        ids = operator.with_fitted({"C1": found}).transform("C1", rows)
        assert ids == operator.with_fitted({"C1": narrow}).transform("C1", rows)


def test_a_name_of_a_vocabulary_is_one_that_a_file_can_have() -> None:
    for name in ("x" * 200, "商" * 66, "a b\\c"):
        assert mistake_of_name(name) is None
    for name in ("item/sku", "a\0b", "x" * 201, "商" * 67):
        assert mistake_of_name(name)


def test_a_log_that_does_not_exist_is_a_mistake_of_the_document() -> None:
    for keys, problem in (
        ({"fill": -1}, True),
        ({"fill": -0.5}, False),
        ({"fill": -1, "clip": {"min": -1}}, True),
        ({"fill": -1, "clip": {"min": -0.5}}, False),
        ({"fill": -1, "clip": {"max": 3}}, True),
        ({"clip": {"max": -1}}, True),
        ({"clip": {"max": -0.5}}, False),
    ):
        column = {"kind": "continuous", "log": True, **keys}
        document = {"target": "y", "columns": {"x": column}}
        with pytest.raises(SpecError, match="x") if problem else nullcontext():
            FeatureConfig.parse(document)


def test_a_missing_flag_is_1_where_a_value_of_any_type_is_missing() -> None:
    for values in (["a", None], [7, None], [True, None], [1.5, math.nan]):
        assert MissingFlag().transform("x", pa.array(values)).to_pylist() == [0.0, 1.0]
