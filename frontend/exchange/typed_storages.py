"""torch.FloatStorage and its kin: PyTorch's older classes of storages, one for each dtype."""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dtypes

from .storages import TypedStorage, UntypedStorage, from_file


class _OfDtype(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        """A storage of the class's dtype is an instance."""
        own = getattr(cls, "_dtype", None)
        return type.__instancecheck__(cls, instance) or (
            isinstance(instance, TypedStorage) and instance.dtype is own
        )


class _Legacy(TypedStorage, metaclass=_OfDtype):
    """Storages of one dtype: of a size, of a list of numbers, or over `wrap_storage`."""

    _dtype: dtypes.DType

    def __init__(self, *args: Any, wrap_storage: Any = None):
        super().__init__(*args, wrap_storage=wrap_storage, dtype=self._dtype)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """The elements of a file. shared: writes go to it, and a shorter file is made longer."""
        return from_file(filename, shared, size, dtype=cls._dtype).storage()

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0
    ) -> TypedStorage:
        """A copy of the elements of a buffer object: see `storages._from_buffer`."""
        own = cls._dtype
        held = UntypedStorage.from_buffer(buffer, byte_order, count, offset, dtype=own)
        return TypedStorage(wrap_storage=held, dtype=own)

    _from_buffer = from_buffer


def _class(name: str, dtype: dtypes.DType) -> Any:
    own = {"_dtype": dtype, "__module__": __name__.partition(".")[0]}
    return _OfDtype(name, (_Legacy,), own)


KINDS = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool_,
    "ComplexFloatStorage": dtypes.complex64,
    "ComplexDoubleStorage": dtypes.complex128,
}
"""The classes' names, and their dtypes."""

NAME_OF = {dtype: name for name, dtype in KINDS.items()}

globals().update({name: _class(name, dtype) for name, dtype in KINDS.items()})


def __getattr__(name: str) -> Any:  # a checker sees the classes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
