"""Makes the text of self-contained HTML pages; no I/O."""

import base64
import html
from collections.abc import Iterable, Sequence

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #e5e5e5; --well: #f6f6f6;
        --bad: #b3261e; --muted: #6b6b6b; --picture: none; }
/* On screens only: printed pages stay white. Plots invert lightness and keep hues. */
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #16181c; --line: #3a3d42; --well: #22252a; --bad: #ff8a80;
          --muted: #9a9a9a; --picture: invert(0.91) hue-rotate(180deg); }
}
@media print { :root { color-scheme: light; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em; } h2 { font-size: 1.15em; margin-top: 1.8em; }
h1, p { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
img { width: 100%; display: block; filter: var(--picture); } .wide img { min-width: 640px; }
.wide { overflow-x: auto; }
.pair { display: grid; gap: 1em;
        grid-template-columns: repeat(auto-fit, minmax(min(26em, 100%), 1fr)); }
.facts { columns: 26em; } .facts .wide { overflow: visible; }
.facts table { width: 100%; } .facts tr { break-inside: avoid; }
td, th { text-align: left; vertical-align: top; padding: 0.15em 1.2em 0.15em 0;
         border-bottom: 1px solid var(--line); }
td.long { min-width: 14em; overflow-wrap: anywhere; }
th { font-weight: 600; } pre { background: var(--well); padding: 0.8em; overflow-x: auto;
     white-space: pre-wrap; } .bad { color: var(--bad); } .muted { color: var(--muted); }
"""
_LONG = 24
"""Words of up to this number of characters are never broken over lines."""
# The page fetches nothing, even if a name or message contains markup.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, sections: Iterable[str]) -> str:
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(heading: str, *content: str) -> str:
    return f"<section><h2>{escaped(heading)}</h2>\n" + "\n".join(content) + "\n</section>"


def table(rows: Iterable[Sequence[object]], header: Sequence[object] = ()) -> str:
    """Return an HTML table; the first cell of each row is the row's heading."""
    lines = []
    if header:
        lines.append("".join(f"<th>{escaped(cell)}</th>" for cell in header))
    for first, *rest in rows:
        cells = f"<th>{escaped(first)}</th>"
        lines.append(cells + "".join(map(_cell, rest)))
    return (
        '<div class="wide"><table>' + "".join(f"<tr>{ln}</tr>\n" for ln in lines) + "</table></div>"
    )


def columns(content: str) -> str:
    """Return an HTML element with the content in two columns where there is room."""
    return f'<div class="facts">{content}</div>'


def _cell(value: object) -> str:
    words = str(value).split()
    kind = ' class="long"' if any(len(word) > _LONG for word in words) else ""
    return f"<td{kind}>{escaped(value)}</td>"


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escaped(text)}</p>'


def verbatim(text: str) -> str:
    return f"<pre>{escaped(text)}</pre>"


def folded(summary: str, content: str) -> str:
    """Return an HTML element that shows `summary`, and `content` after a click."""
    return f"<details><summary>{escaped(summary)}</summary>\n{content}</details>"


def pictures_of(svgs: Sequence[bytes], what: str) -> str:
    """Return an HTML element with embedded SVG pictures, beside each other where there is room.

    `what` is their alternative text.
    """
    data = (base64.b64encode(svg).decode("ascii") for svg in svgs)
    kind = "wide" if len(svgs) == 1 else "pair"
    images = (f'<img alt="{escaped(what)}" src="data:image/svg+xml;base64,{one}">' for one in data)
    return f'<div class="{kind}">{"".join(images)}</div>'


def escaped(value: object) -> str:
    """Escape text for HTML.

    >>> escaped('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    """
    return html.escape(str(value))
