"""Errors of launches that depend on values, found where the host next waits for the device.

A launch leaves a word for each check in device memory. Those of many kernels lie in one page, which
is read when somebody waits for the device anyway: checking costs no waiting, and one small copy.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.triton.emitted import failed

from .copies import download

if TYPE_CHECKING:
    from .device import Cuda
    from .launch import Launcher
    from .memory import Memory

PAGE = 512
"""The number of words that are read at once."""


@dataclass(eq=False)
class Page:
    """Memory for words, of which `used` are taken. It lives as long as a kernel has one of them."""

    memory: Memory
    used: int = 0


@dataclass(frozen=True, eq=False)
class Words:
    """The words of one kernel: `count` from number `first` of a page on."""

    page: Page
    first: int
    count: int

    @property
    def pointer(self) -> int:
        return self.page.memory.pointer + 8 * self.first

    def of(self, page: np.ndarray) -> np.ndarray:
        return page[self.first : self.first + self.count]


class Checks:
    """The launches whose words were not read since they were made."""

    def __init__(self, device: Cuda):
        self.device = device
        self._launched: dict[Launcher, None] = {}
        self._page: weakref.ref[Page] | None = None  # the next kernel gets words of it

    def words(self, count: int) -> Words:
        """Words for a kernel, which are zero."""
        page = None if self._page is None else self._page()
        if page is None or page.used + count > PAGE:
            size = 8 * max(PAGE, count)
            page = Page(self.device.pool.allocate(size, "tables of kernels"))
            self.device.fill(page.memory, 0)
            self._page = weakref.ref(page)
        found = Words(page, page.used, count)
        page.used += count + count % 2  # kernels expect addresses that are multiples of 16
        return found

    def expect(self, launcher: Launcher) -> None:
        """`launcher` was launched, and may leave words."""
        self._launched[launcher] = None

    def make(self) -> None:
        """Waits for the launches that can fail, and raises the error of the first that did, which
        names the user's line. Words are cleared, so that it is raised once."""
        if not self._launched:
            return
        launched, self._launched = self._launched, {}
        pages: dict[Page, np.ndarray] = {}
        error: Exception | None = None
        for launcher in launched:
            words = launcher.words
            assert words is not None
            if words.page not in pages:
                pages[words.page] = self._read(words.page)
            found = words.of(pages[words.page])
            if error is None and found.any():
                first = int(np.flatnonzero(found)[0])
                error = failed(launcher.emitted.checks[first], int(found[first]))
        if error is not None:
            for page in pages:
                self.device.fill(page.memory, 0)
            self.device.context.synchronize()  # so that launches in other streams come after it
            raise error

    def _read(self, page: Page) -> np.ndarray:
        context, memory = self.device.context, page.memory
        if context.order.several:
            context.order.write(memory.pointer)
        words = np.empty(memory.size // 8, np.int64)
        download(context, memory.pointer, words)
        return words
