"""The user's own pair table: every row and column as it stands, and some of its rows as a table of the same kind."""

import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from in2r.data.rows import read_encoded
from in2r.files import atomic_path


@dataclass(frozen=True)
class UserTable:
    """A pair table with all that is in it.

    Attributes:
        path: the file.
        encoding: of a text without byte-order mark; None means UTF-8.
        columns: every column as text, by the table's own names, in its order.
        image: the name of the column of images.
        caption: the name of the column of captions; None where there is none.
        lines: the line of each row in the file, from 1; Parquet: the row.
        left_out: row → why it has no features.
    """

    path: Path
    encoding: str | None
    columns: Mapping[str, list[str]]
    image: str
    caption: str | None
    lines: Sequence[int]
    left_out: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def ending(self) -> str:
        """The file's suffixes that say its kind: such as .csv or .tsv.gz."""
        name = self.path.name.lower()
        packed = ".gz" if name.endswith(".gz") else ""
        return Path(name.removesuffix(".gz")).suffix + packed

    def write_rows(self, target: Path, kept: NDArray[np.bool_]) -> None:
        """Write the rows that are kept, each as it stands, in the same format, encoding and columns.

        Args:
            target: the new file.
            kept: (rows,) bool.
        """
        if self.ending == ".parquet":
            self._write_parquet(target, kept)
            return
        text, mark, encoding = read_encoded(self.path, self.encoding)
        # A csv record ends where the csv module says, a JSON line at "\n" alone.
        lines = list(io.StringIO(text, newline="\n" if self.ending.startswith(".jsonl") else ""))
        first = [line - 1 for line in self.lines]
        chosen = lines[: first[0]] if first else lines
        for start, end, keep in zip(first, [*first[1:], len(lines)], kept.tolist(), strict=True):
            if keep:
                chosen += lines[start:end]
        own = "".encode(encoding)  # a mark that the codec writes by itself, such as that of utf-8-sig
        content = mark + "".join(chosen).encode(encoding).removeprefix(own)
        with atomic_path(target) as temporary:
            temporary.write_bytes(gzip.compress(content, mtime=0) if self.ending.endswith(".gz") else content)

    def _write_parquet(self, target: Path, kept: NDArray[np.bool_]) -> None:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(self.path).filter(pyarrow.array(kept))
        with atomic_path(target) as temporary:
            pyarrow.parquet.write_table(table, temporary)
