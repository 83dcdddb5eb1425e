"""The table of an index's items in PostgreSQL: made, filled and indexed, by the types and operators of pgvector."""

import json
import logging
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.errors import InputError
from in2r.search.approximate import BUILD_EFFORT, LINKS, Kind
from in2r.search.base import Item, Precision
from in2r.search.connection import Place, require_psycopg

log = logging.getLogger(__name__)

LEAST = (0, 7)
"""of pgvector: the first with halfvec"""
ITERATIVE = (0, 8)
"""of pgvector: the first whose graph is searched on where rows that it found cannot be seen"""
HNSW_DIMS = 4000
"""pgvector's limit for an hnsw index of halfvec (2,000 of vector)"""
DIMS = 16_000
"""pgvector's limit for a column"""
INLINE = 8160
"""bytes of a row that stay together (toast_tuple_target, the largest allowed): PostgreSQL would move a vector of more
than some 500 numbers to another table, from which every comparison would fetch it"""
TYPES: dict[Precision, str] = {"float32": "vector", "float16": "halfvec"}
BIG_ENDIAN: dict[Precision, str] = {"float32": ">f4", "float16": ">f2"}
PREPARING = 0x496E3252
"""key of the lock under which a database is prepared; any number that is always the same"""


def prepare(connection: Any, place: Place) -> None:
    """Make the extension and the table of indexes, where they are not.

    Raises:
        InputError: the server has no pgvector, or an old one, or the user may not enable it; texts are not in UTF-8.
    """
    errors = require_psycopg().errors
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise InputError(
            f"{place}: the database is not in UTF8, so it cannot hold every id; make one with ENCODING 'UTF8'"
        )
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [PREPARING])
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except errors.InsufficientPrivilege:
        raise InputError(f"{place}: pgvector is not enabled; a superuser runs CREATE EXTENSION vector") from None
    except (errors.FeatureNotSupported, errors.UndefinedFile):
        raise InputError(f"{place}: the server has no pgvector; install it there (0.7 or newer)") from None
    found = enabled(connection)
    if found < LEAST:
        text = ".".join(map(str, found))
        raise InputError(f"{place}: pgvector {text}; expected 0.7 or newer (ALTER EXTENSION vector UPDATE)")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS in2r_indexes (name text PRIMARY KEY, precision text NOT NULL, config json NOT NULL)"
    )


def enabled(connection: Any) -> tuple[int, ...]:
    """Return the first two numbers of the version of pgvector that is enabled in the database."""
    [found] = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    return tuple(map(int, found.split(".")[:2]))


def require_dims(kind: Kind, dim: int, place: Place) -> None:
    """Refuse what pgvector cannot hold.

    Raises:
        InputError: ivf, or too many numbers.
    """
    if kind == "ivf":
        raise InputError(f"{place}: an index in PostgreSQL is exact or hnsw, not ivf")
    most = HNSW_DIMS if kind == "hnsw" else DIMS
    if dim > most:
        raise InputError(
            f"{place}: vectors of {dim:,} numbers; pgvector takes at most {most:,} ({kind}): take one network "
            f"(--network A){' or --kind exact' if kind == 'hnsw' else ''}"
        )


@dataclass(frozen=True)
class Table:
    """The items of an index.

    Attributes:
        name: of the table.
        dim: D.
        precision: of its column `embedding`.
    """

    name: str
    dim: int
    precision: Precision

    def sql(self, text: str) -> Any:
        """Return an SQL text with {table}, {type} and {dim} filled in."""
        sql = require_psycopg().sql
        kind = sql.SQL(TYPES[self.precision])
        return sql.SQL(text).format(table=sql.Identifier(self.name), type=kind, dim=sql.Literal(self.dim))

    def make(self, connection: Any) -> None:
        """Make it, empty and without indexes."""
        connection.execute(
            self.sql(
                'CREATE TABLE {table} (id text COLLATE "C" NOT NULL, columns jsonb NOT NULL, data text NOT NULL, '
                "split text NOT NULL, place integer NOT NULL, embedding {type}({dim}) NOT NULL) "
                f"WITH (toast_tuple_target = {INLINE})"
            )
        )

    def fill(self, connection: Any, records: Iterable[Item], data: str, vectors: NDArray[Any]) -> None:
        """Copy items and vectors to it, in the binary forms of PostgreSQL and pgvector.

        Args:
            connection: in a transaction.
            records: (n,) items.
            data: the key of the data that they are of.
            vectors: (n, D).
        """
        head, kind = struct.pack(">hh", self.dim, 0), BIG_ENDIAN[self.precision]
        text = "COPY {table} (id, columns, data, split, place, embedding) FROM STDIN (FORMAT BINARY)"
        with connection.cursor().copy(self.sql(text)) as copy:
            for item, vector in zip(records, vectors, strict=True):
                columns = b"\x01" + json.dumps(item["columns"], ensure_ascii=False).encode()
                _, split, place = item["at"]
                copy.write_row(
                    [item["id"], columns, data, split, struct.pack(">i", place), head + vector.astype(kind).tobytes()]
                )

    def index(self, connection: Any, kind: Kind) -> None:
        """Make its indexes: of ids, of what `where` asks for, and of hnsw the graph of vectors in half precision."""
        connection.add_notice_handler(lambda said: log.warning("%s", said.message_primary))
        connection.execute(self.sql("ALTER TABLE {table} ADD PRIMARY KEY (id)"))
        connection.execute(self.sql("CREATE INDEX ON {table} USING gin (columns jsonb_path_ops)"))
        if kind == "hnsw":
            connection.execute(
                self.sql(
                    "CREATE INDEX ON {table} USING hnsw ((embedding::halfvec({dim})) halfvec_ip_ops) "
                    f"WITH (m = {LINKS}, ef_construction = {BUILD_EFFORT})"
                )
            )
        connection.execute(self.sql("ANALYZE {table}"))

    def vectors(self, values: Sequence[bytes]) -> NDArray[Any]:
        """Return (n, D) of what the database sends of n embeddings in binary form."""
        flat = np.frombuffer(b"".join(value[4:] for value in values), BIG_ENDIAN[self.precision])
        return flat.reshape(len(values), self.dim).astype(self.precision)


def vector_text(vector: NDArray[np.float32]) -> str:
    """Return a vector (D,) as pgvector reads it, without a loss."""
    return f"[{','.join(map(repr, vector.tolist()))}]"
