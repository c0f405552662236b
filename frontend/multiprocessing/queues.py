"""torch.multiprocessing.queue: Python's queues, whose ends pickle tensors by themselves."""

from __future__ import annotations

import pickle
from multiprocessing.queues import Queue, SimpleQueue
from typing import Any

__all__ = ["ConnectionWrapper", "Queue", "SimpleQueue"]


class ConnectionWrapper:
    """A connection whose `send` and `recv` pickle what they are given."""

    def __init__(self, conn: Any):
        self.conn = conn

    def send(self, obj: Any) -> None:
        self.conn.send_bytes(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL))

    def recv(self) -> Any:
        return pickle.loads(self.conn.recv_bytes())

    def __getattr__(self, name: str) -> Any:
        if name == "conn":
            raise AttributeError(f"{type(self).__name__} has no attribute 'conn'")
        return getattr(self.conn, name)
