"""A proxy that names users shows a certificate to the server that the API's process runs."""

import ssl
from pathlib import Path

import httpx2
import pytest
from api_world import served
from made_certificates import write_certificate

from distrain.service.process.api_server import ApiServer
from distrain.service.settings import Listen, Settings, SignOn, TlsFiles
from distrain.service.store.store import migrate, open_store


def test_the_header_counts_from_who_shows_the_certificate_of_a_named_proxy(tmp_path: Path) -> None:
    (server_pem, server_key, _), *clients = (
        write_certificate(tmp_path, name, 1) for name in ("server", "proxy", "other")
    )
    authority = tmp_path / "ca.pem"
    authority.write_bytes(b"".join(pem.read_bytes() for pem, _, _ in clients))
    tls = TlsFiles(cert_file=server_pem, key_file=server_key, ca_file=authority)
    settings = Settings(
        data_dir=tmp_path / "data",
        clusters={},
        listen=Listen(port=0, tls=tls),
        sign_on=SignOn(proxy_names=("proxy",)),
    )
    migrate(settings)
    with open_store(settings) as store:
        server = ApiServer(store, settings, lambda: None)
        with served(server.app, server) as address:
            url = f"{address.replace('http:', 'https:')}/v1/me"
            named = {"X-Forwarded-User": "alice"}
            answers = []
            for pem, key, _ in clients:
                shown = ssl.create_default_context(cafile=server_pem)
                shown.check_hostname = False
                shown.load_cert_chain(pem, key)
                with httpx2.Client(verify=shown, timeout=60) as client:
                    answers += [client.get(url, headers=named) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200, 401, 401]
            assert answers[0].json()["user"] == "alice"
            nobody = ssl.create_default_context(cafile=server_pem)
            nobody.check_hostname = False
            client = httpx2.Client(verify=nobody, timeout=60)
            with client, pytest.raises(httpx2.TransportError):
                client.get(url, headers=named)
