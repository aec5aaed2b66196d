"""`distrain serve` as a user has it: what it prints, and how it ends."""

import os
import signal

import pytest
from service_processes import serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    config = folder / "serve.yaml"
    config.write_text("clusters: {}\n")
    with serving(folder / "data", "--config", str(config)) as serve:
        yield serve


def me(serve):
    with serve.client() as client:
        return client.get("/v1/me").json()


def test_the_first_start_makes_all_that_it_needs(served, tmp_path):
    folder = served.told["data_dir"]
    assert os.stat(folder).st_mode & 0o077 == 0
    assert me(served)["is_admin"]
    with served.client("dtr_000000000000_x_0") as client:
        assert client.get("/v1/me").status_code == 401
    secret = served.told["token"].split("_")[2]
    assert secret not in served.log.read_text()
    assert [line for line in served.lines() if line.get("path") == "/v1/me"]
    with served.client() as client:
        assert client.get("/v1/me", headers={"X-Request-ID": "my-request"}).headers[
            "x-request-id"
        ] == ("my-request")


def test_ctrl_c_ends_the_service_in_order(tmp_path):
    with serving(tmp_path / "data", "--no-cluster") as serve:
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(60) == 0
        assert serve.log.read_text().endswith("the service has ended; clusters and jobs continue\n")
    with serving(tmp_path / "data", "--no-cluster") as serve:
        assert "token" not in serve.told  # it is shown once
