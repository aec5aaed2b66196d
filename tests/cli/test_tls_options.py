"""The certificate that a command shows to a scheduler."""

from copy import deepcopy
from pathlib import Path

import click
import dask
import pytest
from click.testing import CliRunner
from distributed import Security

from distrain.cli.options import tls_options
from distrain.errors import ClusterError
from distrain.workers.open_cluster import connect


@click.command()
@tls_options
def _command() -> None:
    tls = Security().get_tls_config_for_role("client")
    click.echo(" ".join(Path(str(tls[name])).name for name in ("ca_file", "cert", "key")))


def test_they_reach_every_connection_of_the_process(tmp_path: Path) -> None:
    words = []
    for name in ("ca-file", "cert", "key"):
        path = tmp_path / f"{name}.pem"
        path.touch()
        words += [f"--tls-{name}", str(path)]
    before = deepcopy(dask.config.get("distributed.comm.tls"))
    try:
        done = CliRunner().invoke(_command, words)
    finally:
        dask.config.set({"distributed.comm.tls": before})
    assert done.output == "ca-file.pem cert.pem key.pem\n", done.output
    missing = CliRunner().invoke(_command, ["--tls-cert", str(tmp_path / "nope.pem")])
    assert missing.exit_code == 2
    assert "nope.pem" in missing.output


def test_tls_without_a_certificate_is_refused_before_anything_is_asked() -> None:
    with (
        pytest.raises(ClusterError) as caught,
        connect("tls://127.0.0.1:9"),
    ):
        pass
    assert "--tls-ca-file" in (caught.value.hint or "")
