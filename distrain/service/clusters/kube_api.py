"""A client of the Kubernetes API: requests with timeouts, and errors with hints."""

import json
import os
import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2

from distrain.client.retries import certificate_hint
from distrain.errors import ClusterError
from distrain.service.profiles import Kubernetes

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # a pod's, mounted
CONNECT_S = 2.0
READ_S = 4.0

_MOST_WORDS = 1000  # the characters of an error response that are repeated in messages


class KubeRefused(ClusterError):
    """The Kubernetes API answered with an error status."""

    status = 0
    of_api = False  # whether the response is a `Status` object of Kubernetes, not a proxy's


class KubeApi(AbstractContextManager["KubeApi"]):
    """A connection to the API for a few calls.

    Each operation of a call has a timeout. The token is read for each call, since Kubernetes
    rotates it.
    """

    def __init__(self, section: Kubernetes, account: Path = ACCOUNT):
        inside = section.api_url is None
        self.url = _inside_url() if section.api_url is None else section.api_url.rstrip("/")
        self._token_file = section.token_file or (account / "token" if inside else None)
        ca_file = section.ca_file or (account / "ca.crt" if inside else None)
        self.namespace = section.namespace or _text(account / "namespace", "own namespace")
        self._http = httpx2.Client(
            base_url=self.url,
            headers={"Accept": "application/json", "User-Agent": "distrain"},
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            verify=self._trust(ca_file),
            follow_redirects=False,  # a redirect could send the token to another server
            trust_env=False,
        )

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return an object or a list as JSON values.

        Raises KubeRefused for an error response, and ClusterError if there is no response, or none
        of a Kubernetes API.
        """
        return self._ask("GET", path, query)

    def merge(self, path: str, patch: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Apply a JSON merge patch to an object, and return it.

        Raises KubeRefused with the status 409 if the object has changed since the `resourceVersion`
        in the patch.
        """
        return self._ask("PATCH", path, query, json.dumps(patch).encode())

    def _ask(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None = None
    ) -> dict[str, Any]:
        headers = {} if body is None else {"Content-Type": "application/merge-patch+json"}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_text(self._token_file, 'token')}"
        try:
            answer = self._http.request(method, path, params=query, headers=headers, content=body)
        except httpx2.HTTPError as error:
            raise self._failed(error) from error
        status, document = answer.status_code, _document(answer.content)
        if "kind" not in document and status not in (401, 403, 429) and status < 500:
            raise ClusterError(
                f"this is not a Kubernetes API: it answers {status} with something else",
                where={"api": self.url},
                hint="Check kubernetes.api_url.",
            )
        if not answer.is_success:
            raise self._refused(status, document)
        return document

    def _refused(self, status: int, answer: Mapping[str, Any]) -> KubeRefused:
        said = str(answer.get("message") or f"it answered {status}")[:_MOST_WORDS]
        message, hint = f"the Kubernetes API refused: {said}", "Check the workload."
        if status == 401:
            message = f"the Kubernetes API does not accept the token: {said}"
            hint = "It has expired or belongs to another cluster: check kubernetes.token_file."
        elif status == 429 or status >= 500:
            message, hint = (
                f"the Kubernetes API cannot answer now: {said}",
                ("The service tries again."),
            )
        where = {"api": self.url, "namespace": self.namespace}
        refused = KubeRefused(message, where=where, hint=hint)
        refused.status, refused.of_api = status, answer.get("kind") == "Status"
        return refused

    def _failed(self, error: Exception) -> ClusterError:
        hint = (
            "Check kubernetes.api_url, the pod's DNS, and whether a NetworkPolicy lets the service "
            "there."
        )
        return ClusterError(
            f"the Kubernetes API does not answer: {str(error) or repr(error)}",
            where={"api": self.url},
            hint=certificate_hint(error, "kubernetes.ca_file") or hint,
        )

    def _trust(self, ca_file: Path | None) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise ClusterError(
                f"the certificate of the Kubernetes API's CA cannot be used: {error}",
                where={"ca_file": str(ca_file)},
                hint="It is a PEM file; in a pod, ca.crt of the mounted service account.",
            ) from error


def _inside_url() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClusterError(
            "this is not a Kubernetes pod: KUBERNETES_SERVICE_HOST is not set",
            hint="Name kubernetes.api_url, namespace, token_file and ca_file in the profile.",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _text(file: Path, what: str) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"cannot read the {what} for the Kubernetes API: {error}",
            where={"file": str(file)},
            hint="In a pod, automountServiceAccountToken mounts it; elsewhere, name it in the "
            "profile.",
        ) from error
    if not text.isascii() or not text.isprintable() or not text:
        raise ClusterError(
            f"the {what} for the Kubernetes API is not one line of text", where={"file": str(file)}
        )
    return text


def _document(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
