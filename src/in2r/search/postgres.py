"""An index in a PostgreSQL database with pgvector: a table of items, and a row of `in2r_indexes` that describes it.

in2r_indexes     name, precision, config (as config.json of a folder)
in2r_NAME_G      id, columns, data, split, place, embedding; G counts up when an index is replaced

A search, and what an adding writes, is one transaction. The database finds candidates in float32; their scores are
computed here, in float64.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import create_npy
from in2r.errors import InputError
from in2r.files import require_free_space
from in2r.search.approximate import FOUND
from in2r.search.base import Addition, Candidates, Item, Precision, grown, known_already, taken
from in2r.search.connection import Place, connected, require_psycopg
from in2r.search.nearest import exact_scores, rounding_margin
from in2r.search.pgvector import ITERATIVE, Table, enabled, prepare, require_dims, vector_text
from in2r.search.store import TOGETHER, DataRef, IndexConfig, described, description

MORE = 64
"""Rows beyond the k nearest that a search asks for: as near as rounding can tell, seldom more than these are."""
ITEM = "id, columns, data, split, place, embedding"
MATCHING = "WHERE columns @> %s::jsonb"


class Postgres:
    """A `Store`: an index in a database; it holds no connection.

    Args:
        url: `postgresql://USER@HOST/DATABASE#NAME`, as `connection.Place` reads it.

    Raises:
        InputError: psycopg is not installed; a URL that cannot be read.
    """

    def __init__(self, url: str) -> None:
        require_psycopg()
        self._place = Place.parse(url)
        self.place = self._place.shown

    def read_config(self) -> IndexConfig:
        """Return the description of the index."""
        with self.reading() as view:
            return view.config

    @contextmanager
    def reading(self) -> Iterator["PostgresView"]:
        """Look at the index, in one transaction."""
        with connected(self._place, read_only=True) as connection:
            yield PostgresView(connection, *self._known(connection))

    def require_room(self, empty: IndexConfig, force: bool) -> None:
        """Refuse to replace an index without being asked, and what pgvector cannot hold; prepare the database."""
        require_dims(empty.kind, empty.dim, self._place)
        with connected(self._place) as connection:
            prepare(connection, self._place)
            if self._find(connection) is not None and not force:
                raise taken(self.place)

    def create(self, empty: IndexConfig, new: Addition, precision: Precision, force: bool) -> IndexConfig:
        """Write a new index; searches have the one before until this one is whole."""
        with _encoded(new, empty.dim, precision) as vectors, connected(self._place) as connection:
            before = self._find(connection, "FOR UPDATE")
            if before is not None and not force:
                raise taken(self.place)
            generation = 1 if before is None else before[0].generation + 1
            config = replace(grown(empty, new), generation=generation)
            table = self._table(config, precision)
            done = connection.execute(
                "INSERT INTO in2r_indexes (name, precision, config) VALUES (%s, %s, %s) ON CONFLICT (name) "
                "DO UPDATE SET precision = excluded.precision, config = excluded.config WHERE %s",
                (self._place.name, precision, _json(description(config)), force),
            )
            if not done.rowcount:  # another process has made it since
                raise taken(self.place)
            table.make(connection)
            table.fill(connection, new.items.records(0), data_key(new.reference), vectors)
            table.index(connection, config.kind)
            if before is not None:
                connection.execute(before[1].sql("DROP TABLE {table}"))
        return config

    def add(self, seen: IndexConfig, new: Addition) -> IndexConfig:
        """Add items in one transaction; several writers may do so at once."""
        with self.reading() as view:
            view.require_new_ids(new.items.ids, self.place)
            precision = view.table.precision
        with _encoded(new, seen.dim, precision) as vectors, connected(self._place) as connection:
            config, _ = self._known(connection, "FOR KEY SHARE")  # others may add, none may replace
            if (config.generation, config.model) != (seen.generation, seen.model):
                raise InputError(f"{self.place}: was replaced meanwhile; add to it again")
            table = self._table(config, precision)
            try:
                table.fill(connection, new.items.records(0), data_key(new.reference), vectors)
            except require_psycopg().errors.UniqueViolation as error:
                found = re.search(r"\(id\)=\((.*)\)", error.diag.message_detail or "")
                raise known_already(self.place, found[1] if found else "") from None
            except require_psycopg().errors.DeadlockDetected:  # the other one has the same ids in another order
                raise InputError(
                    f"{self.place}: another process is adding some of these items; add new items only"
                ) from None
            config = grown(self._known(connection, "FOR NO KEY UPDATE")[0], new)
            connection.execute(
                "UPDATE in2r_indexes SET config = %s WHERE name = %s", (_json(description(config)), self._place.name)
            )
        return config

    def _known(self, connection: Any, lock: str = "") -> tuple[IndexConfig, Table]:
        found = self._find(connection, lock)
        if found is None:
            others = self._names(connection)
            there = f"; there are {', '.join(others)}" if others else ""
            raise InputError(f"{self.place}: no index of this name here{there}; `in2r index ... --to` makes one")
        return found

    @staticmethod
    def _names(connection: Any) -> list[str]:
        """Return the names of all indexes of the database."""
        if not _prepared(connection):
            return []
        return [name for (name,) in connection.execute("SELECT name FROM in2r_indexes ORDER BY name").fetchall()]

    def _find(self, connection: Any, lock: str = "") -> tuple[IndexConfig, Table] | None:
        """Read the description of the index, if there is one, and lock it."""
        if not _prepared(connection):
            return None
        text = f"SELECT precision, config FROM in2r_indexes WHERE name = %s {lock}"
        row = connection.execute(text, [self._place.name]).fetchone()
        if row is None:
            return None
        config = described(row[1], self.place)
        return config, self._table(config, row[0])

    def _table(self, config: IndexConfig, precision: Precision) -> Table:
        return Table(f"in2r_{self._place.name}_{config.generation}", config.dim, precision)


class PostgresView:
    """A `View` in a transaction; it reads what a search needs, and never all vectors for one.

    Args:
        connection: in a transaction that sees one moment.
        config: the index.
        table: its items.
    """

    def __init__(self, connection: Any, config: IndexConfig, table: Table) -> None:
        self._connection, self.config, self.table = connection, config, table
        self.dtype = np.dtype(table.precision)
        self._data = {data_key(data): number for number, data in enumerate(config.data)}

    @property
    def vectors(self) -> NDArray[Any]:
        """(N, D), read whole, in the order of `blocks`."""
        return np.concatenate([vectors for _, vectors in self.blocks()])

    def nearest(
        self, queries: NDArray[np.float32], k: int, where: Mapping[str, str] | None
    ) -> tuple[int, Iterator[Candidates]]:
        """Return how many items are searched, and candidates of each query."""
        k = min(k, self.config.count)  # PostgreSQL takes no limit of more than 63 bits
        if where is not None:
            if not all(map(_can_be_kept, where.values())):
                return 0, (self._scored(query, []) for query in queries)
            said = [_json({name: [value] for name, value in where.items()})]
            [[count]] = self._read(f"SELECT count(*) FROM {{table}} {MATCHING}", said)
            return count, (self._exact(query, k, MATCHING, said) for query in queries)
        if self.config.kind == "hnsw":
            self._set_out()
            return self.config.count, map(self._guided, queries)
        return self.config.count, (self._exact(query, k) for query in queries)

    def find(self, name: str) -> tuple[Item, NDArray[Any]] | None:
        """Return the item of an id and its vector."""
        if not _can_be_kept(name):
            return None
        rows = self._read(f"SELECT {ITEM} FROM {{table}} WHERE id = %s", [name])
        if not rows:
            return None
        items, vectors = self._items(rows)
        return items[0], vectors[0]

    def blocks(self) -> Iterator[tuple[list[Item], NDArray[Any]]]:
        """Yield all items and their vectors, some at a time, in the order of ids as text."""
        with self._connection.cursor(name="in2r", binary=True) as cursor:
            cursor.execute(self.table.sql(f"SELECT {ITEM} FROM {{table}} ORDER BY id"))
            while rows := cursor.fetchmany(TOGETHER):
                yield self._items(rows)

    def require_new_ids(self, ids: Sequence[str], place: str) -> None:
        """Refuse ids that the index has."""
        for row in self._read("SELECT id FROM {table} WHERE id = ANY(%s) LIMIT 1", [list(ids)]):
            raise known_already(place, row[0])

    def _exact(self, query: NDArray[np.float32], k: int, condition: str = "", said: Sequence[str] = ()) -> Candidates:
        """Return items among which the k nearest certainly are.

        The products of the database are as near to the exact ones as those of `nearest.nearest_candidates`, and the
        same margin holds: all items whose product is within it of the k-th are candidates.
        """
        text = f"SELECT {ITEM}, -(embedding::vector <#> %s::vector) AS product FROM {{table}} {condition} "
        limit = k + MORE
        while True:
            rows = self._read(text + "ORDER BY product DESC LIMIT %s", [vector_text(query), *said, limit])
            least = rows[k - 1][-1] - rounding_margin(len(query)) if len(rows) > k else -np.inf
            if len(rows) < limit or rows[-1][-1] < least:
                return self._scored(query, [row for row in rows if row[-1] >= least])
            limit *= 2

    def _guided(self, query: NDArray[np.float32]) -> Candidates:
        """Return the `FOUND` items to which the graph leads.

        Rows that a killed add has left in the graph, or that one is writing now, take places of items until the
        database is vacuumed. Where that leaves too few, all items are compared.
        """
        text = (
            f"SELECT {ITEM} FROM {{table}} ORDER BY embedding::halfvec({{dim}}) <#> %s::halfvec({{dim}}) LIMIT {FOUND}"
        )
        rows = self._read(text, [vector_text(query)])
        if len(rows) >= min(FOUND, self.config.count):
            return self._scored(query, rows)
        self._connection.execute("SET LOCAL enable_seqscan = on")
        found = self._exact(query, FOUND)
        self._set_out()
        return found

    def _set_out(self) -> None:
        """Let the following searches of this transaction go through the graph."""
        self._connection.execute(f"SET LOCAL hnsw.ef_search = {FOUND}")
        self._connection.execute("SET LOCAL enable_seqscan = off")  # a small table has the graph's answer as well
        if enabled(self._connection) >= ITERATIVE:  # go on where rows that nobody sees took places
            self._connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")

    def _read(self, text: str, said: Sequence[Any]) -> list[Any]:
        with self._connection.cursor(binary=True) as cursor:
            found: list[Any] = cursor.execute(self.table.sql(text), said).fetchall()
            return found

    def _scored(self, query: NDArray[np.float32], rows: Sequence[Any]) -> Candidates:
        items, vectors = self._items(rows)
        return Candidates(items, exact_scores(vectors, query, np.arange(len(items))))

    def _items(self, rows: Sequence[Any]) -> tuple[list[Item], NDArray[Any]]:
        """Return items and their vectors from rows that begin with `ITEM`."""
        items = [
            {
                "id": name,
                "columns": {column: columns[column] for column in self.config.columns if column in columns},
                "at": [self._data[data], split, place],
            }
            for name, columns, data, split, place, *_ in rows
        ]
        return items, self.table.vectors([row[5] for row in rows])


@contextmanager
def _encoded(new: Addition, dim: int, precision: Precision) -> Iterator[NDArray[Any]]:
    """Yield the vectors (n, D) in a file of their own, so that no transaction waits for an encoder.

    Raises:
        InputError: an id or a column that PostgreSQL cannot hold, before anything is encoded.
    """
    for item in new.items.records(0):
        texts = [item["id"], *item["columns"], *chain.from_iterable(item["columns"].values())]
        if not all(map(_can_be_kept, texts)):
            raise InputError(
                f"{new.source.path}: the item {item['id']!r} has a zero byte or half of a surrogate pair, which "
                "PostgreSQL cannot hold; remove it, or make an index in a folder"
            )
    with TemporaryDirectory(prefix="in2r-") as folder:
        shape = len(new.items.ids), dim
        require_free_space(folder, shape[0] * dim * np.dtype(precision).itemsize)
        out = create_npy(Path(folder) / "vectors.npy", precision, shape)
        new.fill(out)
        yield out


def _can_be_kept(text: str) -> bool:
    """Say whether PostgreSQL can hold a text: zero bytes and halves of surrogate pairs it cannot."""
    return re.search("[\0\ud800-\udfff]", text) is None


def _prepared(connection: Any) -> bool:
    """Return whether the database has the table of indexes."""
    found: bool = connection.execute("SELECT to_regclass('in2r_indexes') IS NOT NULL").fetchone()[0]
    return found


def data_key(data: DataRef) -> str:
    """Return by what the rows of a data folder name it: its number is not known before all writers are done."""
    return sha256(_json(asdict(data)).encode()).hexdigest()[:16]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
