"""Records of a kernel's schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .key import Key

MEASURED, PRIOR = "measured", "prior"
BAD = ("wrong", "crashed", "hung", "failed")
"""The status of a candidate: measured; predicted by a cost model; or bad in some way."""

Options = Mapping[str, Any]


class CannotTune(RuntimeError):
    """A kernel can't be measured. The message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a candidate. seconds: the median; spread: between quartiles, relative."""

    status: str
    seconds: float | None = None
    spread: float = 0.0
    samples: int = 0
    reason: str = ""


@dataclass(frozen=True)
class About:
    """Facts for people: the kernel's name, family (matmul, reduction, …) and dtype; space: the
    number of its schedules."""

    name: str
    family: str
    dtype: str
    space: int


@dataclass(frozen=True)
class Record:
    """All results for a kernel. effort: of the last complete search, or ''. chosen: the best
    options; seconds, default_seconds: their time and the default's."""

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
        """The speedup of the chosen schedule over the default."""
        if not self.seconds or not self.default_seconds:
            return 1.0
        return self.default_seconds / self.seconds


def text_of(options: Options) -> str:
    """Options as stored text: JSON in a fixed order."""
    return json.dumps(dict(options), sort_keys=True, separators=(",", ":"))
