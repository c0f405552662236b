"""Links: connections between the processes of a world, over which arrays travel."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from .stores import Store, read

Key = tuple[int, int, int]
"""The peer, the channel (a group and what it does), and a tag that the program gives."""


class Links:
    """A TCP connection to each other process. Each has a thread that writes and one that reads, so
    that no send waits for its receiver."""

    def __init__(self, store: Store, rank: int, world_size: int, timeout: float):
        self.rank, self.timeout = rank, timeout
        self._inbox: dict[Key, deque[bytearray]] = {}
        self._arrived = threading.Condition()
        self._closed: set[int] = set()
        self._outbox: dict[int, queue.SimpleQueue[Any]] = {}
        self._sockets: dict[int, socket.socket] = {}
        listener = socket.create_server((store.address, 0), backlog=world_size)
        listener.settimeout(timeout)
        store.set(f"link/{rank}", "{}:{}".format(*listener.getsockname()))
        for peer in range(rank):
            host, _, port = store.get(f"link/{peer}").decode().rpartition(":")
            made = socket.create_connection((host, int(port)), timeout=timeout)
            made.sendall(struct.pack("<I", rank))
            self._begin(peer, made)
        for _ in range(rank + 1, world_size):
            made, _ = listener.accept()
            (peer,) = struct.unpack("<I", read(made, 4))
            self._begin(peer, made)
        listener.close()

    def _begin(self, peer: int, link: socket.socket) -> None:
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[peer] = link
        self._outbox[peer] = queue.SimpleQueue()
        for run in (self._write, self._read):
            threading.Thread(target=run, args=(peer, link), daemon=True).start()

    def _write(self, peer: int, link: socket.socket) -> None:
        box = self._outbox[peer]
        while True:
            item = box.get()
            if item is None:
                link.shutdown(socket.SHUT_WR)
                return
            if isinstance(item, threading.Event):
                item.set()
                continue
            channel, tag, data = item
            try:
                link.sendall(struct.pack("<IiQ", channel, tag, len(data)))
                link.sendall(data)
            except OSError:  # the reader finds out, too
                self._close(peer)

    def _read(self, peer: int, link: socket.socket) -> None:
        try:
            while True:
                channel, tag, size = struct.unpack("<IiQ", read(link, 16))
                data = read(link, size)
                with self._arrived:
                    self._inbox.setdefault((peer, channel, tag), deque()).append(data)
                    self._arrived.notify_all()
        except OSError:
            self._close(peer)

    def _close(self, peer: int) -> None:
        with self._arrived:
            self._closed.add(peer)
            self._arrived.notify_all()

    def send(self, peer: int, channel: int, data: Any, tag: int = 0) -> None:
        """Send bytes, or an array, to a peer. Returns at once; the caller must not change them."""
        if peer == self.rank:
            with self._arrived:
                self._inbox.setdefault((peer, channel, tag), deque()).append(bytearray(data))
                self._arrived.notify_all()
            return
        self._outbox[peer].put((channel, tag, data))

    def receive(
        self, peers: list[int], channel: int, tag: int = 0, timeout: float | None = None
    ) -> tuple[int, bytearray]:
        """The first message of one of the peers, and who sent it. RuntimeError after `timeout`
        seconds, or if the only peer has gone."""
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        with self._arrived:
            while True:
                for peer in peers:
                    box = self._inbox.get((peer, channel, tag))
                    if box:
                        return peer, box.popleft()
                if self._closed.issuperset(peers):
                    raise RuntimeError(
                        f"Connection closed by peer: process {peers[0]} has ended{at_user_line()}"
                    )
                left = end - time.monotonic()
                if left <= 0 or not self._arrived.wait(left):
                    raise RuntimeError(
                        f"Timed out waiting {int(limit * 1000)}ms for recv operation to complete: "
                        f"from rank {', '.join(map(str, peers))}{at_user_line()}"
                    )

    def flush(self) -> None:
        """Wait until everything that was sent is with the system."""
        for peer, box in self._outbox.items():
            if peer not in self._closed:
                done = threading.Event()
                box.put(done)
                done.wait(self.timeout)

    def close(self) -> None:
        """End all connections, after what was sent."""
        self.flush()
        for box in self._outbox.values():
            box.put(None)


def encoded(array: np.ndarray) -> Any:
    """The bytes of an array, which stay as they are."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def decoded(data: bytearray, like: np.ndarray) -> np.ndarray:
    """An array of these bytes, in the shape and dtype of another one."""
    array = np.frombuffer(data, dtype=np.uint8)
    if array.nbytes != like.nbytes:
        raise RuntimeError(
            f"expected a message of {like.nbytes} bytes, for a tensor of shape {like.shape}, got "
            f"{array.nbytes}: the processes' tensors must have the same sizes{at_user_line()}"
        )
    return array.view(like.dtype).reshape(like.shape)
