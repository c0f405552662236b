"""A dataset that processes started by "spawn" import by its module's name. Other packages install
folders named `tests`, so it can't be a test file's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import tilewright as tw
from tilewright.utils.data import Dataset


class Squares(Dataset):
    """2 i and i * i. slow: the places that take long."""

    def __init__(self, count: int = 20, slow: Sequence[int] = ()):
        self.count, self.slow = count, slow

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if i in self.slow:
            time.sleep(0.2)
        return tw.tensor([float(i)]) * 2, i * i
