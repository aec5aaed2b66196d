"""What mutants are made of."""

import ast

from tools.mutants import run
from tools.mutants.mutants_of import mutations

SOURCE = b'''
"""Told."""
LIMIT = 3

def f(a: int = 1, *, hint="x" + "y") -> "1 < 2":
    """Told 1 < 2."""
    if TYPE_CHECKING:
        a = 9
    assert a < 7
    log.info("%d", a + 1)
    if not a and a in LIMITS:
        raise ValueError(f"{a + 1} < 2")
    g(min(a, LIMIT), hint=a - 4)
    total = "\xc3\xa9" + str(a << 2)  # \xc3\xa9
    total += a // LIMIT
    while a:
        a -= True
    return a is not None
'''


def test_edits_are_where_behaviour_is_and_keep_the_lines() -> None:
    found = mutations(SOURCE)
    assert [(m.line, m.what) for m in found] == [
        (5, "1 -> 2"),
        (11, "not a -> a"),
        (11, "not a and a in LIMITS -> not (not a and a in LIMITS)"),
        (11, "not a and a in LIMITS -> not a or a in LIMITS"),
        (11, "a in LIMITS -> a not in LIMITS"),
        (13, "g(min(a, LIMIT), hint=a - 4) -> pass"),
        (13, "min(a, LIMIT) -> max(a, LIMIT)"),
        (14, "a << 2 -> a >> 2"),
        (14, "2 -> 3"),
        (15, "total += a // LIMIT -> total -= a // LIMIT"),
        (15, "a // LIMIT -> a * LIMIT"),
        (16, "a -> not (a)"),
        (17, "a -= True -> a += True"),
        (17, "True -> False"),
        (18, "a is not None -> a is None"),
    ]
    for mutation in found:
        edited = mutation.applied(SOURCE)
        assert edited != SOURCE
        assert edited.count(b"\n") == SOURCE.count(b"\n")
        ast.parse(edited)


def test_the_tests_of_a_module_are_those_that_import_it() -> None:
    named = {file for tests in run.CORE.values() for file in tests.split()}
    assert {file for file in named if not (run.ROOT / file).exists()} == set()
    assert run.lies_in("distrain.loader.Loader") == "distrain/loader/loader.py"
    found = run.tests_of("distrain/diagnostics/bench/thresholds.py").split()
    assert "tests/diagnostics/bench/test_bench_verdict.py" in found
    assert "tests/diagnostics/bench/test_bench_results.py" not in found


def test_edits_that_no_test_can_notice_are_edits() -> None:
    found = set()
    for module in {module for module, _, _ in run.EQUIVALENT}:
        source = (run.ROOT / module).read_bytes()
        lines = [line.strip() for line in source.decode().splitlines()]
        found |= {(module, m.what, lines[m.line - 1]) for m in mutations(source)}
    assert run.EQUIVALENT.keys() - found == set()
