"""Addresses, tokens and logins: where a token goes, and where it never does."""

import gc
import json
import os
import ssl
import stat
from pathlib import Path

import pytest
from made_certificates import write_certificate
from scripted_service import Reply, ScriptedService

from distrain.client import Client, Retries, ServiceUnavailable
from distrain.client.credentials import (
    Login,
    find_login,
    parse_address,
    servers_file,
    store_login,
)
from distrain.errors import InputError

TOKEN = "dtr_0123456789_verysecretverysecret_abcdef"
ONCE = Retries(for_s=0.0)


@pytest.fixture
def config() -> Path:
    return servers_file()


@pytest.mark.parametrize(
    ("text", "base_url", "is_private"),
    [
        ("https://jobs.example", "https://jobs.example", True),
        ("https://jobs.example:8443/distrain/ ", "https://jobs.example:8443/distrain", True),
        ("http://localhost:8686", "http://localhost:8686", True),
        ("http://127.8.9.1:8686", "http://127.8.9.1:8686", True),
        ("http://[::1]:8686/", "http://[::1]:8686", True),
        ("unix:/run/distrain.sock", "http://localhost", True),
        ("unix:///run/distrain.sock", "http://localhost", True),
        ("http://jobs.example:8686", "http://jobs.example:8686", False),
        ("http://127.0.0.1.example.com", "http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", "http://localhost.example.com", False),
        ("http://10.0.0.5", "http://10.0.0.5", False),
    ],
)
def test_addresses(text: str, base_url: str, is_private: bool) -> None:
    address = parse_address(text)
    assert (address.base_url, address.is_private) == (base_url, is_private)
    assert parse_address(address.text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "jobs.example:8686", "tcp://10.0.0.5:8786", "https://", "http://a:99999"),
        *("https://a/?x=1", "https://a/#b", "https://a b/", "https://[::1"),
        *("unix:", "unix:run.sock"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert caught.value.hint


def test_a_token_is_not_sent_over_plain_http_unless_that_is_allowed() -> None:
    for address, secret in (("http://jobs.example", TOKEN), ("https://a:secret@b", "secret")):
        with pytest.raises(InputError) as caught:
            Client(address, TOKEN)
        assert secret not in str(caught.value)
    Client("http://jobs.example", TOKEN, plain_http=True).close()
    Client("http://jobs.example").close()  # no token, no secret
    with pytest.raises(InputError):
        Client()  # nobody is logged in


@pytest.mark.parametrize("token", ["", "dtr_a b", "dtr_a\n\nHost: x", "dtr_é"])
def test_a_token_that_is_none_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(InputError) as caught:
        Client("https://jobs.example", token)
    assert not token or token not in str(caught.value)


def test_a_client_shows_no_token() -> None:
    client = Client("https://jobs.example", TOKEN)
    assert TOKEN not in repr(client) + str(vars(client))
    assert TOKEN not in repr(Login("https://jobs.example", TOKEN))
    client.close()


def test_requests_to_this_machine_take_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with (
        ScriptedService(lambda seen: Reply(200, {"user": "alice"})) as service,
        Client(service.address, TOKEN, retries=ONCE) as client,
    ):
        assert client.me().user == "alice"


# httpx2 leaves a socket that could not be connected to Python's collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_unix_socket(tmp_path: Path) -> None:
    with (
        ScriptedService(lambda seen: Reply(200, {"user": "alice"}), tmp_path / "s") as service,
        Client(service.address, TOKEN, retries=ONCE) as client,
    ):
        assert client.me().user == "alice"
        assert client.address == f"unix:{tmp_path}/s"
    with Client(service.address, retries=ONCE) as client, pytest.raises(ServiceUnavailable):
        client.me()
    gc.collect()  # while the warnings are filtered


def test_a_file_of_an_authority_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(InputError, match=name):
            Client("https://jobs.example", ca_file=tmp_path / name)


def test_a_certificate_that_nobody_vouches_for_is_told_at_once(tmp_path: Path) -> None:
    certificate, key, _ = write_certificate(tmp_path, "service", 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ScriptedService(lambda seen: Reply(200, {"user": "alice"}), tls=context) as service:
        with (
            Client(service.address, TOKEN) as client,  # with all its patience
            pytest.raises(ServiceUnavailable) as caught,
        ):
            client.me()
        assert "once" in caught.value.where["tried"]
        assert "--ca-file" in str(caught.value.hint)
        with Client(service.address, TOKEN, ca_file=certificate) as client:
            assert client.me().user == "alice"


def test_logins_are_kept_for_this_user_alone(config: Path) -> None:
    store_login(config, Login("https://a.example", TOKEN, "alice"), default=True)
    store_login(config, Login("https://b.example", "dtr_b", "bob"), default=False)
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    assert [file.name for file in config.parent.iterdir()] == ["servers.json"]

    found = find_login()
    assert found == Login("https://a.example", TOKEN, "alice")
    assert token_for("https://b.example/") == "dtr_b"
    assert token_for("https://c.example") is None  # a token goes to the address of its login

    config.chmod(0o644)
    assert find_login() is not None
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def token_for(address: str | None, **environment: str) -> str | None:
    environment["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_HOME"]
    login = find_login(address, environment=environment)
    assert login is not None
    return login.token


def test_a_token_of_the_environment_is_for_the_environments_server() -> None:
    both = {"DISTRAIN_SERVER": "https://a.example/", "DISTRAIN_TOKEN": "dtr_env"}
    assert token_for(None, **both) == "dtr_env"
    assert token_for("https://a.example", **both) == "dtr_env"
    assert token_for("https://b.example", **both) is None
    assert token_for("https://b.example", DISTRAIN_TOKEN="dtr_env") == "dtr_env"


@pytest.mark.parametrize("text", ["{", "[]", '{"servers": {"a": 1}}', json.dumps({"servers": []})])
def test_a_damaged_file_of_logins_is_told_without_its_content(config: Path, text: str) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(text)
    with pytest.raises(InputError, match=config.name):
        find_login()
