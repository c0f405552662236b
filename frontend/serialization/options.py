"""What torch.serialization lets a program set and ask."""

from __future__ import annotations

import enum
import os
import pickletools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from . import reading
from .unpickling import is_known

if TYPE_CHECKING:
    from ..types import FileLike

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_unsafe_globals_in_checkpoint",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]


class SourceChangeWarning(Warning):
    """A class has another source than when it was saved. None is given here."""


class LoadEndianness(enum.Enum):
    """The byte order of files that don't tell it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_set: dict[str, Any] = {"endianness": None, "crc32": True}


def get_default_load_endianness() -> LoadEndianness | None:
    return _set["endianness"]  # type: ignore[no-any-return]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Read files that don't tell their byte order, those before PyTorch 2.1, in this one."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _set["endianness"] = endianness
    reading.untold_is_big = endianness is LoadEndianness.BIG


def get_crc32_options() -> bool:
    return bool(_set["crc32"])


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether checksums are written: they always are."""
    _set["crc32"] = compute_crc32


def get_default_mmap_options() -> int:
    return reading.MAPPINGS[reading.mapping]


class set_default_mmap_options:
    """How load(mmap=True) maps files: MAP_PRIVATE keeps writes in memory, MAP_SHARED writes them to
    the file. Also a context."""

    def __init__(self, flags: int) -> None:
        known = {flag: mode for mode, flag in reading.MAPPINGS.items()}
        if flags not in known:
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE "
                f"or mmap.MAP_SHARED, but got {flags}"
            )
        self.before, reading.mapping = reading.mapping, known[flags]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        reading.mapping = self.before


class skip_data:
    """A block in which `save` leaves the places of elements empty, and `load` leaves elements as
    they are, zeros. materialize_fake_tensors: accepted; there are no such tensors."""

    def __init__(self, materialize_fake_tensors: bool = False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self.before = reading.skips_data
        reading.skips_data = True

    def __exit__(self, *exc: object) -> None:
        reading.skips_data = self.before


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """The classes and functions that load(weights_only=True) would refuse to build.

    f: a file in the zip format.
    """
    with open(os.fspath(f), "rb") if isinstance(f, (str, os.PathLike)) else nullcontext(f) as file:
        if not reading.is_zip(file):
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save in the zip format"
                f"{at_user_line()}"
            )
        file.seek(0)
        archive = reading.Archive(file, getattr(file, "name", "the file object"), lambda d: "cpu")
        data = archive.member("data.pkl")
    names = sorted({name for name in _globals(data) if not is_known(*name)})
    return [".".join(name) for name in names]


def _globals(data: bytes) -> list[tuple[str, str]]:
    """The names that a pickle asks for."""
    found: list[tuple[str, str]] = []
    texts: list[str] = []
    for code, argument, _ in pickletools.genops(data):
        if code.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            found.append((module, name))
        elif code.name == "STACK_GLOBAL" and len(texts) >= 2:
            found.append((texts[-2], texts[-1]))
        elif "UNICODE" in code.name:
            texts.append(str(argument))
    return found
