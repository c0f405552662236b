"""IterDataPipe and MapDataPipe: datasets with methods that put another pipe behind them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from ..dataset import Dataset, IterableDataset

__all__ = ["DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe"]

T = TypeVar("T", bound=type)


class _Methods:
    """Methods of all pipes of a kind, by name: each makes another pipe of a pipe."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(found, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Give all pipes of the kind a method."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls,
        function_name: str,
        cls_to_register: Callable[..., Any],
        enable_df_api_tracing: bool = False,
    ) -> None:
        """Give all pipes of the kind a method that makes pipes of a class."""
        if function_name in cls.functions:
            raise Exception(  # PyTorch's class
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Methods, IterableDataset[Any]):
    """Samples one after another: subclasses define `__iter__`."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class MapDataPipe(_Methods, Dataset[Any]):
    """Samples by index: subclasses define `__getitem__` and usually `__len__`."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


def all_of(kind: type, datapipes: tuple[Any, ...]) -> tuple[Any, ...]:
    """`datapipes`, of which each must be of this kind."""
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(each, kind) for each in datapipes):
        raise TypeError(f"Expected all inputs to be `{kind.__name__}`")
    return datapipes


class functional_datapipe:
    """A decorator: pipes of the kind of a class get a method that makes pipes of that class."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False):
        self.name = name

    def __call__(self, cls: T) -> T:
        kind = next((k for k in (IterDataPipe, MapDataPipe) if issubclass(cls, k)), None)
        if kind is None:
            raise TypeError("Can only decorate IterDataPipe or MapDataPipe")
        kind.register_datapipe_as_function(self.name, cls)
        return cls


class DataChunk(list[Any]):
    """A batch of samples."""

    def __init__(self, items: Any):
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[Any]:
        yield from self.items
