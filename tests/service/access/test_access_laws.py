"""Laws of tokens, paths, cookies, rates and cursors."""

import posixpath
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import example, given, strategies as st
from pydantic import BaseModel

from distrain.jobs.spec import JobSpec
from distrain.jobs.spec.load import set_at
from distrain.jobs.spec.paths import PATHS
from distrain.service.access.policy import has_credentials, path_problem
from distrain.service.access.rules import RULES, Action, may
from distrain.service.access.sessions import is_token, make_token
from distrain.service.values import Principal, Role, Scope

SEGMENT = st.sampled_from(["a", "b", "..", ".", "", "%2e%2e", "*", "{a,..}", "..x", "data", "~"])


@given(st.data())
def test_one_wrong_character_of_a_token_is_seen(data: st.DataObject):
    text = make_token().text
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda c: c != text[place]))
    assert is_token(text)
    assert not is_token(text[:place] + letter + text[place + 1 :])


@given(st.text())
def test_texts_are_no_tokens(text: str):
    assert not is_token(text)


def test_tokens_differ_and_hide_their_text():
    made = [make_token() for _ in range(100)]
    assert len({token.text for token in made}) == len({token.id for token in made}) == 100
    assert made[0].text not in repr(made[0])
    assert made[0].sha256.hex() not in repr(made[0])


@given(st.lists(SEGMENT, min_size=1, max_size=6), st.booleans())
@example(["data", "..", "etc"], True)
def test_what_passes_is_below_a_root_for_every_reading(segments: list[str], is_absolute: bool):
    path = ("/" if is_absolute else "") + "/".join(segments)
    if path_problem(path, ["/data"]) is not None:
        return
    for reading in (path, path.replace("%2e", ".")):
        place = posixpath.normpath("/" + posixpath.normpath(reading).lstrip("/"))
        assert place == "/data" or place.startswith("/data/")


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/data", True),
        ("/data/a/day_*", True),
        ("//data/a", True),
        ("/data/./a", True),
        ("file:///data/a", True),
        ("FILE:///data/a", True),
        ("s3a://box/in/a", True),
        ("S3://box/in/a", True),
        ("/database", False),
        ("data/a", False),
        ("~/a", False),
        ("~alice/a", False),
        ("/data/../etc", False),
        ("/data/{a,../../etc}", False),
        ("file:///etc", False),
        ("file://data/a", False),
        ("local:///etc", False),
        ("s3://box/input", False),
        ("s3://box/in/../x", False),
        ("s3://box/in/%2e%2e/x", False),
        ("s3://other/in", False),
        ("simplecache::s3://box/in/a", False),
        ("s3://box/in/a::file:///etc", False),
        ("http://169.254.169.254/latest", False),
        (" /data/a", False),
        ("/data/a\n", False),
        ("", False),
    ],
)
def test_paths_under_roots(path: str, passes: bool):
    assert (path_problem(path, ["/data", "s3://box/in"]) is None) is passes


def test_without_roots_all_but_other_projects_runs_are_open():
    assert path_problem("/anywhere/a", [], ["/runs"]) is None
    assert path_problem("/runs/other/a", [], ["/runs"]) is not None
    assert path_problem("a", []) is not None


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/shared/data/day_*", True),
        ("/shared/runs/ads/job-1", True),
        ("/shared/runs/ads/job-*/x", True),
        ("/shared/runs/web/job-1", False),
        ("file:///shared/runs/web/job-1", False),
        ("/shared/run[s]/web/job-1", False),
        ("/shared/*/web/job-1", False),
        ("/shared/**/x.parquet", False),
        ("/shared/runs", False),
        ("/shared/*", False),  # lists the runs if it has no files
    ],
)
def test_runs_of_others_are_closed_below_an_allowed_root(path: str, passes: bool):
    roots, closed = ["/shared", "/shared/runs/ads"], ["/shared/runs"]
    assert (path_problem(path, roots, closed) is None) is passes
    assert (path_problem(path, [], ["/shared/runs"]) is None) is (passes and "/runs/" not in path)


def test_links_of_proc_are_no_way_around():
    assert path_problem("/proc/self/root/srv/distrain/service.db", []) is not None
    assert path_problem("/pro?/self/root/x", []) is not None


_NO_PLACES = {
    "name", "data.cache_size", "data.part_size", "data.max_list_length", "tags", "model.function",
    "model.options", "model.crosses.columns", "embeddings.tables", "embeddings.combiners",
    "evaluate.metrics", "data.filter", "data.windows.by", "data.windows.size",
    "train.early_stopping.metric", "checkpoint.keep_best", "data.weight", "data.class_weight",
    "model.tasks", "model.tasks.target", "model.tasks.weight", "model.sharing.order",
    "model.targets", "model.first_context", "model.second_context", "embeddings.inits",
}  # fmt: skip


def _texts(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The fields of a spec that hold a text of the user's choice."""
    for name, field in model.model_fields.items():
        for kind in _kinds(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _texts(kind, f"{prefix}{name}.")
            elif kind in (str, Any):
                yield prefix + name


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        return
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for one in inner:
        yield from _kinds(one)


def test_every_text_of_a_spec_is_a_place_or_known_to_be_none():
    found = set(_texts(JobSpec))
    assert found - _NO_PLACES == set(PATHS), "name a new path in PATHS, or say that it is none"


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="@:/?#\0"), min_size=1))
def test_passwords_in_urls_are_seen(password: str):
    assert has_credentials(f"https://alice:{password}@host/x") or password.split() != [password]


def test_an_empty_role_may_nothing_and_admins_all():
    nobody, admin = Principal("nobody"), Principal("admin", is_admin=True)
    for action, rule in RULES.items():
        assert may(nobody, action, "ads", "nobody") is rule.everybody
        assert may(admin, action, "ads", "other")
        none = Principal("admin", is_admin=True, scopes=frozenset(Scope) - {rule.scope})
        assert not may(none, action)
    assert set(RULES) == set(Action)
    assert not may(Principal("a", roles={"ads": Role.OPERATOR}), Action.CANCEL_JOB, "web", "a")


def test_a_value_is_set_only_in_a_section():
    for path in ("", "train.", "train..x", "train.epochs.x"):
        with pytest.raises(KeyError):
            set_at({"train": {"epochs": 1}}, path, 1)
