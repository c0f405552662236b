"""Positions that were out of range, found where the host next waits for the device.

A launch leaves a word for each check in device memory; they are read only when somebody waits for
the device anyway, so that checking costs no waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.codegen.triton.emitted import failed

from .copies import download

if TYPE_CHECKING:
    from .device import Cuda
    from .launch import Launcher


class Checks:
    """The launches whose words were not read since they were made."""

    def __init__(self, device: Cuda):
        self.device = device
        self._launched: dict[Launcher, None] = {}

    def expect(self, launcher: Launcher) -> None:
        """`launcher` was launched, and may leave words."""
        self._launched[launcher] = None

    def make(self) -> None:
        """Waits for the launches that can fail, and raises the error of the first that did, which
        names the user's line. Words are cleared, so that it is raised once."""
        if not self._launched:
            return
        launched, self._launched = self._launched, {}
        error: Exception | None = None
        context = self.device.context
        for launcher in launched:
            checks, memory = launcher.emitted.checks, launcher.words
            assert memory is not None
            words = np.empty(len(checks), np.int64)
            if context.order.several:
                context.order.write(memory.pointer)
            download(context, memory.pointer, words)
            if words.any():
                self.device.fill(memory, 0)
                context.synchronize()  # so that launches in other streams come after it
                first = int(np.flatnonzero(words)[0])
                error = error or failed(checks[first], int(words[first]))
        if error is not None:
            raise error
