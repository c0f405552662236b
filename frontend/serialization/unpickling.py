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

from .._tensor import Tensor
from ..devices import device as Device
from ..nn.parameter import Parameter
from .naming import class_at, is_named, path_of
from .rebuilding import (
    Skipped,
    UnpicklingError,
    layout_named,
    rebuild,
    rebuild_any,
    rebuild_from_array,
    rebuild_meta,
    rebuild_moved,
    rebuild_nested,
    rebuild_parameter,
    rebuild_quantized,
    rebuild_sparse,
    rebuild_typed,
    refused,
)
from .storages import QUANTIZED, STORAGES

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
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): rebuild_meta,
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): rebuild_from_array,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): rebuild_moved,
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild_typed,
    ("torch._utils", "_rebuild_sparse_tensor"): rebuild_sparse,
    ("torch._utils", "_rebuild_nested_tensor"): refused("a nested tensor", "x.unbind()"),
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): rebuild_nested,
    ("torch.nested._internal.nested_tensor", "NestedTensor"): None,
    ("torch._dynamo.decorators", "_DimRange"): Skipped,
    ("torch._utils", "_rebuild_qtensor"): rebuild_quantized,
    ("torch._utils", "_rebuild_wrapper_subclass"): refused(
        "a tensor of a subclass without memory of its own", "the tensors that it wraps"
    ),
    ("torch.serialization", "_get_layout"): layout_named,
    ("torch", "Tensor"): Tensor,
    ("torch.nn.parameter", "Parameter"): Parameter,
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
    **{("torch", name): dtype for name, dtype in QUANTIZED.items()},
    **{
        ("torch", n): n
        for n in ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams")
    },
    **{("torch", d.name): d for d in QUANTIZED.values()},
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
        own = path_of(obj) if path is None and is_named(obj) else None
        if own is not None:
            _allowed[own] = obj


def clear_safe_globals() -> None:
    _allowed.clear()


def get_safe_globals() -> list[Any]:
    return list(dict.fromkeys(_allowed.values()))


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Allow load(weights_only=True) to build these classes too, inside the block."""
    before = dict(_allowed)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)


def is_known(module: str, name: str) -> bool:
    """Whether load(weights_only=True) builds a class, or calls a function."""
    module = "builtins" if module == "__builtin__" else module
    return (module, name) in _SAFE or (module, name) in _allowed


class Unpickler(_BaseUnpickler):
    """Builds objects of listed classes, or of any class unless `weights_only`."""

    dispatch = dict(_BaseUnpickler.dispatch)

    def __init__(
        self,
        file: Any,
        weights_only: bool,
        storage: Callable[[Any], Any],
        classes: Callable[[str, str], Any] | None = None,
    ):
        super().__init__(file, encoding="utf-8")
        self.classes = classes
        self.given: set[Any] = set()  # what `classes` gave: it may be built
        self.weights_only = weights_only
        self.storage = storage

    def load_build(self) -> None:
        """Set attributes, except on classes and functions, which outlive the load."""
        kind = type(self.stack[-2])
        known = (OrderedDict, Counter, Skipped, *_allowed.values())
        if self.weights_only and kind not in known and kind not in self.given:
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
        if self.classes is not None and (found := self.classes(module, name)) is not None:
            self.given.add(found)
            return found
        if module == "__builtin__":  # Python 2's names, which protocol 2 keeps
            module, name = "builtins", {"unicode": "str", "long": "int"}.get(name, name)
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
            return class_at(module, name)
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
