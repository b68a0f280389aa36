"""Checks arguments where Python would say nothing, or the loop would be harmed.

A time that is no number, as the result of a calculation may be, would put the loop's timers out of
order: those of others would come late, or never.
"""

from rillnode.codecs.errors import RequestError


def seconds(name: str, value: object) -> None:
    """Have a number of seconds; an infinite one is a number, too.

    Raises:
        ArgumentError: it is none.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        text = f"{name} is a number of seconds, not {value!r:.80}"
        raise RequestError("client.argument", text)
