r"""Parses and writes protocol buffers' text format, without message definitions.

A message is a list of `Field`s in file order. The caller interprets the values: a quoted string
becomes bytes, a bare word (number, `true`, enum name) stays as it is spelled, and a message becomes
another list. A short list `key: [a, b]` becomes two fields.

>>> parse('feature { name: "a\\303\\251" type: INT }')[0].value[0].value.decode()
'aé'
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from distrain.errors import SchemaError

Value: TypeAlias = "bytes | str | list[Field]"


class Field(NamedTuple):
    """A field of a message."""

    key: str
    value: Value
    line: int = 0  # in the text, from 1; 0 if the field was not parsed


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


# A string is matched possessively, without backtracking: keeping a backtracking position for each
# character would take 160 times the memory of a long string.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)
    |(?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')
    |(?P<word>[-+]?[A-Za-z0-9_.][\w.+-]*)
    |(?P<mark>[{}<>\[\]:;,/])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    rb"|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_PRINTED = dict(zip(b"\n\r\t\"'\\", (r"\n", r"\r", r"\t", r"\"", r"\'", r"\\"), strict=True))


def parse(text: str) -> list[Field]:
    """Return the fields of a message; raises a `SchemaError` that names the line of an error."""
    return _Parser(_tokens(text)).fields(closing="")


def render(fields: Sequence[Field], indent: str = "") -> str:
    r"""Write fields one per line, as protobuf's own printers do. `parse` is the inverse.

    >>> print(render([Field("a", [Field("b", b'x"\n'), Field("c", "1")])]), end="")
    a {
      b: "x\"\n"
      c: 1
    }
    """
    lines = []
    for field in fields:
        if isinstance(field.value, list):
            inner = render(field.value, indent + "  ")
            lines.append(f"{indent}{field.key} {{\n{inner}{indent}}}\n")
        elif isinstance(field.value, bytes):
            lines.append(f'{indent}{field.key}: "{_quoted(field.value)}"\n')
        else:
            lines.append(f"{indent}{field.key}: {field.value}\n")
    return "".join(lines)


class _Parser:
    """Parses a message from its tokens by recursive descent."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def fields(self, closing: str) -> list[Field]:
        """Return the fields up to the `closing` mark, which is consumed; "" is the text's end."""
        all_fields: list[Field] = []
        while not self._take(closing):
            line = self._peek.line
            key = self._key()
            all_fields += [Field(key, value, line) for value in self._values(key)]
            self._take(";", ",")
        return all_fields

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *marks: str) -> bool:
        token = self._peek
        if token.kind not in ("mark", "end") or token.text not in marks:
            return False
        if token.kind == "mark":
            self._next += 1
        return True

    def _key(self) -> str:
        token = self._peek
        if token.kind == "word":
            self._next += 1
            return token.text
        if not self._take("["):
            raise _unexpected(token, "a field's name")
        # An extension's or a packed type's name: [type.googleapis.com/google.protobuf.Struct]
        parts = []
        while not self._take("]"):
            if self._peek.kind == "end":
                raise _unexpected(self._peek, "']'")
            parts.append(self._peek.text)
            self._next += 1
        return f"[{''.join(parts)}]"

    def _values(self, key: str) -> list[Value]:
        colon = self._take(":")
        if not self._take("["):
            return [self._value(key, colon=colon)]
        values: list[Value] = []
        while not self._take("]"):
            values.append(self._value(key, colon=colon))
            if not self._take(",") and self._peek.text != "]":
                raise _unexpected(self._peek, "',' or ']'")
        return values

    def _value(self, key: str, *, colon: bool) -> Value:
        if self._take("{"):
            return self.fields("}")
        if self._take("<"):
            return self.fields(">")
        token = self._peek
        if token.kind not in ("string", "word"):
            raise _unexpected(token, f"a value of {key}")
        if not colon:
            raise _unexpected(token, f"':' or '{{' after {key}")
        self._next += 1
        if token.kind == "word":
            return token.text
        joined = _unescaped(token)
        while self._peek.kind == "string":  # adjacent strings are one, as in C
            joined += _unescaped(self._peek)
            self._next += 1
        return joined


def _tokens(text: str) -> list[_Token]:
    """Return the words, strings and punctuation marks of a text, and a token `end` after them."""
    tokens, line, at = [], 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            problem = "an unfinished string" if text[at] in "\"'" else f"unexpected {text[at]!r}"
            raise SchemaError(problem, where={"line": line})
        if match.lastgroup and match.lastgroup != "skip":
            tokens.append(_Token(match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return [*tokens, _Token("end", "", line)]


def _unescaped(token: _Token) -> bytes:
    def replacement(match: re.Match[bytes]) -> bytes:
        groups = match.groupdict()
        if groups["octal"]:
            return bytes([int(groups["octal"], 8)])
        if groups["hex"]:
            return bytes([int(groups["hex"], 16)])
        if groups["letter"]:
            return bytes([_LETTERS[groups["letter"][0]]])
        return chr(int(groups["u4"] or groups["u8"], 16)).encode()

    try:
        return _ESCAPE.sub(replacement, token.text[1:-1].encode())
    except (KeyError, ValueError, OverflowError):
        raise SchemaError(
            f"a string with an unknown escape: {token.text[:60]}", where={"line": token.line}
        ) from None


def _quoted(value: bytes) -> str:
    return "".join(
        _PRINTED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value
    )


def _unexpected(token: _Token, expected: str) -> SchemaError:
    actual = repr(token.text) if token.kind != "end" else "the end of the file"
    return SchemaError(f"expected {expected}, found {actual}", where={"line": token.line})
