"""Sets of names of modules, by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["GlobGroup"]

GlobPattern = str | Iterable[str]


class GlobGroup:
    """The names that fit a pattern of `include` and none of `exclude`.

    `*` stands for any characters of one part of a name, `**` for any number of whole parts: `a.*`
    is `a.b`, and `a.**` is `a`, `a.b` and `a.b.c`.
    """

    def __init__(
        self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = "."
    ) -> None:
        self._named = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include = _compiled(include, separator)
        self.exclude = _compiled(exclude, separator)

    def __str__(self) -> str:
        return self._named

    __repr__ = __str__

    def matches(self, candidate: str) -> bool:
        candidate = self.separator + candidate
        return any(p.fullmatch(candidate) for p in self.include) and not any(
            p.fullmatch(candidate) for p in self.exclude
        )


def _compiled(patterns: GlobPattern, separator: str) -> list[re.Pattern[str]]:
    listed = [patterns] if isinstance(patterns, str) else patterns
    return [_expression(each, separator) for each in listed]


def _expression(pattern: str, separator: str) -> re.Pattern[str]:
    """What fits a name with a separator before it."""
    mark = re.escape(separator)
    part = f"[^{mark}]"

    def of(component: str) -> str:
        if component == "**":
            return f"({mark}{part}+)*"
        if "**" in component:
            raise ValueError("** can only appear as an entire path segment")
        return mark + f"{part}*".join(map(re.escape, component.split("*")))

    return re.compile("".join(map(of, pattern.split(separator))))
