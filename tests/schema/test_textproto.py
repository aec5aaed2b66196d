"""The text form of protocol buffers."""

import pytest
from hypothesis import given, settings, strategies as st

from distrain.errors import SchemaError
from distrain.schema.textproto import Field, parse, render


def plain(fields):
    return [(f.key, plain(f.value) if isinstance(f.value, list) else f.value) for f in fields]


@pytest.mark.parametrize(
    "text",
    [
        "a { b: 1 c: x }",
        "a: { b: 1, c: x }",
        "a < b: 1; c: x >",
        "a{b:1 c:x};",
        '# before\na { b: 1 # { " \n c: x\n}',
    ],
)
def test_ways_to_write_a_message(text):
    assert plain(parse(text)) == [("a", [("b", "1"), ("c", "x")])]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\n\r\t\"\'\\\?\a"', b"\n\r\t\"'\\?\a"),
        (r'"\0\07\303\251"', b"\0\7\xc3\xa9"),
        (r'"\1234"', b"S4"),
        (r'"\x41\X4a\xfg"', b"AJ\x0fg"),
        (r'"\u00e9\U0001F600"', "é😀".encode()),
        ("'it is \"so\"'", b'it is "so"'),
        ('"a" \'b\'\n"c"', b"abc"),
        ('"é # no comment"', "é # no comment".encode()),
        ('""', b""),
    ],
)
def test_strings(text, value):
    assert plain(parse(f"s: {text}")) == [("s", value)]


@pytest.mark.parametrize("word", ["-2.9177291", "5.7866055e-06", "+3", "0x1F", "1.5f", "-inf"])
def test_numbers_arrive_as_they_are_spelled(word):
    assert plain(parse(f"n: {word}\t")) == [("n", word)]


def test_short_lists_and_bracketed_names():
    assert plain(parse("t: ['x', \"y\"] u: [] m [{a: 1}, {a: 2}]")) == [
        ("t", b"x"),
        ("t", b"y"),
        ("m", [("a", "1")]),
        ("m", [("a", "2")]),
    ]
    assert (
        parse("m { [type.example.org/a.B] { x: 1 } }")[0].value[0].key == "[type.example.org/a.B]"
    )


def test_lines_are_counted_from_one():
    first, second = parse("# a comment\na {\n  b: 1\n}\n\nc: 2")
    assert (first.line, first.value[0].line, second.line) == (2, 3, 6)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a {\n b: 1", 2),
        ("a: 1\n}", 2),
        ("a {\n b: 1 >", 2),
        ("a:\n\n}", 3),
        ("\na 1", 2),
        ('a: 1\nb: "x', 2),
        ('a: "x\ny"', 1),
        ("a: 1\nb: %", 2),
        (r'a: "\q"', 1),
        (r'a: "\777"', 1),
        (r'a: "\ud800"', 1),
        ("a: [1 2]", 1),
        ("[a", 1),
    ],
)
def test_errors_name_the_line(text, line, wording):
    wording.refused(SchemaError, lambda: parse(text), line=line)


KEYS = st.from_regex(r"[a-z][a-z_0-9]{0,5}", fullmatch=True)
MESSAGES = st.recursive(
    st.lists(st.builds(Field, KEYS, st.binary(max_size=12) | KEYS), max_size=3),
    lambda inner: st.lists(st.builds(Field, KEYS, inner | st.binary(max_size=4)), max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=40)
@given(MESSAGES)
def test_parse_is_the_inverse_of_render(message):
    assert plain(parse(render(message))) == plain(message)
