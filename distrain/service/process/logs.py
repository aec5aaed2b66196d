"""Logs of the service's processes, without secrets: JSON objects, or lines on a terminal."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.types import Processor

_HIDDEN_KEYS = re.compile(
    r"(?i)^(authorization|cookie|set-cookie|.*(password|secret|token)|api_?key|key)$"
)
_SECRETS = (
    (re.compile(r"dtr_([0-9a-f]{12})_[0-9A-Za-z]+(_[0-9a-f]+)?"), r"dtr_\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 ***"),
    (re.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@"), r"\1:***@"),
    (re.compile(r"(?i)([?&](?:token|sig|signature|x-amz-[a-z-]+|password)=)[^\s&\"']+"), r"\1***"),
)
HIDDEN = "***"


def without_secrets(value: Any) -> Any:
    """Return a value without secrets, for logs.

    Tokens, passwords and signatures in texts, and the values of keys such as `password`, become
    `***`. Sequences and sets become lists, and other objects their text.

    >>> without_secrets("GET postgresql://me:secret@h/d with Bearer abcdefgh")
    'GET postgresql://me:***@h/d with Bearer ***'
    >>> without_secrets({"token": "abc", "token_id": "abc"})
    {'token': '***', 'token_id': 'abc'}
    """
    if isinstance(value, str):
        for pattern, replacement in _SECRETS:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(key, str) and _HIDDEN_KEYS.match(key) else without_secrets(v)
            for key, v in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [without_secrets(item) for item in value]
    if isinstance(value, bytes):
        return without_secrets(value.decode(errors="replace"))
    if value is None or isinstance(value, bool | int | float):
        return value
    return without_secrets(str(value))


def _redacted(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    cleaned: MutableMapping[str, Any] = without_secrets(dict(event))
    return cleaned


def set_up_logs(process: str, *, console: bool | None = None) -> None:
    """Send this process's logs to standard error; on a terminal as readable lines, else as JSON.

    `console` True or False chooses the form regardless of the terminal. Replaces the handlers of
    the root logger.
    """
    shown = sys.stderr.isatty() if console is None else console
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
    ]
    # Tracebacks contain arguments and URLs, so they become text before secrets are removed.
    last: list[Processor] = [structlog.processors.format_exc_info, _redacted]
    last += [
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if shown
        else structlog.processors.JSONRenderer(default=str)
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("httpx2", "httpcore", "httpcore2", "alembic", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)
