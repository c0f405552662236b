"""Images: compiled kernels as a driver loads them, and the keys by which they are found."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from functools import cache as remembered
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.codegen.schedule import Usage
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import Emitted

from .. import cache, offline

EARLY = os.environ.get("TW_PDL") == "1"
"""Whether kernels of a graph start while those ahead of them end. No card has measured it yet."""
ASSEMBLER = "TRITON_PTXAS_BLACKWELL_PATH"
"""Triton's variable that names the assembler."""
_TOOLS = Path("backends", "nvidia", "bin")
"""Where Triton's wheel has its assemblers, in the package's folder."""


@dataclass(frozen=True)
class Image:
    """A compiled kernel: `binary` is a cubin; the rest as in `offline.Compiled`."""

    binary: bytes
    shared: int
    num_warps: int
    scratch: int
    maps: tuple[offline.TensorMap, ...] = ()
    entry: str = ""
    registers: int = 0
    spills: int = 0
    columns: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(self.registers, self.shared, self.spills, self.num_warps, self.columns)

    @staticmethod
    def of(compiled: offline.Compiled) -> Image:
        return Image(**{f.name: getattr(compiled, f.name) for f in fields(Image)})

    def numbers(self) -> dict[str, Any]:
        """All fields but the binary, as JSON takes them."""
        found = asdict(self)
        del found["binary"]
        return found

    @staticmethod
    def read(binary: bytes, numbers: dict[str, Any]) -> Image:
        """The inverse of `numbers`."""
        maps = tuple(
            offline.TensorMap(**{**m, "box": tuple(m["box"])}) for m in numbers.get("maps", ())
        )
        return Image(binary, **{**numbers, "maps": maps})


def suited(emitted: Emitted, target: str) -> Emitted:
    """The form of `emitted` for a chip: without tensor descriptors where it doesn't copy by
    them."""
    if not gpu(target).chip.tensor_maps:
        return emitted.plain or emitted
    return emitted.begun_early() if EARLY else emitted


@remembered
def _compiler() -> str:
    return metadata.version("triton")


def key_of(request: offline.Request, assembler: str) -> str:
    """The key of a request to the compiler, the same wherever the compiler is installed."""
    about = {f.name: getattr(request, f.name) for f in fields(request)}
    text = json.dumps([_compiler(), _named(assembler), about], sort_keys=True, default=_described)
    return cache.digest(text)


def _named(assembler: str) -> str:
    """An assembler of Triton's wheel by its name, wherever Triton is installed; another by its
    path."""
    path = Path(assembler)
    return path.name if path.parent in (folder / _TOOLS for folder in _folders()) else assembler


@remembered
def _folders() -> tuple[Path, ...]:
    """Where Triton is installed."""
    spec = find_spec("triton")
    return tuple(map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()))


def _described(value: Any) -> str:
    """Text for a constexpr that isn't plain data: a function's code, a dtype's name."""
    return getattr(value, "cache_key", None) or repr(value)


def assembler_for(target: str, driver: int) -> str:
    """The ptxas that Triton must use for `target`, if its own choice is wrong.

    driver: the driver's CUDA version, such as 12080. From sm_90 on Triton chooses its newest ptxas,
        of CUDA 13. Older drivers don't load its cubins. Triton's wheel has another one, of CUDA 12.
    """
    chosen = os.environ.get(ASSEMBLER, "")
    if chosen or driver >= 13000 or not gpu(target).chip.tensor_maps:
        return chosen
    found = next((folder / _TOOLS / "ptxas" for folder in _folders()), Path())
    return str(found) if found.is_file() else ""
