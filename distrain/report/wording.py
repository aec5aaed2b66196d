"""Figures as people read them; a dash for those that are not known."""


def count(value: float | None) -> str:
    """A whole number.

    >>> count(1234567), count(None)
    ('1,234,567', '-')
    """
    return "-" if value is None else f"{value:,.0f}"


def number(value: float | None) -> str:
    """A metric."""
    return "-" if value is None else f"{value:.5f}"


def percent(value: float | None) -> str:
    """A share, given in percent."""
    return "-" if value is None else f"{value:.1f} %"


def bounded(value: float | None, bound: float | None) -> str:
    """A metric, and what counting in bins may be off by; that is no confidence interval."""
    if value is None:
        return "-"
    return f"{value:.5f} (bins: within {bound:.1e})" if bound else f"{value:.5f}"


def duration(seconds: float | None) -> str:
    """A time span.

    >>> duration(75), duration(3700), duration(4.2), duration(None)
    ('1m15s', '1h01m', '4.2s', '-')
    """
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{seconds:.1f}s"


def bytes_size(size_bytes: float | None) -> str:
    """A size in memory.

    >>> bytes_size(3 * 2**30), bytes_size(700_000)
    ('3.0 GiB', '0.7 MiB')
    """
    if size_bytes is None:
        return "-"
    if size_bytes >= 2**30:
        return f"{size_bytes / 2**30:.1f} GiB"
    return f"{size_bytes / 2**20:.1f} MiB"
