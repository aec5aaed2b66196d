"""The API over a real PostgreSQL: two of its processes at once, and texts that it cannot hold."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from api_world import World, api_world
from click.testing import CliRunner, Result

from distrain.cli.main import cli
from distrain.errors import InputError
from distrain.service.process.preparing import check_key


@pytest.fixture(scope="module")
def world(postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = postgres.new_database()
    with api_world(tmp_path_factory.mktemp("api"), database_url=url) as world:
        yield world


def test_a_process_with_another_key_does_not_start(world: World) -> None:
    check_key(world.store, world.settings)
    check_key(world.store, world.settings)
    folder = world.settings.data_dir / "elsewhere"
    folder.mkdir()
    other = world.settings.model_copy(update={"data_dir": folder})
    with pytest.raises(InputError, match=r"service\.key"):
        check_key(world.store, other)

    def serve(*words: str) -> Result:
        environment = {"DISTRAIN_SERVE_DATABASE_URL": str(world.settings.database_url)}
        place = ["--data-dir", str(folder)]
        return CliRunner().invoke(cli, ["serve", *words, *place], env=environment)

    for words in (("api", "--port", "0"), ("reconcile",)):
        assert isinstance(serve(*words).exception, InputError)
    checks = {check["name"]: check for check in json.loads(serve("check", "--json").stdout)}
    assert checks["key of all processes"]["verdict"] == "fail"
    assert serve("migrate").exit_code == 0  # the key was changed on purpose
    checks = {check["name"]: check for check in json.loads(serve("check", "--json").stdout)}
    assert "key of all processes" not in checks
    with pytest.raises(InputError):
        check_key(world.store, world.settings)
