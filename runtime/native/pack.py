"""The pack: object code that is made with the package, so that a first call compiles nothing.

It holds the pool's entry points and the kernels of single ops (`runtime/baseline/maps.py`), for any
x86-64 processor with AVX2 and FMA under Linux. `python tools/make_pack.py` writes it. Where there
is none, or it was made from other sources, the same code is compiled as it is needed.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import codegen
from tilewright.codegen.llvm.machine import Machine
from tilewright.ir import ops

from .. import cache, debug, files
from . import host

FILE = Path(__file__).parent / "x86_64-linux.pack"
MACHINE = Machine(
    "x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe", 32
)
"""The machine that the pack is made for."""


class Layout(NamedTuple):
    """The words of a kernel of one axis.

    words: their number. buffers: the places of the buffers. sizes: the places of the size, of the
    number of chunks and of the size of a chunk. scalars: (slot, place, kind) of each scalar.
    order: the operand that each input is.
    """

    words: int
    buffers: tuple[int, ...]
    sizes: tuple[int, int, int]
    scalars: tuple[tuple[int, int, int], ...]
    order: tuple[int, ...]


class Image(NamedTuple):
    """Object code, and the names of the C library's functions that it calls."""

    code: bytes
    imports: tuple[str, ...]


def image(name: str) -> Image | None:
    """The object code called `name`; None if it isn't there."""
    content = _content()
    place = content.said["images"].get(name) if content is not None else None
    if content is None or place is None:
        return None
    start, size, imports = place
    return Image(bytes(content.code[start : start + size]), tuple(imports))


def layout(name: str) -> Layout | None:
    """The words of the kernel called `name`; None if it isn't there."""
    content = _content()
    found = content.said["layouts"].get(name) if content is not None else None
    if found is None:
        return None
    words, buffers, sizes, scalars, order = found
    return Layout(words, tuple(buffers), tuple(sizes), tuple(map(tuple, scalars)), tuple(order))


def write(images: dict[str, Image], layouts: dict[str, Layout], file: Path = FILE) -> None:
    """Write the pack, all at once: a line of JSON that tells where the pieces lie, and the code."""
    places, start = {}, 0
    for name, (code, imports) in images.items():
        places[name] = (start, len(code), imports)
        start += len(code)
    said = {"sources": _sources(), "images": places, "layouts": layouts}
    with files.whole(file) as out:
        out.write(json.dumps(said).encode() + b"\n" + b"".join(i.code for i in images.values()))
    _content.cache_clear()


def fits() -> bool:
    """Whether this machine runs the pack's code."""
    machine = host.machine()
    has_all = set(MACHINE.features.split(",")) <= set(machine.features.split(","))
    return has_all and "linux" in machine.triple


class _Content(NamedTuple):
    """The line of JSON, and the code, of which only what is asked for is read."""

    said: dict[str, Any]
    code: Any


@functools.cache
def _content() -> _Content | None:
    """The pack; None where there is none for this machine."""
    if not fits():
        return None
    try:
        with FILE.open("rb") as file:
            said = json.loads(file.readline())
            start = file.tell()
            if said["sources"] == _sources():
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                return _Content(said, memoryview(mapped)[start:])
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


def _sources() -> str:
    """The names and sizes of the sources that the code of kernels depends on, as a hash. Reading
    them all would take as long as what the pack saves."""
    found: list[str] = []
    folders = [*map(str, codegen.__path__), *map(str, ops.__path__)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found.append(f"{entry.name} {entry.stat().st_size}")
                elif entry.is_dir() and not entry.name.startswith("_"):
                    folders.append(entry.path)
    return cache.digest(" ".join(sorted(found)))
