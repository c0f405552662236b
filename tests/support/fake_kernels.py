"""Kernels of the driver without a GPU: compilation, calls, checks of accesses (`fake_cuda.py`)."""

from __future__ import annotations

import ctypes
import pickle
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from fake_streams import Point

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import INTERPRET, Target
from tilewright.runtime import offline

if TYPE_CHECKING:
    from fake_cuda import FakeCuda

WIDTHS = {"i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4}
WIDTHS |= {"fp32": 4, "i64": 8, "u64": 8, "fp64": 8}
TENSOR = re.compile(r"tensordesc<(\w+)\[([\d, ]+)\]>")
TENSOR_ELEMENTS = {"fp16": 6, "fp32": 7, "bf16": 9}  # CUtensorMapDataType
TENSOR_MAP = struct.Struct("<11Q6I16x")  # address, mark, 5 sizes, 4 steps in bytes, box, element
SMALL_MAP, FAULT = 128 << 10, 1 << 21  # the mark does harm below this size in bytes
NUMPY = {"i1": "?", "i8": "i1", "u8": "u1", "i16": "i2", "i32": "i4", "u32": "u4", "i64": "i8"}
NUMPY |= {"u64": "u8", "fp16": "f2", "fp32": "f4", "fp64": "f8"}
MAGIC = b"\x7fELF of a request"


def image(request: offline.Request) -> bytes:
    """A stand-in for a cubin: the pickled request."""
    content = pickle.dumps(request)
    return MAGIC + len(content).to_bytes(8, "little") + content


def loaded(image: int) -> offline.Request | None:
    """The request in the image at this address; None if it is no such image."""
    if ctypes.string_at(image, len(MAGIC)) != MAGIC:
        return None
    start = image + len(MAGIC)
    size = int.from_bytes(ctypes.string_at(start, 8), "little")
    return pickle.loads(ctypes.string_at(start + 8, size))


def compile_many(
    requests: Sequence[offline.Request], processes: int | None = None
) -> list[offline.Compiled]:
    """Replaces `offline.compile_many` and compiles nothing."""
    return [
        offline.Compiled(
            name=r.name,
            target=r.target,
            asm={},
            binary=image(r),
            registers=32,
            spills=0,
            shared=1024 * r.num_stages,
            num_warps=r.num_warps,
            scratch=0,
            maps=tuple(_tensor_map(t) for _, t in passed(r) if t.startswith("tensordesc")),
        )
        for r in requests
    ]


def large_programs(kernel: Kernel | Bundle, target: Target) -> Schedule:
    """A schedule with few programs, as the interpreter is slow for each."""
    rounds = default_schedule(kernel, target).tf32
    return replace(default_schedule(kernel, INTERPRET), num_warps=2, tf32=rounds)


class Watched:
    """Triton's interpreter of memory operations, with a report of each access."""

    def __init__(self, fake: FakeCuda, stock: Any):
        self._fake, self._stock = fake, stock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._fake.accessed(pointers, mask, np.dtype(dtype).itemsize, False)
        return self._stock.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._fake.accessed(pointers, mask, value.dtype.itemsize, True)
        return self._stock.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        self._fake.accessed(pointers, mask, value.dtype.itemsize, True)
        return self._stock.atomic_rmw(op, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, expected: Any, value: Any, order: Any) -> Any:
        self._fake.accessed(pointers, np.ones(1, bool), value.dtype.itemsize, True)
        return self._stock.atomic_cas(pointers, expected, value, order)


def _tensor_map(kind: str) -> offline.TensorMap:
    element, lengths = TENSOR.fullmatch(kind).groups()  # type: ignore[union-attr]
    box = tuple(map(int, lengths.split(", ")))
    return offline.TensorMap(TENSOR_ELEMENTS[element], WIDTHS[element], 3, box)


@dataclass
class Launch:
    """One requested launch of a kernel. block: the bytes of each parameter. Those of a tensor
    descriptor include the sizes that follow it."""

    request: offline.Request
    grid: tuple[int, ...]
    threads: tuple[int, ...]
    shared: int
    block: tuple[bytes, ...]

    @classmethod
    def read(cls, request: offline.Request, config: Any, parameters: int) -> Launch:
        """Read a launch from the driver's configuration and the addresses of its parameters."""
        widths = [_widths(t) for _, t in passed(request)]
        places = iter((ctypes.c_void_p * (sum(map(len, widths)) + 2)).from_address(parameters))
        parts = [[ctypes.string_at(next(places), w) for w in each] for each in (*widths, [8], [8])]
        block = tuple(map(b"".join, parts))
        return cls(request, tuple(config.grid), tuple(config.block), config.shared, block)

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by name: pointers as addresses, tensor descriptors in the interpreter's
        form."""
        out: dict[str, Any] = {}
        for (name, kind), raw in zip(passed(self.request), self.block):
            if kind.startswith("tensordesc"):
                out[name] = _matrix(kind, raw)
                continue
            dtype = "u8" if kind.startswith("*") else NUMPY[kind]
            out[name] = np.frombuffer(raw, dtype)[0].item()
        return out


def _matrix(kind: str, raw: bytes) -> tuple[Any, ...]:
    """(address, sizes, elements between neighbours along each) from the map and the sizes that
    follow it."""
    how = _tensor_map(kind)
    rank = len(how.box)
    pointer, mark, *rest, element = TENSOR_MAP.unpack(raw[:128])
    sizes, steps, box = (
        tuple(rest[at : at + n][::-1]) for at, n in ((0, rank), (5, rank - 1), (9, rank))
    )
    strides = *(n // how.size for n in steps), 1
    last = sum(stride * (n - 1) for n, stride in zip(sizes, strides)) * how.size
    assert mark == FAULT * (last + 1 >= SMALL_MAP), "the hardware may read beyond this matrix"
    assert (box, element) == (how.box, how.element)
    assert struct.unpack(f"<{rank}i{rank}q", raw[128:]) == (*sizes, *strides)
    return pointer, sizes, strides


def passed(request: offline.Request) -> list[tuple[str, str]]:
    """Name and type of each parameter of a launch."""
    return [(n, t) for n, t in request.signature.items() if t != "constexpr"]


def _widths(kind: str) -> list[int]:
    """The bytes of each of the driver's parameters for one of Triton's."""
    if kind.startswith("tensordesc"):
        rank = kind.count(",") + 1
        return [128, *[4] * rank, *[8] * rank]
    return [8 if kind.startswith("*") else WIDTHS[kind]]


def bytes_passed(request: offline.Request) -> int:
    """The bytes of a launch's parameters, including the two addresses of scratch memory."""
    return sum(sum(_widths(t)) for _, t in passed(request)) + 16


@dataclass
class Ready:
    """An executable graph. after: the nodes that each node waits for. last: the end of its last
    launch, which the next launch waits for."""

    launches: dict[int, Launch]
    after: dict[int, list[int]]
    last: Point | None = None
