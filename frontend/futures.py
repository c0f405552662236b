"""torch.futures: results that come later."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
S = TypeVar("S")
__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A value or an error that another thread sets. devices: nothing waits for them here."""

    def __init__(self, *, devices: Sequence[Any] | None = None):
        self._inner: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        return self._inner.done()

    def wait(self) -> T:
        """The value, as soon as it is there; an error that was set is raised."""
        return self._inner.result()

    def value(self) -> T:
        if not self.done():
            raise RuntimeError("Future is not completed: call wait() first")
        return self._inner.result()

    def set_result(self, result: T) -> None:
        if self.done():
            raise RuntimeError("Future can only be completed once")
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """The future of callback(self)."""
        out: Future[S] = Future()

        def run(_: Any) -> None:
            try:
                out.set_result(callback(self))
            except Exception as error:
                out.set_exception(error)

        self._inner.add_done_callback(run)
        return out


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """The future of the list, which is there when all of them are."""
    out: Future[list[Future[Any]]] = Future()
    waiting = len(futures)
    if not waiting:
        out.set_result([])

    def count(_: Any) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            out.set_result(list(futures))

    for future in futures:
        future.add_done_callback(count)
    return out


def wait_all(futures: Sequence[Future[T]]) -> list[T]:
    """The values of all of them."""
    return [cast(T, future.wait()) for future in collect_all(futures).wait()]
