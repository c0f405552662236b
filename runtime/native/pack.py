"""The pack: object code that is made with the package, so that a first call compiles nothing.

It holds the pool's entry points and the kernels of single ops (`runtime/baseline/maps.py`), for any
x86-64 processor with AVX2 and FMA under Linux. Processors with AVX-512 have a pack of their own:
functions such as exponentials take half the time there. `python tools/make_pack.py` writes both.
Where there is none, or it was made from other sources, the same code is compiled as it is needed.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tilewright import codegen
from tilewright.codegen.llvm.machine import Machine
from tilewright.ir import ops, recurrence

from .. import debug, files
from . import host
from .image import Loaded, Module, link

_TRIPLE, _AVX2 = "x86_64-unknown-linux-gnu", "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
MACHINES = {
    "x86_64-v4-linux.pack": Machine(_TRIPLE, "x86-64-v4", _AVX512, 64),
    "x86_64-linux.pack": Machine(_TRIPLE, "x86-64-v3", _AVX2, 32),
}
"""The machines that there are packs for, by the names of their files. A process takes the first one
whose code it runs."""
FOLDER = Path(__file__).parent


class Layout(NamedTuple):
    """The words of a kernel of one axis.

    words: their number. buffers: the places of the buffers. sizes: the places of the size, of the
    number of chunks and of the size of a chunk. scalars: (slot, place, kind) of each scalar.
    order: the operand that each input is. results: the result that each output is.
    """

    words: int
    buffers: tuple[int, ...]
    sizes: tuple[int, int, int]
    scalars: tuple[tuple[int, int, int], ...]
    order: tuple[int, ...]
    results: tuple[int, ...]


def addresses(name: str, outside: Mapping[str, int] | None = None) -> dict[str, int] | None:
    """The functions of the module called `name`, ready to be called; None if it isn't there.

    outside: addresses of what the code calls besides the C library.
    """
    content = _content()
    module = content.said["modules"].get(name) if content is not None else None
    if content is None or module is None:
        return None
    known = outside or {}
    return content.code.addresses(Module(*module), lambda n: known.get(n) or host.address_of(n))


def layout(name: str) -> Layout | None:
    """The words of the kernel called `name`; None if it isn't there."""
    content = _content()
    found = content.said["layouts"].get(name) if content is not None else None
    if found is None:
        return None
    words, buffers, sizes, scalars, *places = found
    order, results = map(tuple, places)
    return Layout(words, tuple(buffers), tuple(sizes), tuple(map(tuple, scalars)), order, results)


def write(objects: Mapping[str, bytes], layouts: Mapping[str, Layout], file: Path) -> None:
    """Write a pack, all at once: a line of JSON that tells what lies where, and the image.

    objects: the object code of each module, for the file's machine.
    """
    code, modules, imports = link(objects)
    said = {
        "sources": _sources(),
        "size": len(code),
        "sum": zlib.crc32(code),
        "modules": modules,
        "imports": imports,
        "layouts": layouts,
    }
    with files.whole(file) as out:
        out.write(json.dumps(said).encode() + b"\n" + code)
    _content.cache_clear()


def fits(machine: Machine) -> bool:
    """Whether this machine runs code for `machine`."""
    needed = {f.removeprefix("+") for f in machine.features.split(",")}
    return host.is_proven() and needed <= host.features()


def file() -> Path | None:
    """The file of the pack for this machine; None if there is none for its like."""
    return next((FOLDER / name for name, each in MACHINES.items() if fits(each)), None)


def is_here() -> bool:
    """Whether there is a pack that this machine runs."""
    return _content() is not None


class _Content(NamedTuple):
    """The line of JSON, and the code."""

    said: dict[str, Any]
    code: Loaded


@functools.cache
def _content() -> _Content | None:
    """The pack; None where there is none for this machine."""
    where = file()
    if where is None:
        return None
    try:
        with where.open("rb") as opened:
            said = json.loads(opened.readline())
            if not _is_stale(said["sources"]):
                return _Content(said, _loaded(said, opened))
        state = "was made from other sources"
    except FileNotFoundError:
        state = "is not there"
    except (OSError, ValueError, LookupError, TypeError):
        state = "cannot be read"
    debug.say(
        f"the pack of native code {state}, so first calls compile "
        "(`python tools/make_pack.py` makes it)"
    )
    return None


def _loaded(said: dict[str, Any], file: BinaryIO) -> Loaded:
    def read(memory: memoryview) -> None:
        if file.readinto(memory) != len(memory) or zlib.crc32(memory) != said["sum"]:  # type: ignore[attr-defined]
            raise ValueError("the pack is damaged")

    return Loaded(said["size"], said["imports"], read)


def _is_stale(sources: str) -> bool:
    """Whether the sources changed since the pack was made."""
    return files.is_checkout() and sources != _sources()


def _sources() -> str:
    """The sources that the code of kernels depends on."""
    return files.fingerprint([recurrence.__file__, *codegen.__path__, *ops.__path__])
