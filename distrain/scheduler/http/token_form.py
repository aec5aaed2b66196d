"""The page on which a browser enters the scheduler's token; no I/O."""

from collections.abc import Iterable
from html import escape

from distrain.workers.secrets import FILE_VARIABLE, TOKEN_VARIABLE

PARAMETER = "token"
"""The parameter of a URL with the token."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STYLE = """:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { max-width: 30rem; margin: 8vh auto; padding: 0 1rem }
input, button { font: inherit; padding: .2rem .6rem }"""


def token_form(query: Iterable[tuple[str, str]]) -> str:
    """Return the page; its form requests the same URL again, with the token as a parameter.

    `query` are the parameters of the request, and the form keeps all but the token.
    """
    parameters = list(query)
    is_wrong = any(name == PARAMETER for name, _ in parameters)
    kept = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in parameters
        if name != PARAMETER
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Token of the scheduler · distrain</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>Token of the scheduler</h1>
{'<p role="alert">This token is wrong.</p>' if is_wrong else ""}
<form method="get">{kept}<label>Token <input type="password" name="{PARAMETER}" required autofocus
autocomplete="current-password"></label> <button>Open</button></form>
<p>A scheduler has its own token, which users' tokens of the service do not replace. It was started
with the token in <code>{TOKEN_VARIABLE}</code>, or in the file that
<code>{FILE_VARIABLE}</code> names. For the local cluster of <code>distrain serve</code>, it is
<code>token</code> in <code>clusters/NAME/state.json</code> of
the service's data folder.</p>
</body></html>
"""
