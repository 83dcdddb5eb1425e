"""Conditions on columns, as a user writes them: COLUMN=VALUE."""

from collections.abc import Sequence

from in2r.errors import InputError


def read_conditions(given: Sequence[str], named: str) -> dict[str, str]:
    """Return column → value.

    Args:
        given: COLUMN=VALUE each.
        named: what messages call them, such as --where.

    Raises:
        InputError: another form, or a column twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{named} {text!r}: expected COLUMN=VALUE")
        if name in found:
            raise InputError(f"{named} names {name!r} twice; expected each column once")
        found[name] = value
    return found
