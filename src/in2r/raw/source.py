"""What a reader of raw data hands over: the pair table, its images in order, its captions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from in2r.data.verdicts import Verdict
from in2r.raw.places import Item


@dataclass(frozen=True)
class Source:
    """Pairs before their features exist.

    Attributes:
        name: what the user calls it: the file name of the table, or that of the folder.
        table: the file name of the pair table in the new folder, such as pairs.csv.
        write_table: writes it to a path.
        columns: image, caption and, if there is one, split → the table's own names.
        encoding: of a table that is not UTF-8; else None.
        items: the images that the table names, each once, in its order.
        captions: a text for each row of the table, or None where it has no captions.
        left_out: what is in no row of the table.
        identity: what the table and the images are, to tell a resumed command from another one.
        notes: a line each on how values were understood.
    """

    name: str
    table: str
    write_table: Callable[[Path], None]
    columns: dict[str, str]
    encoding: str | None
    items: Sequence[Item]
    captions: Sequence[str] | None
    identity: dict[str, str]
    left_out: Sequence[Verdict] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def distinct(names: Sequence[str]) -> Iterator[str]:
    """Yield each name once, in the order of their first places."""
    return iter(dict.fromkeys(names))
