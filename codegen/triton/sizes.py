"""The integers of a kernel that are arguments, so that its text serves every shape."""

from __future__ import annotations

from collections.abc import Mapping


class Sizes:
    """Integer arguments in the order of their first use.

    Strides, offsets and divisors of one value share an argument: addresses that are computed alike
    are then computed once. The extent of a tile has its own, because a batch that happens to be as
    long as a row must not change the text.

    apart: whether every integer has an argument of its own, so that the text depends on no number
        but 0 and 1. The members of a bundle need that if their sizes coincide in different ways.
    nested: whether axes that follow each other in memory are one, which takes equal sizes.
    same: the arguments that have the value of another one in every member, and that one.
    """

    def __init__(
        self, apart: bool = False, nested: bool = True, same: Mapping[str, str] | None = None
    ) -> None:
        self.apart, self.nested = apart, nested
        self._same = same or {}
        self.tl_type = "tl.int32"
        self.values: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._count = 0

    def argument(self, value: int) -> str:
        """The text of an integer; 0 and 1 are part of the kernel's structure."""
        if value in (0, 1):
            return str(value)
        if self.apart:
            return self._add(value)
        if value < 0:
            return f"-{self.argument(-value)}"
        if value not in self._names:
            self._names[value] = self._add(value)
        return self._names[value]

    def _add(self, value: int) -> str:
        name = f"s{self._count}"
        self._count += 1
        shared = self._same.get(name, name)
        # What shared names make alike is written once, so later numbers may mean other sizes.
        return self._set(shared if self.values.get(shared, value) == value else name, value)

    def extent(self, tile: str, value: int) -> str:
        """The number of positions along a tile."""
        return self._set(f"n_{tile}", value)

    def _set(self, name: str, value: int) -> str:
        assert self.values.setdefault(name, value) == value, f"{name} has two values"
        return name
