"""Links in Markdown files lead to files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative_links(text):
    """Targets of links and images outside code, without their anchors."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    for target in LINK.findall(prose):
        if not re.match(r"[a-z]+:|#", target):
            yield target.partition("#")[0]


def test_relative_links_lead_to_files(sources):
    links = [(path, target) for path, text in sources.items() for target in relative_links(text)]
    assert len(links) > 10
    broken = [f"{p}: {t}" for p, t in links if not (ROOT / p.parent / t).exists()]
    assert not broken
