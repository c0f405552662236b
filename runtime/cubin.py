"""What a cubin says of its kernel: registers and stack, without a tool of NVIDIA's.

A cubin is a 64-bit ELF file. The section `.nv.info` holds attributes: a format, a number, two
bytes, and behind format 4 as many bytes as these tell. A kernel's registers and the frame of its
stack are attributes of its symbol: pairs of the symbol's index and a number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SIZED, _SHORT = 4, (1, 2, 3)  # formats: with a payload of its own size, and with two bytes alone
_REGISTERS, _FRAME = 0x2F, 0x11


def usage(binary: bytes) -> tuple[int, int]:
    """(registers of a thread, bytes of its stack) of the kernel in a cubin, which spills go to.

    ValueError if it isn't a cubin that tells.
    """
    found: dict[int, list[int]] = {_REGISTERS: [], _FRAME: []}
    for attribute, payload in _attributes(_section(binary, b".nv.info")):
        if attribute in found and len(payload) == 8:
            found[attribute].append(struct.unpack("<II", payload)[1])
    if not found[_REGISTERS]:
        raise ValueError("expected a cubin with the registers of a kernel")
    return max(found[_REGISTERS]), max(found[_FRAME], default=0)


def _section(binary: bytes, name: bytes) -> bytes:
    """The contents of a section of an ELF file; empty if there is none of that name."""
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError("expected a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, strings = struct.unpack_from("<HHH", binary, 0x3A)

    def header(place: int) -> tuple[int, int, int]:
        at = table + place * size
        (own,) = struct.unpack_from("<I", binary, at)
        offset, length = struct.unpack_from("<QQ", binary, at + 0x18)
        return own, offset, length

    _, names, _ = header(strings)
    for place in range(count):
        own, offset, length = header(place)
        if binary[names + own :].startswith(name + b"\0"):
            return binary[offset : offset + length]
    return b""


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == _SIZED:
            yield attribute, info[at : at + size]
            at += size
        elif kind not in _SHORT:
            raise ValueError(f"an attribute of format {kind} in .nv.info")
