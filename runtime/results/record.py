"""What is known of a kernel's schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .key import Key

MEASURED, PRIOR = "measured", "prior"
BAD = ("wrong", "crashed", "hung", "failed")
"""What becomes of a candidate: measured; predicted, by a cost model, without a measurement; or bad
in some way."""

Options = Mapping[str, Any]


class CannotTune(RuntimeError):
    """A kernel can't be measured: the message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a candidate. seconds: the median; spread: between quartiles, relative."""

    status: str
    seconds: float | None = None
    spread: float = 0.0
    samples: int = 0
    reason: str = ""


@dataclass(frozen=True)
class About:
    """For people: the kernel's name, what it is (matmul, reduction, …), and its type; space: how
    many schedules it may have."""

    name: str
    family: str
    dtype: str
    space: int


@dataclass(frozen=True)
class Record:
    """What is known of a kernel. effort: of the search that was finished, or ''. chosen: the best
    options, with their seconds and those of the default."""

    key: Key
    about: About
    effort: str = ""
    chosen: Options | None = None
    seconds: float | None = None
    default_seconds: float | None = None
    changed: float = 0.0
    candidates: Mapping[str, Found] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """How many times faster than the default the chosen one is."""
        if not self.seconds or not self.default_seconds:
            return 1.0
        return self.default_seconds / self.seconds


def text_of(options: Options) -> str:
    """Options as they are kept: JSON in a fixed order."""
    return json.dumps(dict(options), sort_keys=True, separators=(",", ":"))
