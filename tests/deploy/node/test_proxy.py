"""nginx with the configuration that is shipped, before a real job service."""

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import real_nginx
import yaml
from service_processes import Serve, serving
from unit_files import DEPLOY, fixed_port

from distrain.service.settings import Limits, SignOn

PROXY = DEPLOY / "proxy"
MAKE = DEPLOY / "certificates" / "make-certificates"


@dataclass
class Site:
    """nginx's files in a folder, and its addresses.

    Attributes:
        socket: Where the service listens.
        tls: The cluster's certificates.
    """

    folder: Path
    socket: Path
    tls: Path
    https: int
    http: int

    @property
    def url(self) -> str:
        return f"https://localhost:{self.https}"

    def trust(self, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.tls / "ca.pem"))
        if cert is not None:
            context.load_cert_chain(cert, key)
        return context

    def client(self, context: ssl.SSLContext | None = None, **options: Any) -> httpx2.Client:
        verify = context or self.trust()
        return httpx2.Client(base_url=self.url, verify=verify, timeout=60.0, **options)


def site_in(folder: Path, sign_on: str, upstream: str = "unix") -> Site:
    """The shipped files, with this folder and free ports in place of the machine's."""
    tls = folder / "tls"
    subprocess.run([MAKE, "--folder", tls, "proxy", "service"], check=True, capture_output=True)
    site = Site(folder, folder / "api.sock", tls, fixed_port(), fixed_port())
    places = {
        "/etc/distrain/tls": str(tls),
        "/etc/distrain/people-ca.pem": str(folder / "people-ca.pem"),
        "/run/distrain/api.sock": str(site.socket),
        "/run/nginx.pid": str(folder / "nginx.pid"),
        "/dev/stdout": str(folder / "access.log"),
        "/dev/stderr": str(folder / "stderr.log"),
        "server service:8686": "server 127.0.0.1:9",
        "listen 80;": f"listen 127.0.0.1:{site.http};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{site.https} ssl http2;",
        "listen [::]:80;": "",
        "listen [::]:443 ssl http2;": "",
    }
    sources = {
        "nginx.conf": "nginx.conf",
        "upstream.conf": f"upstream-{upstream}.conf",
        "sign-on.conf": f"sign-on-{sign_on}.conf",
    }
    for name, source in sources.items():
        text = (PROXY / source).read_text()
        for there, here in places.items():
            text = text.replace(there, here)
        (folder / name).write_text(real_nginx.below(text, folder) if name == "nginx.conf" else text)
    return site


def people(folder: Path, subject: str, name: str) -> tuple[Path, Path]:
    """A person's certificate and key, of the authority for people; the first call makes that."""
    words = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority = [folder / "people-ca.pem", folder / "people-ca-key.pem"]
    if not authority[0].exists():
        made = ["-x509", "-subj", "/CN=people", "-out", authority[0], "-keyout", authority[1]]
        subprocess.run([*words, *made], check=True, capture_output=True)
    cert, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    signed = ["-subj", subject, "-x509", "-CA", authority[0], "-CAkey", authority[1]]
    if subprocess.check_output(["openssl", "version"], text=True).split()[1] < "3":
        pytest.skip("OpenSSL 1.1 does not sign with `openssl req -CA`")
    subprocess.run([*words, *signed, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key


@contextmanager
def served(site: Site, **more: Any) -> Iterator[Serve]:
    """The service on the site's socket."""
    config = site.folder / "serve.yaml"
    listen = {"unix_socket": str(site.socket), "public_url": site.url}
    config.write_text(yaml.safe_dump({"clusters": {}, "listen": listen, **more}))
    with serving(site.folder / "data", "--config", str(config)) as serve:
        assert serve.told["url"] == site.url
        yield serve


@contextmanager
def proxied(site: Site, **options: Any) -> Iterator[None]:
    with real_nginx.running(site.folder / "nginx.conf", lambda: answers(site, **options)):
        yield


def answers(site: Site, **options: Any) -> bool:
    try:
        with site.client(**options) as client:
            return client.get("/livez").status_code == 200
    except httpx2.TransportError:
        return False


def test_nginx_takes_each_configuration(tmp_path: Path):
    real_nginx.find_nginx()
    shutil.which("openssl") or pytest.skip("there is no openssl: install openssl")
    people(tmp_path, "/CN=alice", "alice")
    for sign_on, upstream in (("none", "tcp"), ("certificate", "unix"), ("oidc", "unix")):
        site = site_in(tmp_path, sign_on, upstream)
        assert real_nginx.checked(site.folder / "nginx.conf").endswith("test is successful")


def test_its_limits_are_the_services():
    text = (PROXY / "nginx.conf").read_text()
    told = re.search(r"client_max_body_size (\d+)k;", text)
    assert told
    assert int(told[1]) * 1024 == Limits().body_bytes
    assert f"proxy_set_header {SignOn().user_header} $distrain_user;" in text


@pytest.mark.slow
def test_a_service_behind_nginx(tmp_path: Path):
    real_nginx.find_nginx()
    site = site_in(tmp_path, "certificate")
    alice = site.trust(*people(tmp_path, "/CN=alice", "alice"))
    tricky = site.trust(*people(tmp_path, "/O=x,CN=operator/CN=mallory", "mallory"))
    with served(site, sign_on={}) as serve, proxied(site), site.client() as client:
        moved = httpx2.get(f"http://127.0.0.1:{site.http}/jobs?x=1")
        assert (moved.status_code, moved.headers["location"]) == (308, "https://127.0.0.1/jobs?x=1")
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.headers["strict-transport-security"] == "max-age=31536000"
        assert "server" not in ready.headers or ready.headers["server"] == "nginx"

        # Who somebody is: a token, a certificate of the authority for people, and nothing else.
        named = {"X-Forwarded-User": "operator", "x_forwarded_user": "operator"}
        assert client.get("/v1/me").status_code == 401
        assert client.get("/v1/me", headers=named).status_code == 401
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(site.socket)), base_url="http://service"
        ) as direct:  # the header would have counted there
            assert direct.get("/v1/me", headers=named).json()["user"] == "operator"
        bearer = {"Authorization": f"Bearer {serve.told['token']}"}
        assert client.get("/v1/me", headers=bearer).json()["user"] == "operator"
        with site.client(alice) as of_alice:
            me = of_alice.get("/v1/me", headers=named).json()
            assert (me["user"], me["is_admin"]) == ("alice", False)
        with site.client(tricky) as of_mallory:
            assert of_mallory.get("/v1/me").status_code == 401
        with site.client(
            site.trust(tmp_path / "tls/proxy.pem", tmp_path / "tls/proxy-key.pem")
        ) as of:
            assert of.get("/v1/me").status_code == 400  # of another authority

        too_large = client.post("/v1/jobs", headers=bearer, content=b"x" * (256 * 1024 + 1))
        assert too_large.status_code == 413
        assert client.get("/metrics").status_code == 401  # nginx is no local caller
        assert client.get("/metrics", headers=bearer).status_code == 200

        # A piece of a stream is here while the stream goes on.
        with client.stream("GET", "/v1/events?after=999", headers=bearer) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in stream.iter_lines() if line and line[0] != ":")
            assert next(lines) == "event: reset"
            assert json.loads(next(lines).removeprefix("data: ")) == {"jobs": []}

        tried = [client.post("/login", data={"token": "no"}).status_code for _ in range(12)]
        assert tried[0] == 401
        assert 429 in tried
    assert "dtr_" not in (tmp_path / "access.log").read_text()
