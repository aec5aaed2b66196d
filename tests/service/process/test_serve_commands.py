"""`distrain serve` without a server: checks, tokens, projects, mistakes."""

import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner
from other_user import NOBODY, unprivileged
from scripted_service import Reply, ScriptedService
from service_store import submitted

from distrain.cli.main import cli
from distrain.errors import DistrainError, OutputError
from distrain.service.process.checks import check_service
from distrain.service.process.preparing import make_folder
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.errors import RowNotFound
from distrain.service.store.store import open_store
from distrain.storage.objects import Objects


@pytest.fixture
def run(tmp_path):
    def call(*words, code=0):
        words = [str(word) for word in words]
        place = ["--data-dir", str(tmp_path / "data")]
        result = CliRunner().invoke(cli, ["serve", *words, *place], standalone_mode=False)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code or result.return_value == code, result.output
        return result.stdout

    return call


@pytest.fixture
def prepared(run):
    run("migrate")
    return run


def test_tokens_are_made_shown_once_and_revoked(prepared, tmp_path):
    made = json.loads(prepared("token", "create", "--user", "alice", "--scope", "read", "--json"))
    assert made["token"].startswith(f"dtr_{made['id']}_")
    [shown] = json.loads(prepared("token", "list", "--user", "alice", "--json"))
    assert (shown["state"], shown["scopes"]) == ("ok", ["read"])
    assert made["token"] not in json.dumps(shown)
    prepared("token", "revoke", made["id"])
    [shown] = json.loads(prepared("token", "list", "--user", "alice", "--json"))
    assert shown["state"] == "revoked"
    with pytest.raises(RowNotFound) as caught:
        prepared("token", "revoke", "0" * 12)
    assert caught.value.exit_code == 102
    secret = made["token"].split("_")[2].encode()
    for file in (tmp_path / "data").iterdir():
        assert secret not in file.read_bytes()


def test_what_the_configuration_declares_is_in_the_database(run, tmp_path):
    config = tmp_path / "serve.yaml"

    def members_of(declared):
        config.write_text(f"projects: {{ads: {{max_ranks: 4, members: {declared}}}}}\n")
        run("migrate", "--config", config)
        with open_store(Settings(data_dir=tmp_path / "data")) as store:
            [ads, default] = store.projects()
            assert (ads.quota.max_ranks, default.name) == (4, "default")
            return store.members("ads")

    assert members_of("{alice: operator}") == {"alice": "operator"}
    assert members_of("{bob: viewer}") == {"bob": "viewer"}
    config.write_text("projects: {}\n")
    run("migrate", "--config", config)
    with open_store(Settings(data_dir=tmp_path / "data")) as store:
        assert (store.roles("bob"), store.project("ads").quota.max_ranks) == ({}, 4)


def test_a_token_cannot_administer_unless_its_user_is_an_admin_or_it_is_asked_for(prepared):
    for user in ("alice", "operator"):
        prepared("token", "create", "--user", user)
    prepared("token", "create", "--user", "carol", "--scope", "admin")
    tokens = json.loads(prepared("token", "list", "--json"))
    scopes = {token["user"]: set(token["scopes"]) for token in tokens}
    assert scopes["alice"] == {"read", "submit", "cancel"}
    assert scopes["operator"] == scopes["alice"] | {"admin"}
    assert scopes["carol"] == {"admin"}


def test_check_passes_before_the_first_start(run):
    checks = {found["name"]: found for found in json.loads(run("check", "--json"))}
    assert (checks["data_dir"]["verdict"], checks["database"]["verdict"]) == ("note", "note")


def test_check_says_what_to_mend(prepared, tmp_path):
    checks = {found["name"]: found for found in json.loads(prepared("check", "--json"))}
    assert {found["verdict"] for found in checks.values()} == {"ok", "note"}
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    os.chmod(token, 0o644)
    (tmp_path / "data").chmod(0o755)
    config = tmp_path / "serve.yaml"
    config.write_text(
        "clusters: {a: {url: 'http://127.0.0.1:1', token_file: token, run_root: /proc/x}}"
    )
    told = prepared("check", "--json", "--config", config, code=1)
    checks = {found["name"]: found for found in json.loads(told)}
    assert checks["data_dir"]["mend"] == f"chmod 700 {tmp_path / 'data'}"
    assert checks["clusters.a.token_file"]["mend"] == f"chmod 600 {token}"
    assert checks["clusters.a.run_root"]["verdict"] == "fail"
    assert checks["clusters.a"]["verdict"] == "away"
    open_to_all = checks["clusters.a.allowed_roots"]
    assert (open_to_all["verdict"], "any path" in open_to_all["detail"]) == ("note", True)


def test_check_names_a_cluster_that_was_removed_with_jobs(prepared, tmp_path):
    with open_store(Settings(data_dir=tmp_path / "data")) as store:
        for name in ("local", "old", "old"):
            submitted(store, cluster=name)
    told = json.loads(prepared("check", "--json", code=1))
    [failed] = [found for found in told if found["verdict"] == "fail"]
    assert failed["name"] == "clusters.old"
    assert "no longer configured, and has 2 jobs" in failed["detail"]


def test_check_finds_a_damaged_database(prepared, tmp_path):
    file = tmp_path / "data" / "service.db"
    with closing(sqlite3.connect(file)) as database:
        found = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'outbox'")
        [root] = found.fetchone()
        [page_bytes] = database.execute("PRAGMA page_size").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as written:
        written.seek((root - 1) * page_bytes + 7)  # how many bytes of the page are fragments
        written.write(b"\x32")
    checks = {found["name"]: found for found in json.loads(prepared("check", "--json", code=1))}
    assert checks["database"]["verdict"] == "fail"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "ok"), (401, "fail"), (404, "fail"), (429, "away"), (502, "away")],
)
def test_the_answer_of_a_scheduler_is_a_verdict(tmp_path, status, verdict, wording):
    content = {"workers": []} if status == 200 else b"<html>"
    with ScriptedService(lambda seen: Reply(status, content)) as server:
        found = verdict_of_cluster(tmp_path, url=server.address)
    assert found.verdict == verdict
    wording(found.detail, url=server.address)


def test_a_token_that_no_header_holds_is_told_with_its_file(tmp_path):
    token = tmp_path / "token"
    token.write_text("tökenöfülltext16", encoding="utf-8")
    found = verdict_of_cluster(tmp_path, url="http://127.0.0.1:1", token_file=token)
    assert (found.verdict, str(token) in found.detail) == ("away", True)


def verdict_of_cluster(tmp_path, **profile):
    settings = Settings(data_dir=tmp_path, clusters={"a": ClusterProfile(**profile)})
    return next(one for one in check_service(settings) if one.name == "clusters.a")


def test_a_database_that_is_not_there_is_told_with_the_command(run):
    assert "distrain serve migrate" in run("check")


@pytest.mark.parametrize("place", ["file", "file/below", "link", "link/below", "closed/below"])
def test_a_data_folder_that_the_first_start_cannot_create_fails_the_check(place):
    with unprivileged() as folder:
        (folder / "file").write_text("")
        (folder / "link").symlink_to(folder / "missing")
        (folder / "closed").mkdir(mode=0o500)
        settings = Settings(data_dir=folder / place)
        with pytest.raises(OutputError):
            make_folder(settings)
        [found] = [one for one in check_service(settings) if one.name == "data_dir"]
        assert found.verdict == "fail"


def test_a_data_folder_that_can_be_created_is_noted_and_not_created(tmp_path):
    folder = tmp_path / "a" / "b"
    [found] = [one for one in check_service(Settings(data_dir=folder)) if one.name == "data_dir"]
    assert (found.verdict, [*tmp_path.iterdir()]) == ("note", [])


def test_a_data_folder_below_an_unreadable_one_is_an_error_of_the_output():
    with unprivileged() as folder:
        (folder / "unreadable").mkdir(mode=0o000)
        settings = Settings(data_dir=folder / "unreadable" / "data")
        for start in (make_folder, open_store):
            with pytest.raises(OutputError):
                start(settings)
        checks = {one.name: one.verdict for one in check_service(settings)}
        assert (checks["data_dir"], checks["database"]) == ("fail", "fail")


def test_mistakes(run, tmp_path, wording):
    config = tmp_path / "serve.yaml"
    config.write_text("listen: {host: 0.0.0.0}")
    for words in (
        ("check", "--config", config),
        ("token", "create", "--user", " "),
        ("--port", "1", "check"),  # options come after the command
    ):
        with pytest.raises((DistrainError, ClickException)) as caught:
            run(*words)
        wording(caught.value)


def test_secrets_of_root_may_be_read_by_our_group_alone():
    """As Kubernetes hands them to a pod that is not root's."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make files of root")
    with tempfile.TemporaryDirectory() as name, unprivileged() as folder:
        key = Path(name) / "cluster.token"

        def verdict_of(file):
            profile = ClusterProfile(url="http://127.0.0.1:1", token_file=file)
            checks = check_service(Settings(data_dir=folder, clusters={"a": profile}))
            [found] = [one for one in checks if one.name == "clusters.a.token_file"]
            return found

        for mode, verdict in ((0o440, "ok"), (0o444, "fail"), (0o460, "fail")):
            os.seteuid(0)
            Path(name).chmod(0o755)
            key.unlink(missing_ok=True)
            key.write_text("0" * 64)
            key.chmod(mode)
            os.seteuid(NOBODY)
            assert verdict_of(key).verdict == verdict
        mine = folder / "cluster.token"
        mine.write_text("0" * 64)
        mine.chmod(0o440)
        found = verdict_of(mine)
        assert (found.verdict, found.detail) == ("fail", f"other users can read {mine}")
        os.seteuid(0)


@pytest.mark.parametrize("ignored", [(), ("IfNoneMatch",), ("IfMatch",)])
def test_a_bucket_must_enforce_conditions_of_writes(tmp_path, monkeypatch, ignored):
    bucket = pytest.importorskip("object_stores").serving
    put = Objects._put

    def lax(self, name, content, **conditions):
        kept = {name: value for name, value in conditions.items() if name not in ignored}
        return put(self, name, content, **kept)

    monkeypatch.setattr(Objects, "_put", lax)
    name = "-".join(["checked", *ignored]).lower()
    with bucket(name):
        profile = ClusterProfile(url="http://127.0.0.1:1", run_root=f"s3://{name}/runs")
        checks = check_service(Settings(data_dir=tmp_path, clusters={"a": profile}))
    [found] = [one for one in checks if one.name == "clusters.a.run_root"]
    assert found.verdict == ("fail" if ignored else "ok"), found


def test_the_variable_for_the_configuration_is_for_all_commands(prepared, tmp_path, monkeypatch):
    config = tmp_path / "serve.yaml"
    config.write_text("clusters: {}\n")
    monkeypatch.setenv("DISTRAIN_SERVE_CONFIG", str(config))
    assert "database" in prepared("check")


def test_a_check_that_fails_twice_says_both(prepared, tmp_path, monkeypatch):
    (tmp_path / "data").chmod(0o755)
    full = shutil.disk_usage(tmp_path)._replace(free=2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    told = json.loads(prepared("check", "--json", code=1))
    mend = [found["mend"] for found in told if found["name"] == "data_dir"]
    assert mend == [f"chmod 700 {tmp_path / 'data'}", "Free space."]
