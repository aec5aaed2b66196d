"""Makes small wrong edits of a Python source, each of which a test should notice.

An edit replaces a few characters and keeps the line numbers. Messages, hints, logs, annotations and
assertions are not edited: few tests check them, and none should have to.

"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
COMPUTED = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "//", "<<": ">>", ">>": "<<"}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
MESSAGES = {"hint", "where", "message", "help", "description", "timeout", "name"}
ASSERTIONS = {"strict"}  # as of `zip`
LOGGERS = {"log", "logger", "logging", "warnings"}


@dataclass(frozen=True)
class Mutation:
    """One edit.

    Attributes:
        line: The line of its first character, from 1.
        begin: The offset of the first replaced byte.
        end: The offset after the last replaced byte.
        new: The replacement.
        what: A description of the edit.
    """

    line: int
    begin: int
    end: int
    new: str
    what: str

    def applied(self, source: bytes) -> bytes:
        """Return the edited source."""
        return source[: self.begin] + self.new.encode() + source[self.end :]


def mutations(source: bytes) -> list[Mutation]:
    r"""Return all edits of a source, in order of position.

    >>> for found in mutations(b"def f(a):\n    return a < 3\n"):
    ...     print(found.line, found.what)
    2 a < 3 -> a <= 3
    2 3 -> 4
    """
    found = list(_Finder(source).inside(ast.parse(source), in_function=False))
    return sorted(found, key=lambda mutation: (mutation.begin, mutation.what))


class _Finder:
    def __init__(self, source: bytes):
        self._source = source
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._starts = [sum(lengths[:number]) for number in range(len(lengths))]

    def inside(self, node: ast.AST, in_function: bool) -> Iterator[Mutation]:
        for child in _mutable_children(node):
            inner = in_function or isinstance(child, ast.FunctionDef | ast.Lambda)
            if in_function:
                yield from self._of(child)
            yield from self.inside(child, inner)

    def _of(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from self._between(node, left, right, COMPARED)
            case ast.BinOp(left=left, right=right) if not _is_text(left) and not _is_text(right):
                yield from self._between(node, left, right, COMPUTED)
            case ast.BoolOp(values=[first, second, *_]):
                yield from self._between(node, first, second, {"and": "or", "or": "and"})
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._edit(node, node, self._text(operand))
            case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
                yield self._edit(test, test, f"not ({self._text(test)})")
            case ast.Constant(value=bool(value)):
                yield self._edit(node, node, str(not value))
            case ast.Constant(value=int(value)):
                yield self._edit(node, node, str(value + 1))
            case ast.Expr(value=ast.Call()) if not _is_logging(node.value):
                yield self._edit(node, node, "pass")
            case ast.Call(func=ast.Name(id=name) as function) if name in CALLED:
                yield self._edit(function, node, CALLED[name])
            case ast.AugAssign(target=target, value=value):
                yield from self._between(node, target, value, {"+=": "-=", "-=": "+="})

    def _between(
        self, node: ast.AST, left: ast.AST, right: ast.AST, words: dict[str, str]
    ) -> Iterator[Mutation]:
        """Replace the operator between two operands."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[begin:end].decode()
        pattern = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
        operator = re.search(rf"(?<![\w<>=!*/]){'(' + pattern + ')'}(?![\w<>=*/])", gap)
        if operator:
            first = begin + len(gap[: operator.start()].encode())
            last = first + len(operator[0])
            yield self._mutation(node, first, last, words[operator[0]])

    def _edit(self, node: ast.AST, shown: ast.AST, new: str) -> Mutation:
        return self._mutation(shown, *self._span(node), new)

    def _mutation(self, shown: ast.AST, begin: int, end: int, new: str) -> Mutation:
        first, last = self._span(shown)
        text = self._source
        after = text[first:begin] + new.encode() + text[end:last]
        what = f"{_short(text[first:last])} -> {_short(after)}"
        line = text.count(b"\n", 0, begin) + 1
        return Mutation(line, begin, end, new, what)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end].decode()


def _mutable_children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's children that may be edited, not messages, annotations and assertions."""
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "annotation", "returns", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_exempt(child):
                yield child


def _is_exempt(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.keyword(arg=arg):
            return arg in MESSAGES | ASSERTIONS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call():
            return _is_logging(node)
        case ast.FunctionDef(name=name):
            return name in ("__repr__", "__str__")
    return False


def _is_logging(call: ast.AST) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in LOGGERS
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _short(text: bytes) -> str:
    words = " ".join(text.decode().split())
    return words if len(words) <= 70 else words[:67] + "..."
