"""The package's structure: folders that are overseen at a glance, and modules without circles."""

from pathlib import Path

from house import Structure, circles, line_kinds

ROOT = Path(__file__).parents[2]
MOST_MODULES = 16


def test_folders_are_small_and_modules_without_circles():
    package = Structure.of(ROOT)
    assert [name for name, size in package.folder_sizes().items() if size > MOST_MODULES] == []
    assert circles(package.edges()) == []
    assert package.past_faces() == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_lines_are_counted_by_what_they_hold():
    text = '"""One."""\n\n# Why.\nx = """\n# no comment\n"""\n'
    assert line_kinds(text) == {"docstring": 1, "empty": 1, "comment": 1, "code": 3}
