"""Certificates for every role, made by the script for real."""

import os
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from unit_files import DEPLOY
from wording import Wording

SCRIPT = DEPLOY / "certificates" / "make-certificates"
ROLES = {"scheduler", "worker", "client", "service", "proxy"}
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def make(folder: Path, *words: str, code: int = 0) -> str:
    """What the script says, on both streams."""
    done = subprocess.run(
        [SCRIPT, "--folder", folder, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    assert not list(folder.glob(".making.*"))  # nothing is left of the making
    return done.stdout


def certificate(folder: Path, role: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{role}.pem").read_bytes())


def hosts(folder: Path, role: str) -> set[str]:
    names = certificate(folder, role).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return {str(name.value) for name in names.value}


def state(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "new" / "tls"
    told = make(folder, "--host", "gpu1.example", "--host", "10.0.0.7", "--host", "fd00::7")
    assert all(f"made   {folder}/{role}.pem" in told for role in ROLES)
    assert "distrain doctor --scheduler" in told  # the next command
    return folder


def test_every_role_has_a_certificate_for_what_it_does(made: Path):
    authority = certificate(made, "ca")
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    uses = {role: {SERVER, CLIENT} for role in ("scheduler", "worker")}
    # A service's or a proxy's key opens no comm of Dask's.
    uses |= {"client": {CLIENT}, "service": {SERVER}, "proxy": {SERVER}}
    for role in ROLES:
        found = certificate(made, role)
        found.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key((made / f"{role}-key.pem").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert key.public_key() == found.public_key()
        assert found.subject.rfc4514_string() == f"CN=distrain-{role}"
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(usage) == uses[role]
        left = found.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=364) < left <= timedelta(days=365)
    wanted = {"localhost", "127.0.0.1", "::1", "gpu1.example", "10.0.0.7", "fd00::7"}
    assert hosts(made, "scheduler") == hosts(made, "proxy") == wanted


def test_keys_are_their_owners_alone(made: Path):
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in made.iterdir()}
    assert modes == {
        name: 0o600 if name.endswith("-key.pem") else 0o644
        for role in ROLES | {"ca"}
        for name in (f"{role}.pem", f"{role}-key.pem")
    }


def test_a_second_run_changes_nothing_and_a_new_host_what_it_must(made: Path):
    before = state(made)
    told = make(made, "--host", "gpu1.example", "--host", "FD00:0::7")
    assert state(made) == before
    assert "made" not in told.partition("Next:")[0]
    told = make(made, "--host", "jobs.example", "proxy")
    after = state(made)
    assert {name for name in after if after[name] != before[name]} == {"proxy.pem", "proxy-key.pem"}
    assert "it lacks DNS:jobs.example" in told
    assert {"jobs.example", "gpu1.example", "fd00::7"} < hosts(made, "proxy")  # those it had stay


def test_what_ends_soon_is_renewed_with_its_hosts(tmp_path: Path):
    make(tmp_path, "--host", "a.example", "--days", "50", "service", "client")
    before = state(tmp_path)
    make(tmp_path, "--renew", "49", "service", "client")
    assert state(tmp_path) == before
    told = make(tmp_path, "--renew", "51", "service", "client")
    after = state(tmp_path)
    assert {name for name in after if after[name] == before[name]} == {"ca.pem", "ca-key.pem"}
    assert "it ends within 51 days" in told
    assert "a.example" in hosts(tmp_path, "service")


def test_an_authority_is_never_replaced(tmp_path: Path):
    make(tmp_path, "client")
    before = state(tmp_path)
    key = (tmp_path / "ca-key.pem").rename(tmp_path.with_name(tmp_path.name + "-ca-key.pem"))
    assert "whose key is elsewhere" in make(tmp_path, "client")  # nothing had to be signed
    told = make(tmp_path, "worker", code=1)
    assert "Bring the CA's key back" in told
    other = tmp_path.with_name(tmp_path.name + "-other")
    make(other, "client")
    (tmp_path / "ca-key.pem").write_bytes((other / "ca-key.pem").read_bytes())
    assert "is not the key of" in make(tmp_path, "worker", code=1)
    key.replace(tmp_path / "ca-key.pem")
    assert state(tmp_path) == before


def test_a_killed_run_is_mended_by_the_next(tmp_path: Path):
    make(tmp_path, "worker")
    authority = certificate(tmp_path, "ca")
    key = (tmp_path / "worker-key.pem").read_bytes()
    make(tmp_path.with_name(tmp_path.name + "-x"), "worker")
    # The key was moved into place, the certificate not yet.
    (tmp_path / "worker-key.pem").write_bytes(
        (tmp_path.with_name(tmp_path.name + "-x") / "worker-key.pem").read_bytes()
    )
    assert "do not belong together" in make(tmp_path, "worker")
    assert (tmp_path / "worker-key.pem").read_bytes() != key
    certificate(tmp_path, "worker").verify_directly_issued_by(authority)
    # The authority's key was made, its certificate not yet.
    (tmp_path / "ca.pem").unlink()
    make(tmp_path, "worker")
    certificate(tmp_path, "worker").verify_directly_issued_by(certificate(tmp_path, "ca"))


MISTAKES = (
    ("--host", "a.example:8787"),
    ("--host", "a\nb"),
    ("--host", "-x"),
    ("--days", "soon"),
    ("--days", "20", "--renew", "30"),
    ("--frobnicate",),
    ("workers",),
)


def test_mistakes_are_told_before_anything_is_made(tmp_path: Path, wording: Wording):
    for words in MISTAKES:
        wording(make(tmp_path, *words, code=2))
        assert not [*tmp_path.iterdir()], words
    make(tmp_path, "--host", "300.1.1.1", code=1)  # which openssl refuses
    assert not [*tmp_path.iterdir()]


def test_files_can_be_given_to_another_user(tmp_path: Path):
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    make(tmp_path, "--owner", "10001:10001", "worker")
    owners = {file.name: file.stat().st_uid for file in tmp_path.iterdir()}
    assert owners == {"ca.pem": 0, "ca-key.pem": 0, "worker.pem": 10001, "worker-key.pem": 10001}
    make(tmp_path, "--host", "new.example", "worker")
    assert (tmp_path / "worker-key.pem").stat().st_uid == 10001
