"""torch.torch_version: a version that is a string, and is compared as a version."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

VERSION = "2.13.0+tilewright"
"""The version of PyTorch whose behaviour is the specification here."""

_WRITTEN = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_n>\d*))?"
    r"(?:-(?P<post_only>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*)))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_STAGE = {"a": 0, "alpha": 0, "b": 1, "beta": 1}  # anything else is a release candidate


def _key(text: str) -> tuple[Any, ...] | None:
    """What orders versions by PEP 440; None for a text that is no version."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    while release and release[-1] == 0:
        release = release[:-1]
    post = None
    if found["post"] or found["post_only"]:
        post = int(found["post_only"] or found["post_n"] or 0)
    if found["pre"]:
        stage = (_STAGE.get(found["pre"].lower(), 2), int(found["pre_n"] or 0))
    else:  # a development version of a release comes before its alpha
        stage = (-1, 0) if found["dev"] and post is None else (3, 0)
    local = tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split("[-_.]", found["local"] or "")
        if part
    )
    return (
        int(found["epoch"] or 0),
        release,
        stage,
        -1 if post is None else post,
        int(found["dev_n"] or 0) if found["dev"] else float("inf"),
        local,
    )


class TorchVersion(str):
    """A version that compares with strings, tuples of numbers, and packaging's versions.

    Beside a text that is no version it compares as a text.
    """

    __slots__ = ()

    def _pair(self, other: Any) -> tuple[Any, Any]:
        if not isinstance(other, str) and isinstance(other, Iterable):
            other = ".".join(str(part) for part in other)
        own, others = _key(self), _key(str(other))
        return (str(self), str(other)) if own is None or others is None else (own, others)

    def __lt__(self, other: Any) -> bool:
        own, others = self._pair(other)
        return bool(own < others)

    def __le__(self, other: Any) -> bool:
        own, others = self._pair(other)
        return bool(own <= others)

    def __gt__(self, other: Any) -> bool:
        own, others = self._pair(other)
        return bool(own > others)

    def __ge__(self, other: Any) -> bool:
        own, others = self._pair(other)
        return bool(own >= others)

    def __eq__(self, other: object) -> bool:
        own, others = self._pair(other)
        return bool(own == others)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


__version__ = TorchVersion(VERSION)
