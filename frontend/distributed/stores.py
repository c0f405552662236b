"""Stores: tables of bytes that processes share, by which they find each other."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tilewright.ir.location import at_user_line

DEFAULT_TIMEOUT = timedelta(minutes=5)
_STEP = 0.01
"""Seconds between two looks at a table that another process may change."""

Table = dict[str, bytes]


class Store:
    """A table of bytes by keys. `get` and `wait` wait until a key is there, at most `timeout`.

    A subclass says how the table is changed: `_change(f)` calls `f` on it while nobody else may.
    address: by which the other processes reach this one.
    """

    address = "127.0.0.1"

    def __init__(self, timeout: timedelta = DEFAULT_TIMEOUT):
        self.timeout = timeout

    def _change(self, change: Callable[[Table], Any]) -> Any:
        raise NotImplementedError

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        data = _bytes(value)
        self._change(lambda table: table.update({key: data}))

    def get(self, key: str) -> bytes:
        """The value of a key, as soon as it has one."""
        self.wait([key])
        found: bytes = self._change(lambda table: table[key])
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to the number of a key, which begins with 0. Returns the sum."""

        def change(table: Table) -> int:
            total = int(table.get(key, b"0")) + amount
            table[key] = str(total).encode()
            return total

        return int(self._change(change))

    def append(self, key: str, value: str | bytes) -> None:
        data = _bytes(value)
        self._change(lambda table: table.update({key: table.get(key, b"") + data}))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set a key if it has the expected value, or none and that is empty. Returns its value."""

        def change(table: Table) -> bytes:
            present = table.get(key)
            if present == expected_value.encode() or (present is None and not expected_value):
                table[key] = desired_value.encode()
            return table.get(key, expected_value.encode())

        found: bytes = self._change(change)
        return found

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._change(lambda table: all(key in table for key in keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values. RuntimeError after `timeout`."""
        limit = (timeout or self.timeout).total_seconds()
        end = time.monotonic() + limit
        while not self.check(keys):
            if time.monotonic() > end:
                raise RuntimeError(
                    f"wait timeout after {int(limit * 1000)}ms, keys: {', '.join(keys)}: did all "
                    f"processes start?{at_user_line()}"
                )
            time.sleep(_STEP)

    def delete_key(self, key: str) -> bool:
        return self._change(lambda table: table.pop(key, None)) is not None

    def num_keys(self) -> int:
        return int(self._change(len))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class HashStore(Store):
    """A table of one process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table: Table = {}
        self._lock = threading.Lock()

    def _change(self, change: Callable[[Table], Any]) -> Any:
        with self._lock:
            return change(self._table)


class PrefixStore(Store):
    """The keys of another store that begin with `prefix`."""

    def __init__(self, prefix: str, store: Store):
        super().__init__(store.timeout)
        self.prefix, self.underlying_store = prefix, store
        self.address = store.address

    def _change(self, change: Callable[[Table], Any]) -> Any:
        start = f"{self.prefix}/"

        def inner(table: Table) -> Any:
            mine = {k.removeprefix(start): v for k, v in table.items() if k.startswith(start)}
            before = dict(mine)
            result = change(mine)
            for key in before.keys() - mine.keys():
                del table[start + key]
            table.update({start + k: v for k, v in mine.items() if before.get(k) != v})
            return result

        return self.underlying_store._change(inner)


class FileStore(Store):
    """A table in a file, which all processes of a machine can lock."""

    def __init__(self, file_name: str, world_size: int = -1):
        super().__init__()
        self.path = file_name

    def _change(self, change: Callable[[Table], Any]) -> Any:
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            table = _unpacked(file.read())
            before = dict(table)
            result = change(table)
            if table != before:
                file.seek(0)
                file.truncate()
                file.write(_packed(table))
                file.flush()
        return result


def _packed(table: Table) -> bytes:
    parts = []
    for key, value in table.items():
        name = key.encode()
        parts += [struct.pack("<II", len(name), len(value)), name, value]
    return b"".join(parts)


def _unpacked(data: bytes) -> Table:
    table, at = {}, 0
    while at < len(data):
        name, value = struct.unpack_from("<II", data, at)
        at += 8
        table[data[at : at + name].decode()] = data[at + name : at + name + value]
        at += name + value
    return table


class TCPStore(Store):
    """A table in the process that is the master, which the others ask by TCP.

    world_size: how many processes there are, whom all wait for (`wait_for_workers`). port: 0 lets
    the master choose one.
    """

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        **options: Any,
    ):
        super().__init__(timeout)
        self.host = host_name
        self._server: _Server | None = None
        if is_master:
            self._server = _Server(host_name, port)
            port = self._server.port
        self.port = port
        self._lock = threading.Lock()
        self._socket = self._connected()
        self.address = self._socket.getsockname()[0]
        if world_size and wait_for_workers:
            self._wait_for_all(world_size)

    def __del__(self) -> None:
        if (link := getattr(self, "_socket", None)) is not None:
            link.close()
        if self._server is not None:
            self._server.close()

    def _connected(self) -> socket.socket:
        end = time.monotonic() + self.timeout.total_seconds()
        while True:
            try:
                made = socket.create_connection((self.host, self.port), timeout=10)
            except OSError as error:
                if time.monotonic() > end:
                    raise RuntimeError(
                        f"TCPStore: no master answers at {self.host}:{self.port}: {error}"
                        f"{at_user_line()}"
                    ) from None
                time.sleep(10 * _STEP)
            else:
                made.settimeout(None)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made

    def _wait_for_all(self, world_size: int) -> None:
        self.add("_workers", 1)
        end = time.monotonic() + self.timeout.total_seconds()
        while self.add("_workers", 0) < world_size:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"TCPStore: {self.add('_workers', 0)} of {world_size} processes came"
                    f"{at_user_line()}"
                )
            time.sleep(_STEP)

    def _change(self, change: Callable[[Table], Any]) -> Any:
        """Take the table's lock, change a copy, and send it back if it has changed."""
        with self._lock:
            send(self._socket, b"")
            table = _unpacked(receive(self._socket))
            before = dict(table)
            result = change(table)
            send(self._socket, b"" if table == before else b"=" + _packed(table))
            receive(self._socket)
        return result


class _Server:
    """Hands the table to one connection at a time."""

    def __init__(self, host: str, port: int):
        self._listener = socket.create_server((host if port else "", port), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._table: Table = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread that waits for it
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                receive(connection)
                with self._lock:
                    send(connection, _packed(self._table))
                    changed = receive(connection)
                    if changed:
                        self._table = _unpacked(changed[1:])
                send(connection, b"")
        except OSError:  # its process has ended
            connection.close()


def send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack("<Q", len(data)) + data)


def receive(connection: socket.socket) -> bytes:
    """What the other end sent by one `send`."""
    (size,) = struct.unpack("<Q", read(connection, 8))
    return bytes(read(connection, size))


def read(connection: socket.socket, size: int) -> bytearray:
    """So many bytes. ConnectionError if the other end closes before."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = connection.recv_into(view[at:])
        if not count:
            raise ConnectionError("the connection was closed by the other process")
        at += count
    return data


def rendezvous_store(
    init_method: str, rank: int, world_size: int, timeout: timedelta
) -> tuple[Store, int, int]:
    """The store of an address (env://, tcp://host:port, file:///path), rank and world size. Those
    that are -1 come from the address or the environment."""
    from urllib.parse import parse_qs, urlparse

    url = urlparse(init_method)
    query = {k: v[-1] for k, v in parse_qs(url.query).items()}
    if url.scheme == "env":
        query = {
            **{k: os.environ[k.upper()] for k in ("rank", "world_size") if k.upper() in os.environ},
            **query,
        }
    rank = int(query.get("rank", rank)) if rank < 0 else rank
    world_size = int(query.get("world_size", world_size)) if world_size < 0 else world_size
    if rank < 0 or world_size < 0:
        missing = "rank" if rank < 0 else "world_size"
        where = f"environment variable {missing.upper()} expected, but not set"
        raise ValueError(
            f"Error initializing torch.distributed using {url.scheme}:// rendezvous: "
            f"{where if url.scheme == 'env' else f'{missing} parameter missing'}{at_user_line()}"
        )
    if url.scheme == "file":
        return FileStore(url.path, world_size), rank, world_size
    if url.scheme not in ("env", "tcp"):
        raise RuntimeError(f"No rendezvous handler for {url.scheme}://{at_user_line()}")
    if url.scheme == "tcp":
        host, port = url.hostname or "127.0.0.1", url.port or 0
    else:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if name not in os.environ:
                raise ValueError(
                    "Error initializing torch.distributed using env:// rendezvous: environment "
                    f"variable {name} expected, but not set{at_user_line()}"
                )
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world_size, rank == 0, timeout)
    return store, rank, world_size
