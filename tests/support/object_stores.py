"""An S3 server of the test's own process: real HTTP, and an environment that points to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("flask_cors", reason="moto's S3 server is not installed: flask, flask-cors")
moto = pytest.importorskip("moto.server", reason="moto's S3 server is not installed: moto[s3]")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")


@contextmanager
def serving(bucket: str) -> Iterator[Any]:
    """A filesystem whose endpoint and keys come from the environment, as for a user.

    Args:
        bucket: Is made. All servers of a process share what they hold, so each has its own.
    """
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": host,
        "no_proxy": host,
    }
    s3fs.S3FileSystem.clear_instance_cache()  # one that was made earlier asks another endpoint
    with mock.patch.dict(os.environ, environment):
        filesystem = s3fs.S3FileSystem()
        filesystem.mkdir(bucket)
        yield filesystem
        filesystem.invalidate_cache()
        s3fs.S3FileSystem.clear_instance_cache()
    running.stop()
