"""Compiled kernels: compiled side by side, stored on disk, loaded once by the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.schedule import Usage
from tilewright.codegen.triton import Emitted

from .. import cache, offline
from ..driver import CudaError
from . import pack
from .context import Context
from .image import ASSEMBLER, Image, assembler_for, key_of
from .promises import Divisors, Promises

_SHARE = 3  # kernels that pay for another compiling process


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
    reported. promised: the divisors of parameters that it was told; None if they aren't known."""

    handle: int
    threads: int
    shared: int
    scratch: int
    maps: tuple[offline.TensorMap, ...]
    usage: Usage
    promised: Divisors | None = None


class Kernels:
    """The functions that a device has loaded, by the request to the compiler."""

    def __init__(self, context: Context):
        self.context = context
        self.target = context.driver.architecture(context.device)
        self.warp = context.attribute("warp_size")
        self.shared_limit = context.attribute("shared_memory_per_block_optin")
        self.assembler = assembler_for(self.target, context.driver.number("cuDriverGetVersion"))
        if self.assembler:
            os.environ[ASSEMBLER] = self.assembler  # for compiling processes too
        self._loaded: dict[str, Function | None] = {}
        self._promises = Promises()

    def load_all(self, kernels: Sequence[Emitted], exact: bool = True) -> list[Function | None]:
        """A function for each kernel. Kernels that look the same to the compiler share one.

        None for a kernel that needs more shared memory than this GPU has. exact: whether it is
        compiled for the very sizes of the kernel, and not for all of which it was told.
        """
        requests = [offline.request(e, self.target) for e in kernels]
        if not exact:
            requests = list(map(self._for_all_sizes, kernels, requests))
        keys = [key_of(r, self.assembler) for r in requests]
        missing = {k: r for k, r in zip(keys, requests) if k not in self._loaded}
        for (key, request), image in zip(missing.items(), _images(missing), strict=True):
            function = self.load(request.name, image)
            self._loaded[key] = function and replace(function, promised=request.divisible)
        return [self._loaded[k] for k in keys]

    def _for_all_sizes(self, kernel: Emitted, exact: offline.Request) -> offline.Request:
        """The request for a kernel that serves all sizes of which its text was told. If a pack has
        one for its own sizes, that needs no compiler."""
        found = replace(exact, divisible=self._promises.of(kernel))
        if found == exact or pack.image(key_of(exact, self.assembler)) is not None:
            return exact
        return found

    def images(self, kernels: Sequence[Emitted]) -> list[Image]:
        """The compiled kernels, for another process to load."""
        requests = [offline.request(e, self.target) for e in kernels]
        keys = [key_of(r, self.assembler) for r in requests]
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
            driver.share(handle, image.shared)
        except CudaError as error:
            raise CudaError(
                error.code, error.name, f"{error} (kernel {name}, compiled for {self.target})"
            ) from None
        threads = self.warp * image.num_warps
        return Function(handle, threads, image.shared, image.scratch, image.maps, image.usage)


def _images(requests: dict[str, offline.Request]) -> list[Image]:
    """A compiled kernel for each request, from disk, from a pack or from the compiler."""
    found = {key: image for key in requests if (image := _stored(key) or pack.image(key))}
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
        counts = (
            image.shared,
            image.num_warps,
            image.scratch,
            numbers["spills"],
            numbers["columns"],
        )
        if not all(type(n) is int and n >= 0 for n in counts) or type(image.entry) is not str:
            raise ValueError("an image of another form")
    except (LookupError, TypeError, ValueError):
        cache.discard("cubin", key)
        return None
    return image
