"""Compiled kernels: compiled side by side, stored on disk, loaded once by the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache as remembered
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.codegen.schedule import Usage
from tilewright.codegen.triton import Emitted

from .. import cache, offline
from .context import Context
from .driver import CudaError

STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a launch may use without a request to the driver."""

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_…
_ASSEMBLER = "TRITON_PTXAS_BLACKWELL_PATH"
_SHARE = 3  # kernels that pay for another compiling process


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

    @property
    def usage(self) -> Usage:
        return Usage(self.registers, self.shared, self.spills)

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


@dataclass(frozen=True, eq=False)
class Packed:
    """A compiled kernel of a file. unaligned: its form for buffers at any address, where needed."""

    emitted: Emitted
    image: Image
    unaligned: Image | None

    name = property(lambda self: self.emitted.name)
    scalars = ()


@dataclass(frozen=True, eq=False)
class Function:
    """A loaded kernel. handle: CUfunction. threads: of a program. usage: what the compiler
    reported."""

    handle: int
    threads: int
    shared: int
    scratch: int
    maps: tuple[offline.TensorMap, ...]
    usage: Usage


def suited(emitted: Emitted, target: str) -> Emitted:
    """`emitted`, or its form without tensor descriptors for chips that don't copy by them."""
    if emitted.plain is not None and int(target.removeprefix("sm_")) < 90:
        return emitted.plain
    return emitted


class Kernels:
    """The functions that a device has loaded, by the request to the compiler."""

    def __init__(self, context: Context):
        self.context = context
        self.target = f"sm_{context.attribute('major')}{context.attribute('minor')}"
        self.shared_limit = context.attribute("shared_memory_per_block_optin")
        self.assembler = _assembler(self.target, context.driver.number("cuDriverGetVersion"))
        if self.assembler:
            os.environ[_ASSEMBLER] = self.assembler  # for compiling processes too
        self._loaded: dict[str, Function | None] = {}

    def load_all(self, kernels: Sequence[Emitted]) -> list[Function | None]:
        """A function for each kernel. Kernels that look the same to the compiler share one.

        None for a kernel that needs more shared memory than this GPU has.
        """
        requests = [offline.request(e, self.target) for e in kernels]
        keys = [_key(r, self.assembler) for r in requests]
        missing = {k: r for k, r in zip(keys, requests) if k not in self._loaded}
        for (key, request), image in zip(missing.items(), _images(missing), strict=True):
            self._loaded[key] = self.load(request.name, image)
        return [self._loaded[k] for k in keys]

    def images(self, kernels: Sequence[Emitted]) -> list[Image]:
        """The compiled kernels, for another process to load."""
        requests = [offline.request(e, self.target) for e in kernels]
        keys = [_key(r, self.assembler) for r in requests]
        found = dict(zip(keys, requests))
        made = dict(zip(found, _images(found), strict=True))
        return [made[k] for k in keys]

    def load(self, name: str, image: Image) -> Function | None:
        """Load a compiled kernel; None if it needs more shared memory than this GPU has."""
        driver = self.context.driver
        if image.shared > self.shared_limit:
            return None
        self.context.use()
        try:
            module = driver.handle("cuModuleLoadData", image.binary)
            handle = driver.handle("cuModuleGetFunction", module, (image.entry or name).encode())
            if image.shared > STATIC_SHARED:
                driver.cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED, image.shared)
                # As Triton does, so that equally many programs share a multiprocessor.
                driver.cuFuncSetCacheConfig(handle, _PREFER_SHARED)
        except CudaError as error:
            raise CudaError(
                error.code, error.name, f"{error} (kernel {name}, compiled for {self.target})"
            ) from None
        threads = 32 * image.num_warps
        return Function(handle, threads, image.shared, image.scratch, image.maps, image.usage)


@remembered
def _compiler() -> str:
    return metadata.version("triton")


def _key(request: offline.Request, assembler: str) -> str:
    about = {f.name: getattr(request, f.name) for f in fields(request)}
    text = json.dumps([_compiler(), assembler, about], sort_keys=True, default=_described)
    return cache.digest(text)


def _described(value: Any) -> str:
    """Text for a constexpr that isn't plain data: a function's code, a dtype's name."""
    return getattr(value, "cache_key", None) or repr(value)


def _assembler(target: str, driver: int) -> str:
    """The ptxas that Triton must use for `target`, if its own choice is wrong.

    driver: the driver's CUDA version, such as 12080. From sm_90 on Triton chooses its newest ptxas,
        of CUDA 13. Older drivers don't load its cubins. Triton's wheel has another one, of CUDA 12.
    """
    chosen = os.environ.get(_ASSEMBLER, "")
    if chosen or driver >= 13000 or int(target[3:]) < 90:
        return chosen
    spec = find_spec("triton")
    folders = spec.submodule_search_locations if spec is not None else None
    found = Path(*folders, "backends", "nvidia", "bin", "ptxas") if folders else Path()
    return str(found) if found.is_file() else ""


def _images(requests: dict[str, offline.Request]) -> list[Image]:
    """A compiled kernel for each request, from disk or from the compiler."""
    found = {key: image for key in requests if (image := _stored(key)) is not None}
    missing = [key for key in requests if key not in found]
    if missing:
        processes = min(os.cpu_count() or 1, -(-len(missing) // _SHARE))
        made = offline.compile_many([requests[k] for k in missing], processes)
        for key, each in zip(missing, made):
            image = Image.of(each)
            _store(key, image)
            found[key] = image
    return [found[key] for key in requests]


def _store(key: str, image: Image) -> None:
    about = json.dumps(image.numbers()).encode()
    cache.store_bytes("cubin", key, about + b"\n" + image.binary)


def _stored(key: str) -> Image | None:
    content = cache.load_bytes("cubin", key)
    if content is None:
        return None
    about, _, binary = content.partition(b"\n")
    try:
        numbers = json.loads(about)
        image = Image.read(binary, numbers)
        counts = (image.shared, image.num_warps, image.scratch, numbers["spills"])
        if not all(type(n) is int and n >= 0 for n in counts) or type(image.entry) is not str:
            raise ValueError("an image of another form")
    except (LookupError, TypeError, ValueError):
        cache.discard("cubin", key)
        return None
    return image
