"""The unpickler of `load`. By default it builds only objects of listed classes."""

from __future__ import annotations

import _codecs
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from ..devices import device as Device
from .rebuilding import (
    Skipped,
    UnpicklingError,
    layout_named,
    rebuild,
    rebuild_any,
    rebuild_from_type,
    rebuild_nested,
    rebuild_parameter,
    rebuild_sparse,
)
from .storages import STORAGES

_BaseUnpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]  # in pure Python


def _bytes(*args: Any) -> bytearray:
    """A bytearray of bytes in the file. An int is refused, as it could ask for any size."""
    if any(isinstance(a, int) for a in args):
        raise UnpicklingError(f"Weights only load failed: a bytearray of a size{at_user_line()}")
    return bytearray(*args)


_SAFE: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): rebuild_any,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): rebuild_parameter,
    ("torch._utils", "_rebuild_sparse_tensor"): rebuild_sparse,
    ("torch.serialization", "_get_layout"): layout_named,
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): rebuild_nested,
    ("torch.nested._internal.nested_tensor", "NestedTensor"): None,
    ("torch", "Tensor"): None,
    ("torch._dynamo.decorators", "_DimRange"): Skipped,
    ("torch", "Size"): Size,
    ("torch", "device"): Device,
    ("collections", "OrderedDict"): OrderedDict,
    **{("builtins", t.__name__): t for t in (dict, list, tuple, set, frozenset, object)},
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "slice"): slice,
    ("collections", "Counter"): Counter,
    ("_codecs", "encode"): _codecs.encode,
    **{("torch", name): dtype for name, dtype in STORAGES.items()},
    ("torch", "UntypedStorage"): None,
    ("torch.storage", "UntypedStorage"): None,
    **{("torch", d.name): d for d in dtypes.ALL},
}
_allowed: dict[tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let load(weights_only=True) build these classes and call these functions."""
    for each in safe_globals:
        obj, path = each if isinstance(each, tuple) else (each, None)
        module, _, name = (path or f"{obj.__module__}.{obj.__qualname__}").rpartition(".")
        _allowed[module, name] = obj


def clear_safe_globals() -> None:
    _allowed.clear()


def get_safe_globals() -> list[Any]:
    return list(_allowed.values())


@contextmanager
def safe_globals(objects: list[Any]) -> Iterator[None]:
    """Allow load(weights_only=True) to build these classes too, inside the block."""
    before = dict(_allowed)
    add_safe_globals(objects)
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)


class Unpickler(_BaseUnpickler):
    """Builds objects of listed classes, or of any class unless `weights_only`."""

    dispatch = dict(_BaseUnpickler.dispatch)

    def __init__(self, file: Any, weights_only: bool, storage: Callable[[Any], Any]):
        super().__init__(file, encoding="utf-8")
        self.weights_only = weights_only
        self.storage = storage

    def load_build(self) -> None:
        """Set attributes, except on classes and functions, which outlive the load."""
        kind = type(self.stack[-2])
        if self.weights_only and kind not in (OrderedDict, Counter, Skipped, *_allowed.values()):
            raise UnpicklingError(
                f"Weights only load failed: the file sets attributes of a {kind.__name__}"
                f"{at_user_line()}"
            )
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def load_bytearray8(self) -> None:
        """Read at most the bytes that exist. The base class trusts the size in the file."""
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(size)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> Any:
        # Protocol 2 calls the module `__builtin__`.
        module = "builtins" if module == "__builtin__" else module
        for table in (_SAFE, _allowed):
            if (module, name) in table:
                return table[module, name]
        if self.weights_only:
            raise UnpicklingError(
                f"Weights only load failed: the file asks for {module}.{name}, which is not on the "
                "list of what may be built. If you trust its source, allow it with "
                f"torch.serialization.add_safe_globals([{name}]), or load with weights_only=False, "
                f"which can run any code the file holds{at_user_line()}"
            )
        if module == "torch" or module.startswith("torch."):
            module = "tilewright" + module[5:]
            if module.startswith("tilewright.nn.modules"):
                module = "tilewright.nn"
        return super().find_class(module, name)

    def persistent_load(self, saved_id: Any) -> Any:
        return self.storage(saved_id)

    def read(self, path: Any) -> Any:
        """The object; UnpicklingError if the pickle is invalid."""
        try:
            return self.load()
        except (RuntimeError, pickle.UnpicklingError, MemoryError):
            raise
        except Exception as error:
            if not self.weights_only:  # perhaps from a class in the file
                raise
            raise UnpicklingError(
                f"Weights only load failed: the pickle in {path!s} is damaged "
                f"({type(error).__name__}: {error}){at_user_line()}"
            ) from error
