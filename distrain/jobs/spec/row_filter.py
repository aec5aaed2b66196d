"""Parses a filter of rows, such as `country == 'de' and age > 18`, to tests of columns.

Python's own parser reads the text. Of Python's grammar, only comparisons, `in`, `is null`, `and`,
`or` and `not` are allowed. Nothing is executed.
"""

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from distrain.errors import SpecError

Value: TypeAlias = bool | int | float | str

_OPERATORS: dict[type[ast.cmpop], tuple[str, bool]] = {  # the operator, and whether it is negated
    ast.Eq: ("==", False), ast.NotEq: ("!=", False), ast.Lt: ("<", False), ast.LtE: ("<=", False),
    ast.Gt: (">", False), ast.GtE: (">=", False), ast.In: ("in", False), ast.NotIn: ("in", True),
    ast.Is: ("is", False), ast.IsNot: ("is", True),
}  # fmt: skip
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORDS = {"null": None, "true": True, "false": False}
_MOST_TESTS = 1000  # tests in one filter; Arrow needs seconds for more
_DEEPEST = 100  # maximum nesting of conditions; Python's own limit depends on the caller's depth
_MOST_BITS = 1024  # of an integer; Python refuses to print some that have more
_HINT = (
    "Write it like: country in ('de', 'at') and (age > 18 or age is null). Write a column whose "
    "name is not a word as col('its name')."
)


@dataclass(frozen=True)
class ColumnName:
    """A column in a filter, and its position in the text, from 1."""

    name: str
    place: int


@dataclass(frozen=True)
class ColumnTest:
    """A test of a column's value.

    Attributes:
        operator: `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, or `is` for the test of null.
        value: The value or column to compare with; for `in` a tuple of values, for `is` `()`.
        negated: If True, the rows for which the test is false pass. Rows for which it is null never
            pass.
    """

    column: ColumnName
    operator: str
    value: Value | tuple[Value, ...] | ColumnName
    negated: bool


@dataclass(frozen=True)
class Joined:
    """Several conditions of a filter: all must hold (`and`), or at least one (`or`)."""

    word: Literal["and", "or"]
    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = ColumnTest | Joined


def parse_filter(text: str) -> Condition:
    """Parse the text of a filter, and return its condition; a `not` is moved to the single tests.

    >>> parse_filter("not (age > 18 and city in ('Bonn',))").word
    'or'

    Raises:
        SpecError: The text is not a filter, or has too many tests; the error has the position.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings such as '\d'
            tree = ast.parse(_one_line(text).strip(), mode="eval")
        condition = _condition(text, tree.body, negated=False)
    except SyntaxError as error:
        place = _indent(text) + (error.offset or 1)
        raise _error(text, place, f"not a condition: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        nested = isinstance(error, RecursionError | MemoryError)
        message = f"nested deeper than {_DEEPEST}" if nested else str(error)
        raise _error(text, 1, f"not a condition: {message}") from None
    if "#" in text:
        _refuse_comments(text)
    for number, test in enumerate(tests_in(condition)):
        if number == _MOST_TESTS:
            message = f"more than {_MOST_TESTS:,} tests; use one `in` for many values of a column"
            raise _error(text, test.column.place, message)
    return condition


def tests_in(condition: Condition) -> Iterator[ColumnTest]:
    """Yield all tests of a condition, in the order of the text."""
    if isinstance(condition, ColumnTest):
        yield condition
    else:
        for part in condition.conditions:
            yield from tests_in(part)


def _condition(text: str, node: ast.expr, *, negated: bool, depth: int = 1) -> Condition:
    """Return the condition of a node of Python's syntax tree, negated if `negated`.

    `text` is the whole filter, for errors. `depth` is the node's depth in the tree, which is
    limited. Raises `SpecError` for a node that no filter may have.
    """
    if depth > _DEEPEST:
        raise RecursionError
    below = depth + 1
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            return _condition(text, operand, negated=not negated, depth=below)
        case ast.BoolOp(operator, values):
            both = isinstance(operator, ast.And) != negated
            parts = tuple(_condition(text, part, negated=negated, depth=below) for part in values)
            return Joined("and" if both else "or", parts)
        case ast.Compare(left, operators, others):
            pairs = zip([left, *others], operators, others, strict=False)
            tests = tuple(_test(text, *pair, negated=negated) for pair in pairs)
            return tests[0] if len(tests) == 1 else Joined("or" if negated else "and", tests)
    raise _refused(text, node, "this is not a condition")


def _test(
    text: str, left: ast.expr, operator: ast.cmpop, right: ast.expr, *, negated: bool
) -> ColumnTest:
    word, is_not = _OPERATORS[type(operator)]
    column, other = _operand(text, left), _operand(text, right)
    if not isinstance(column, ColumnName) and word in _TURNED:
        column, word, other = other, _TURNED[word], column
    if not isinstance(column, ColumnName):
        raise _refused(text, left, "a column is needed here")
    if (other is None) != (word == "is"):
        raise _refused(text, right, "null is tested by `is null` and `is not null`")
    before = text.strip().encode()[: right.col_offset].rstrip()
    if word == "in" and isinstance(other, bool | int | float | str) and before[-1:] == b"(":
        other = (other,)  # Python reads (7) as 7
    if isinstance(other, tuple) != (word == "in"):
        raise _refused(text, right, "values in parentheses are only allowed after `in`")
    return ColumnTest(column, word, () if other is None else other, is_not != negated)


def _operand(text: str, node: ast.expr) -> Value | ColumnName | tuple[Value, ...] | None:
    """Return one side of a comparison: a column, a value, or a tuple; `None` for null."""
    match node:
        case ast.Name(name):
            word = name.lower()
            if word in _WORDS:
                return _WORDS[word]
            # From the source, since Python normalises some letters, such as the micro sign.
            return ColumnName(_source(text, node), _place(text, node))
        case ast.Call(ast.Name("col"), [ast.Constant(str() as name)], []):
            return ColumnName(name, _place(text, node))
        case ast.Tuple(items) | ast.List(items) if items:
            return tuple(_value(text, item) for item in items)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float()) as number):
            value = _operand(text, number)
            assert isinstance(value, int | float)
            return -value
        case ast.Constant(int() as number) if number.bit_length() > _MOST_BITS:
            raise _refused(text, node, "this number is too large")
        case ast.Constant(str()) if "\n" in _source(text, node):
            raise _refused(text, node, "a text must end in its line; write a line break as \\n")
        case ast.Constant(bool() | int() | float() | str() | None as value):
            return value
    raise _refused(text, node, "a column, a number, a text in quotes, true or false is needed here")


def _value(text: str, node: ast.expr) -> Value:
    value = _operand(text, node)
    if not isinstance(value, Value):
        raise _refused(text, node, "values are needed after `in`")
    return value


def _refuse_comments(text: str) -> None:
    """Reject comments: since lines are joined, a comment would hide all later lines, too."""
    line = _one_line(text).strip()
    for token in tokenize.generate_tokens(io.StringIO(line).readline):
        if token.type == tokenize.COMMENT:
            place = _indent(text) + token.start[1] + 1
            raise _error(text, place, "a filter cannot have comments")


def _source(text: str, node: ast.expr) -> str:
    return text.strip().encode()[node.col_offset : node.end_col_offset].decode()


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _place(text: str, node: ast.expr) -> int:
    line = _one_line(text).strip().encode()
    return _indent(text) + len(line[: node.col_offset].decode()) + 1


def _refused(text: str, node: ast.expr, message: str) -> SpecError:
    return _error(text, _place(text, node), message)


def _error(text: str, place: int, message: str) -> SpecError:
    return SpecError(message, where={"filter": text, "character": place}, hint=_HINT)
