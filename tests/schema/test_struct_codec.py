"""google.protobuf.Struct, byte for byte."""

import pytest
from hypothesis import given, settings, strategies as st

from distrain.schema.struct_codec import decode_struct, encode_struct

# As Merlin wrote it for Criteo's C21, entries in the order of the file.
MERLIN = (
    b"\n\r\n\007is_list\022\002 \000"
    b"\n\030\n\013start_index\022\t\021\000\000\000\000\000\000\000\000"
    b"\nG\n\017embedding_sizes\0224*2"
    b"\n\026\n\tdimension\022\t\021\000\000\000\000\000\000\200@"
    b"\n\030\n\013cardinality\022\t\021\000\000\000\200\277\271PA"
    b"\n\021\n\013num_buckets\022\002\010\000"
    b'\n.\n\010cat_path\022"\032 .//categories/unique.C21.parquet'
)
PROPERTIES = {
    "is_list": False,
    "start_index": 0.0,
    "embedding_sizes": {"dimension": 512.0, "cardinality": 4384510.0},
    "num_buckets": None,
    "cat_path": ".//categories/unique.C21.parquet",
}


def test_what_merlin_wrote():
    assert decode_struct(MERLIN) == PROPERTIES


def test_keys_are_written_in_order():
    backwards = dict(reversed(PROPERTIES.items()))
    assert encode_struct(PROPERTIES) == encode_struct(backwards)
    assert encode_struct({"b": None, "a": True}) == b"\n\7\n\1a\x12\2 \1\n\7\n\1b\x12\2\x08\0"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5))
def test_decode_is_the_inverse_of_encode(document):
    assert decode_struct(encode_struct(document)) == document


def test_unknown_fields_are_passed_over():
    # Field 9 of every wire type, before and within the map's entry.
    others = b"\x48\x05" + b"\x4a\x01x" + b"\x4d1234" + b"\x4912345678"
    entry = others + b"\n\1a" + b"\x12\2 \1"
    assert decode_struct(others + b"\n" + bytes([len(entry)]) + entry) == {"a": True}


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"\n\5\n\1a",
        b"\xff" * 12,
        b"\x0b",
        b"\n\2\x08\1",
        b"\n\7\n\1a\x12\2\x18\0",
    ],
)
def test_damaged_bytes_are_refused(data, wording):
    wording.refused(ValueError, lambda: decode_struct(data))


def test_text_is_unicode():
    with pytest.raises(UnicodeDecodeError):
        decode_struct(b"\n\3\n\1\xff")
    with pytest.raises(UnicodeEncodeError):
        encode_struct({"a": "\ud800"})


@pytest.mark.parametrize(
    "document",
    [
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": 10**400},
        {"a": {"b": b"x"}},
        {"a": {1: 2}},
    ],
)
def test_what_json_has_no_form_for_is_refused(document, wording):
    wording.refused(ValueError, lambda: encode_struct(document))
