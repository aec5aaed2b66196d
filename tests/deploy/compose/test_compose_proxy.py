"""nginx with the files that compose.yaml mounts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin")


@pytest.mark.skipif(NGINX is None, reason="no nginx here: apt-get install nginx-light")
def test_nginx_takes_what_is_mounted(compose, tmp_path):
    """Names of other containers and folders of the machine are replaced, and nothing else."""
    certificate = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-subj", "/CN=localhost"]
    certificate += ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", "proxy-key.pem"]
    made = [*certificate, "-out", "proxy.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    changes = {
        "/etc/distrain/tls": str(tmp_path),
        "/etc/nginx/mime.types": "mime.types",
        "/run/nginx.pid": str(tmp_path / "nginx.pid"),
        "server service:": "server 127.0.0.1:",
        "//grafana:": "//127.0.0.1:",
    }
    mounted = {}
    for mount in compose["services"]["proxy"]["volumes"]:
        source, target, _ = mount.split(":")
        if not source.startswith("./tls"):
            mounted[Path(target).name] = (COMPOSE / source).read_text()
    assert mounted.keys() == {"nginx.conf", "upstream.conf", "sign-on.conf"}
    (tmp_path / "mime.types").write_text("types {}\n")
    for name, text in mounted.items():
        for old, new in changes.items():
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
    for old in changes:
        assert any(old in text for text in mounted.values()), old
    command = [NGINX, "-t", "-q", "-p", f"{tmp_path}/", "-c", str(tmp_path / "nginx.conf")]
    tested = subprocess.run(command, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    inside = {int(port.split(":")[-1]) for port in compose["services"]["proxy"]["ports"]}
    listens = {
        int(port) for text in mounted.values() for port in re.findall(r"listen (\d+) ssl", text)
    }
    assert listens == inside
