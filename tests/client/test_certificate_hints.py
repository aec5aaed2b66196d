"""The hint for a server's certificate that was not accepted names what to change."""

import ssl

import pytest

from distrain.client.retries import certificate_hint


@pytest.mark.parametrize(("code", "part"), [(10, "Renew"), (62, "name"), (64, "name"), (20, "--x")])
def test_hints_by_the_cause(code: int, part: str) -> None:
    cause = ssl.SSLCertVerificationError()
    cause.verify_code = code
    error = OSError("wrapped")
    error.__cause__ = cause
    assert part in certificate_hint(error, "--x")


def test_other_errors_have_no_hint_about_certificates() -> None:
    assert certificate_hint(OSError(), "--x") == ""
