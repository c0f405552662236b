"""The iterators over a loader's batches: one epoch, in this process or in workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import warn
from tilewright.runtime import devices

from ...exchange import pinning
from .fetch import fetcher
from .sampler import draw_seed
from .worker import Job, WorkerError

if TYPE_CHECKING:
    from .loader import DataLoader


class _BaseDataLoaderIter:
    """One epoch of a loader.

    An error in a sample ends its batch, not the epoch: the next call gives the next batch.
    """

    def __init__(self, loader: DataLoader[Any]):
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._index_sampler: Any = loader._index_sampler
        self._num_workers, self._timeout = loader.num_workers, loader.timeout
        self._collate_fn = loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._pin_memory = loader.pin_memory and devices.cuda_count() > 0
        if loader.pin_memory and not self._pin_memory:
            warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used."
            )
        self._sampler_iter: Iterator[Any] = iter(self._index_sampler)
        self._base_seed = draw_seed(loader.generator)
        self._num_yielded = 0

    def _fetch_arguments(self) -> tuple[Any, ...]:
        """The arguments of `fetcher`."""
        return (
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn,
            self._drop_last,
        )  # fmt: skip

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin another epoch."""
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next_data()
        self._num_yielded += 1
        return pinning.all_pinned(batch) if self._pin_memory else batch

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader: DataLoader[Any]):
        super().__init__(loader)
        self._fetch = fetcher(*self._fetch_arguments())

    def _next_data(self) -> Any:
        return self._fetch(self._next_index())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Workers get tasks in turn, up to `prefetch_factor` each. Batches come in the order of the
    sampler, or as they arrive if the loader isn't `in_order`."""

    def __init__(self, loader: DataLoader[Any]):
        from .workers import Workers  # it loads multiprocessing

        super().__init__(loader)
        self._in_order = loader.in_order
        self._most = loader.prefetch_factor * self._num_workers
        job = Job(self._fetch_arguments(), self._num_workers, loader.worker_init_fn)
        self._workers = Workers(loader.multiprocessing_context, job, self._base_seed, self._timeout)
        self._begin()

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._workers.restart()
        self._begin()

    def _begin(self) -> None:
        self._active = [True] * self._num_workers  # workers whose dataset isn't at its end
        self._owner: dict[int, int] = {}  # the worker of each unanswered task
        self._ready: dict[int, Any] = {}
        self._sent = self._given = 0
        self._top_up()

    def _top_up(self) -> None:
        """Give each worker its share of tasks."""
        active, count = self._active, self._num_workers
        while len(self._owner) + len(self._ready) < self._most:
            around = ((self._sent + i) % count for i in range(count))
            worker = next((w for w in around if active[w]), None)
            if worker is None:
                return
            try:
                task = self._next_index()
            except StopIteration:
                return
            self._workers.send(worker, self._sent, task)
            self._owner[self._sent] = worker
            self._sent += 1

    def _next_data(self) -> Any:
        while self._owner or self._ready:
            number = self._given if self._in_order else next(iter(self._ready), -1)
            if number in self._ready:
                answer = self._ready.pop(number)
                self._given += 1
                self._top_up()
                if isinstance(answer, WorkerError):
                    answer.reraise()
                return answer[0]
            if self._in_order and number not in self._owner:
                self._given += 1  # there was nothing left for this task
                continue
            for number, answer in self._workers.receive():
                worker = self._owner.pop(number)
                if answer is None:
                    self._active[worker] = False
                else:
                    self._ready[number] = answer
            self._top_up()
        if not self._persistent_workers:
            self._workers.close()
        raise StopIteration
