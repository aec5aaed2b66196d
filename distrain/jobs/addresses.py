"""Recognises hosts that only this machine can reach."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True if a host is `localhost` or a loopback address; other names are not resolved.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("::")
    (True, True, True, False)
    >>> is_loopback("::ffff:127.0.0.1"), is_loopback("127.0.0.1.example.com")
    (True, False)
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
