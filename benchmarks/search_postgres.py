"""pgvector for benchmarks/search.py: tables of made vectors, searched by this package and by an hnsw index of float32.

The server is on this machine: its process's CPU time is read from /proc. It works on one thread.
"""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from in2r.search.approximate import BUILD_EFFORT, FOUND, LINKS, Kind
from in2r.search.connection import Place, require_psycopg
from in2r.search.nearest import exact_scores
from in2r.search.pgvector import Table, prepare, vector_text
from in2r.search.postgres import PostgresView, data_key
from in2r.search.store import DataRef, IndexConfig, ModelRef

SERVED = ("pgvector exact", "pgvector hnsw", "pgvector hnsw float")
"""The last one is not this package's: an hnsw index of float32, for comparison with that of float16."""
SETTINGS = {
    "client_min_messages": "warning",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "jit": "off",
    "maintenance_work_mem": "4GB",  # the graph of 10⁶ vectors fits
}
DATA = DataRef("made", "auto", None, 0, False, ("all",), {})


class Server:
    """A connection to a database, and the tables of this benchmark in it."""

    def __init__(self, url: str) -> None:
        psycopg = require_psycopg()
        self._connection = psycopg.connect(url, autocommit=True)
        with self._connection.transaction():
            prepare(self._connection, Place.parse(url))
        for name, value in SETTINGS.items():
            self._connection.execute(psycopg.sql.SQL("SET {} = {}").format(psycopg.sql.Identifier(name), value))
        self._clock = Path(f"/proc/{self._connection.info.backend_pid}/schedstat")

    def versions(self) -> dict[str, str]:
        [[found]] = self._connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchall()
        names = {
            name: self._connection.execute(f"SHOW {name}").fetchone()[0]
            for name in ("server_version", "shared_buffers")
        }
        return {"pgvector": found, "psycopg": version("psycopg"), **names}

    def cpu(self) -> float:
        """Return the CPU time of the server's process, in seconds."""
        return int(self._clock.read_text().split()[0]) / 1e9

    def build(self, way: str, vectors: Any) -> float:
        """Make the table of a way and its indexes; return the CPU time of the server, in seconds."""
        start, table = self.cpu(), _table(way, vectors.shape[1])
        self._connection.execute(table.sql("DROP TABLE IF EXISTS {table}"))
        table.make(self._connection)
        items = ({"id": f"{row:08}", "columns": {}, "at": [0, "all", row]} for row in range(len(vectors)))
        table.fill(self._connection, items, data_key(DATA), vectors)
        table.index(self._connection, "hnsw" if way == "pgvector hnsw" else "exact")
        if way == "pgvector hnsw float":
            self._connection.execute(
                table.sql(
                    "CREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops) "
                    f"WITH (m = {LINKS}, ef_construction = {BUILD_EFFORT})"
                )
            )
        return self.cpu() - start

    def opened(self, way: str, at: int) -> Callable[[Any], Any]:
        """Return a function: a query (D,) → its nearest rows, in a transaction of its own."""

        def search(query: Any) -> Any:
            with self._connection.transaction():
                if way == "pgvector hnsw float":
                    return self._by_float(query, at)
                config = _config(way, len(query))
                _, found = PostgresView(self._connection, config, _table(way, len(query))).nearest(
                    query[None], at, None
                )
                [some] = found
                rows = np.array([item["at"][2] for item in some.items], np.int64)
                return rows[np.argsort(-some.scores, kind="stable")[:at]]

        return search

    def _by_float(self, query: Any, at: int) -> Any:
        table = _table("pgvector hnsw float", len(query))
        self._connection.execute(f"SET LOCAL hnsw.ef_search = {FOUND}")
        self._connection.execute("SET LOCAL enable_seqscan = off")
        text = f"SELECT place, embedding FROM {{table}} ORDER BY embedding <#> %s::vector LIMIT {FOUND}"
        found = self._connection.cursor(binary=True).execute(table.sql(text), [vector_text(query)]).fetchall()
        scores = exact_scores(table.vectors([value for _, value in found]), query, np.arange(len(found)))
        return np.array([row for row, _ in found])[np.argsort(-scores, kind="stable")[:at]]

    def size(self, way: str) -> int:
        """Return the bytes of a table with its indexes."""
        text = "SELECT pg_total_relation_size(%s)"
        [[found]] = self._connection.execute(text, [_table(way, 1).name]).fetchall()
        return int(found)

    def close(self, ways: tuple[str, ...]) -> None:
        """Remove the tables."""
        for way in set(ways) & set(SERVED):
            self._connection.execute(_table(way, 1).sql("DROP TABLE {table}"))
        self._connection.close()


def _table(way: str, dim: int) -> Table:
    return Table(f"benchmark_{way.replace(' ', '_')}", dim, "float32")


def _config(way: str, dim: int) -> IndexConfig:
    kind: Kind = "hnsw" if way == "pgvector hnsw" else "exact"
    return IndexConfig(
        in2r="", generation=1, side="images", metric="inner product", kind=kind, count=0, dim=dim, interacts=False,
        model=ModelRef("", "ensemble", ""), encoder={}, columns=(), caption_column=None, data=(DATA,), files={},
        versions={},
    )  # fmt: skip
