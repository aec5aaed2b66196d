"""What the tasks over two vectors a row have in common."""

from distrain.errors import ModelError
from distrain.models.shapes import Branches, Shape, some_width


def tower_width(given: Shape, user: str, item: str, who: str) -> int:
    """The width of both vectors.

    Args:
        given: What comes in.
        user: The branch of users' vectors.
        item: The branch of items' vectors.
        who: Takes them.

    Raises:
        ModelError: There are no such branches, or their widths differ.
    """
    shapes = given.shapes if isinstance(given, Branches) else {}
    if not {user, item} <= set(shapes):
        raise ModelError(
            f"{who} takes branches {user!r} and {item!r}, and {given.made_by} gives {given}",
            hint="Let a ParallelBlock give a dictionary: aggregation=None.",
        )
    width = some_width(shapes[user], who)
    if width != shapes[item].width:
        one, two = (
            f"{name!r} of {shapes[name].made_by} is {shapes[name].width} wide"
            for name in (user, item)
        )
        raise ModelError(f"{who} multiplies vectors of one width: {one}, {two}")
    return width
