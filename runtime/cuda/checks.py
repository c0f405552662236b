"""Errors of launches that depend on values, found when the host next waits for the device.

A launch writes a word for each check to device memory. The words of many kernels share a page. The
host reads the page when it waits for the device anyway, so checks cost one small copy and no
waiting.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.triton.emitted import failed

if TYPE_CHECKING:
    from .device import Cuda
    from .launch import Launcher
    from .memory import Memory

PAGE = 512
"""The number of words in a page, which is read at once."""


@dataclass(eq=False)
class Page:
    """Memory for words, of which `used` are taken. It lives as long as a kernel uses one of
    them."""

    memory: Memory
    used: int = 0


@dataclass(frozen=True, eq=False)
class Words:
    """The words of one kernel: `count` words of a page, from number `first` on."""

    page: Page
    first: int
    count: int

    @property
    def pointer(self) -> int:
        return self.page.memory.pointer + 8 * self.first

    def of(self, page: np.ndarray) -> np.ndarray:
        return page[self.first : self.first + self.count]


class Checks:
    """The launches whose words haven't been read yet."""

    def __init__(self, device: Cuda):
        self.device = device
        self._launched: dict[Launcher, None] = {}
        self._page: weakref.ref[Page] | None = None  # the page with free words

    def words(self, count: int) -> Words:
        """Words for a kernel, set to zero."""
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
        """Note a launch of `launcher`, which may write words."""
        self._launched[launcher] = None

    def make(self) -> None:
        """Wait for the launches that can fail, and raise the first error, with the user's line. The
        words are cleared, so each error is raised once."""
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
            self.device.context.synchronize()  # before launches in other streams
            raise error

    def _read(self, page: Page) -> np.ndarray:
        context, memory = self.device.context, page.memory
        if context.order.several:
            context.order.write(memory.pointer)
        words = np.empty(memory.size // 8, np.int64)
        self.device.download.copy(memory.pointer, words)
        return words
