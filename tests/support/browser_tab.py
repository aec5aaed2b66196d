"""A tab of a browser that remembers what went wrong in it."""

from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 90.0


class Tab:
    """A tab, through playwright.

    Args:
        browser: Playwright's.

    Attributes:
        page: Playwright's page.
        troubles: Errors of scripts, what the console shows as an error, requests that failed, and
            requests to any other server.
    """

    def __init__(self, browser: Any, width: int = 1500, height: int = 1100):
        self.context = browser.new_context(viewport={"width": width, "height": height})
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)  # a page shares a busy machine
        self.troubles: list[str] = []
        self._server = ""
        self.page.on("pageerror", lambda error: self.troubles.append(f"script: {error}"))
        self.page.on("console", self._said)
        self.page.on("response", self._answered)
        self.page.on("request", self._asked)

    def visit(self, url: str) -> None:
        """Go to a page, which may load what its own server has."""
        self._server = urlsplit(url).netloc
        self.page.goto(url)

    def open(self, url: str) -> None:
        """Go to a page and wait until Bokeh has drawn it."""
        self.visit(url)
        self.wait_until("window.Bokeh && Bokeh.documents.length > 0")
        self.wait_until("document.querySelectorAll('.bk-Column, .bk-Figure, .bk-DataTable').length")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)

    def wait_until(self, script: str, timeout_s: float = PATIENCE_S) -> None:
        """Return once an expression in the page is true."""
        self.page.wait_for_function(script, timeout=1e3 * timeout_s)

    def leave(self) -> None:
        """Go to no page."""
        self.page.goto("about:blank")

    def close(self) -> None:
        """Close it."""
        self.context.close()

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} ({message.location.get('url')})")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.troubles.append(f"{response.status}: {response.url}")

    def _asked(self, request: Any) -> None:
        asked = urlsplit(request.url)
        if asked.scheme in ("http", "https", "ws", "wss") and asked.netloc != self._server:
            self.troubles.append(f"asked another server: {request.url}")
