"""Parameter types that several commands share."""

import re

import click

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class Count(click.ParamType):  # type: ignore[type-arg]
    """A whole number with an optional suffix: k, M or G for thousands, millions, billions.

    >>> COUNT.convert("1.5M", None, None)
    1500000
    """

    name = "count"

    def convert(
        self,
        value: str | int,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """The number that `value` says."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d[\d_]*)(?:\.(\d+))?([kmg]?)", value.strip().lower())
        if match:
            whole, fraction, suffix = match[1].replace("_", ""), match[2] or "", match[3]
            # In whole numbers: 1.1M is 1,100,000 and not a float beside it.
            number, rest = divmod(
                int(whole + fraction) * _FACTORS[suffix], int("1" + "0" * len(fraction))
            )
            if not rest:
                return number
        self.fail(f"{value!r} is not a count such as 250000, 100k, 1.5M or 4G", param, ctx)


COUNT = Count()
