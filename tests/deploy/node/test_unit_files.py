"""The units for systemd as systemd reads them, and how much they expose."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit_files import DEPLOY, UNITS, Root, unit

from distrain.service.settings import load_settings

SERVICES = (
    "distrain-scheduler",
    "distrain-worker@",
    "distrain-service",
    "distrain-backup",
    "distrain-certificates",
)
MOST_EXPOSURE = {"distrain-backup": 1.5, "distrain-certificates": 2.5}
"""By `systemd-analyze security`, 0 to 10; others 2.0, which it calls OK. A unit without any of its
options has 9.6."""
DROP_INS = {
    "gpu.conf": "distrain-worker@",
    "writable.conf": "distrain-worker@",
    "postgresql.conf": "distrain-service",
    "api.conf": "distrain-service",
    "reconciler.conf": "distrain-reconciler",
    "backup-postgresql.conf": "distrain-backup",
}


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/lib/systemd")
    if found is None:
        pytest.skip(f"there is no {name} on this machine: install systemd")
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with programs of this machine in place of those in /opt/distrain."""
    folder = tmp_path / "units"
    folder.mkdir()
    for file in UNITS.glob("distrain-*.*"):
        text = re.sub(r"/opt/distrain/bin/[\w-]+", sys.executable, file.read_text())
        (folder / file.name).write_text(text)
    return folder


def drop_in(name: str, into: Path) -> None:
    folder = into / f"{DROP_INS[name]}.service.d"
    folder.mkdir(exist_ok=True)
    if name == "reconciler.conf":
        service = into / "distrain-service.service"
        (into / "distrain-reconciler.service").write_text(service.read_text())
    text = (UNITS / "examples" / name).read_text().replace("/usr/bin/pg_dump", sys.executable)
    (folder / name).write_text(re.sub(r"/opt/distrain/bin/\w+", sys.executable, text))


def verified(folder: Path) -> str:
    units = sorted(file.name for file in folder.glob("distrain-*.*") if file.is_file())
    names = [name.replace("@.", "@0.") for name in units]
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{folder}:/lib/systemd/system"},
    )
    return "".join(line for line in done.stderr.splitlines(True) if "distrain" in line)


def test_systemd_finds_no_mistake_in_the_units(installed: Path):
    assert verified(installed) == ""
    for name in DROP_INS:
        drop_in(name, installed)
    assert verified(installed) == ""
    unit_file = installed / "distrain-worker@.service"
    unit_file.write_text(unit_file.read_text().replace("KillMode=mixed", "KillModus=mixed"))
    assert "KillModus" in verified(installed)  # it would have told


def test_a_reconciler_has_its_own_credentials_and_no_folder_of_the_api(monkeypatch):
    lines = (UNITS / "examples" / "reconciler.conf").read_text().splitlines()
    assert "RuntimeDirectory=" in lines
    [variable] = [line.partition("=")[2] for line in lines if line.startswith("Environment=")]
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value.replace("%d", "/run/credentials/own"))
    here = load_settings(UNITS / "serve.yaml").clusters["here"]
    assert str(here.token_file) == "/run/credentials/own/scheduler.token"
    assert here.url == "https://127.0.0.1:8787"  # the file's other values stay


@pytest.mark.parametrize("name", SERVICES)
def test_units_expose_little(name: str):
    most = MOST_EXPOSURE.get(name, 2.0)
    words = ["security", "--offline=true", "--no-pager", f"--threshold={most * 10:.0f}"]
    done = subprocess.run(
        [tool("systemd-analyze"), *words, UNITS / f"{name}.service"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exposure level for" in done.stdout


def test_certificates_that_end_soon_are_made_anew_for_the_hosts_that_they_have(tmp_path: Path):
    tool("openssl")
    script, tls = DEPLOY / "certificates", tmp_path / "tls"
    short = [script / "make-certificates", "--folder", tls, "--days", "5", "--renew", "1"]
    subprocess.run([*short, "--host", "gpu1.example", "worker"], check=True, timeout=120)
    before = {file.name: file.read_bytes() for file in tls.iterdir()}
    root = Root(tmp_path, {"/opt/distrain/bin": str(script), "/etc/distrain/tls": str(tls)})
    assert root.start(unit("distrain-certificates"), tmp_path / "journal").wait(120) == 0
    assert "it ends within 30 days" in (tmp_path / "journal").read_text()
    changed = {name for name in before if (tls / name).read_bytes() != before[name]}
    assert changed == {"worker.pem", "worker-key.pem"}
    shown = ["openssl", "x509", "-in", tls / "worker.pem", "-noout", "-ext", "subjectAltName"]
    assert "gpu1.example" in subprocess.check_output(shown, text=True)


def test_every_example_of_a_drop_in_is_verified():
    assert {file.name for file in (UNITS / "examples").iterdir()} == set(DROP_INS)
    assert {file.stem for file in UNITS.glob("*.service")} == set(SERVICES)


def test_users_and_folders_are_made_as_the_units_want_them(tmp_path: Path):
    if "root" not in subprocess.check_output(["id", "-un"], text=True):
        pytest.skip("only root makes users, even in a folder")
    (tmp_path / "etc").mkdir()
    for name, tail in (("sysusers", []), ("tmpfiles", ["--create"])):
        file = UNITS / f"{name}.d" / "distrain.conf"
        subprocess.run(
            [tool(f"systemd-{name}"), f"--root={tmp_path}", *tail, file], check=True, timeout=60
        )
    members = (tmp_path / "etc/group").read_text()
    assert re.search(r"^distrain-runs:x:\d+:distrain,distrain-cluster$", members, re.M)
    users = (tmp_path / "etc/passwd").read_text()
    for name in SERVICES:
        for user in unit(name).options.get("User", []):
            assert re.search(f"^{user}:", users, re.M)
    runs = (tmp_path / "srv/distrain/runs").stat()
    assert runs.st_mode & 0o7777 == 0o2770
    assert (tmp_path / "var/lib/distrain").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "var/backups/distrain").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("name", ["distrain-scheduler", "distrain-worker@0", "distrain-service"])
def test_a_unit_works_in_a_folder_that_systemd_makes_for_it(name: str):
    options = unit(name).options
    made = [f"/var/cache/{one}" for one in options.get("CacheDirectory", [])]
    made += [f"/var/lib/{one}" for one in options.get("StateDirectory", [])]
    assert unit(name).last("WorkingDirectory") in made


def test_ports_of_the_firewall_the_kernel_and_the_units_do_not_meet():
    rules = UNITS / "nftables" / "distrain.nft"
    for ports in ("8686", "8786", "9000-9092", "29400-29499", "40000-49999"):
        assert re.search(rf"[ ,{{]{ports}[ ,}}]", rules.read_text()), ports
    assert "= 40000 49999" in (UNITS / "sysctl.d/60-distrain.conf").read_text()
    gpu = unit("distrain-worker@3", UNITS / "examples" / "gpu.conf")
    assert "CUDA_VISIBLE_DEVICES=3" in gpu.options["Environment"]
    for one in (gpu, unit("distrain-worker@3")):
        assert "--worker-port 9030 " in one.last("ExecStart")
    if os.getuid() == 0 and (nft := shutil.which("nft", path="/usr/sbin:/usr/bin")):
        subprocess.run([nft, "--check", "--file", rules], check=True, timeout=60)


def test_the_example_configuration_names_the_credentials_that_the_unit_loads():
    settings = load_settings(UNITS / "serve.yaml")
    here, tls = settings.clusters["here"], settings.listen.tls
    loaded = {
        f"/run/credentials/distrain-service.service/{entry.partition(':')[0]}"
        for entry in unit("distrain-service").options["LoadCredential"]
    }
    assert {str(tls.cert_file), str(tls.key_file), str(here.token_file)} == loaded
