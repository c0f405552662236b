"""Images: object code of many modules, linked ahead into one piece that runs wherever it lies.

Such a piece is loaded by a copy into memory, which takes a tenth of a millisecond; LLVM's linker
takes nearly one for each module, and must be loaded first. Emitted code refers to its constants and
functions by their distance. What lies outside, it calls through a table of addresses behind the
code. So only that table has to be filled.

Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, 4.4.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import lasting

_PAGE = 4096
_SLOT = 8
_STUB = b"\xff\x25"  # jmp [rip + distance], padded to a slot

_ALLOCATED, _WRITABLE = 2, 1  # flags of a section
_CONTENT, _SYMBOLS, _RELOCATIONS = 1, 2, 4  # types of a section
_PC32, _PLT32 = 2, 4  # types of relocations
_GOT = 9, 41, 42  # those that read the table: GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_GLOBAL = 1


class Module(NamedTuple):
    """A module in an image. functions: name -> place in the image's code. imports: the names of
    what it calls outside."""

    functions: dict[str, int]
    imports: tuple[str, ...]


class Image(NamedTuple):
    """Linked code. The addresses of `imports` belong, in this order, into the table at its end."""

    code: bytes
    modules: dict[str, Module]
    imports: tuple[str, ...]


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: str
    is_global: bool
    section: int
    value: int


class _Object:
    """An object file of x86-64 in ELF. ValueError if it is none."""

    def __init__(self, data: bytes):
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18) != (62,):
            raise ValueError("not an object file of x86-64 in ELF")
        self.data = data
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = [
            _Section(*struct.unpack_from("<IIQQQQIIQQ", data, start + i * size))
            for i in range(count)
        ]

    def symbol(self, table: _Section, index: int) -> _Symbol:
        name, info, _, section, value, _ = struct.unpack_from(
            "<IBBHQQ", self.data, table.offset + index * table.entry
        )
        at = self.sections[table.link].offset + name
        text = self.data[at : self.data.index(b"\0", at)].decode()
        return _Symbol(text, info >> 4 == _GLOBAL, section, value)

    def symbols(self) -> Iterator[_Symbol]:
        for table in self.sections:
            if table.type == _SYMBOLS:
                for index in range(table.size // table.entry):
                    yield self.symbol(table, index)

    def relocations(self, section: int) -> Iterator[tuple[int, int, _Symbol, int]]:
        """(place, type, symbol, addend) of the relocations of a section."""
        for each in self.sections:
            if each.type == _RELOCATIONS and each.info == section:
                for at in range(each.offset, each.offset + each.size, each.entry):
                    place, info, addend = struct.unpack_from("<QQq", self.data, at)
                    symbol = self.symbol(self.sections[each.link], info >> 32)
                    yield place, info & 0xFFFFFFFF, symbol, addend


def link(objects: Mapping[str, bytes]) -> Image:
    """One image of the object code of modules. ValueError if a module has variables, or refers to
    something in a way that emitted code doesn't."""
    code = bytearray()
    modules: dict[str, Module] = {}
    imports: dict[str, int] = {}
    calls: list[tuple[int, int, int, int]] = []  # place, type, import, addend
    for module, data in objects.items():
        file = _Object(data)
        places: dict[int, int] = {}  # section -> its place in the image
        outside: dict[str, None] = {}
        for i, section in enumerate(file.sections):
            if section.type == _CONTENT and section.flags & _ALLOCATED and section.size:
                if section.flags & _WRITABLE:
                    raise ValueError(f"{module} has variables")
                code += bytes(-len(code) % max(section.align, 1))
                places[i] = len(code)
                code += data[section.offset : section.offset + section.size]
        for i, start in places.items():
            for place, kind, symbol, addend in file.relocations(i):
                at = start + place
                if symbol.section == 0:
                    outside[symbol.name] = None
                    number = imports.setdefault(symbol.name, len(imports))
                    calls.append((at, kind, number, addend))
                elif kind in (_PC32, _PLT32) and symbol.section in places:
                    target = places[symbol.section] + symbol.value
                    struct.pack_into("<i", code, at, target + addend - at)
                else:
                    raise ValueError(f"{module}: a relocation of type {kind} to {symbol.name!r}")
        functions = {
            s.name: places[s.section] + s.value
            for s in file.symbols()
            if s.is_global and s.section in places
        }
        modules[module] = Module(functions, tuple(outside))
    code += bytes(-len(code) % _SLOT)
    stubs, count = len(code), len(imports)
    table = -(-(stubs + count * _SLOT) // _PAGE) * _PAGE
    for number in range(count):
        stub, slot = stubs + number * _SLOT, table + number * _SLOT
        code += (_STUB + struct.pack("<i", slot - (stub + 6))).ljust(_SLOT, b"\xcc")
    for at, kind, number, addend in calls:
        if kind != _PLT32 and kind not in _GOT:
            raise ValueError(f"a relocation of type {kind} to {list(imports)[number]!r}")
        target = (stubs if kind == _PLT32 else table) + number * _SLOT
        struct.pack_into("<i", code, at, target + addend - at)
    return Image(bytes(code.ljust(table + count * _SLOT, b"\0")), modules, tuple(imports))


class Loaded:
    """An image in memory, where it stays as long as the process.

    size: the number of its bytes; read: writes them to a buffer.
    """

    def __init__(self, size: int, imports: Sequence[str], read: Callable[[memoryview], Any]):
        table = size - len(imports) * _SLOT
        if table < 0 or table % _PAGE:
            raise ValueError("an image's table of addresses begins at a page")
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with memoryview(memory) as view:
            read(view)
        lasting.keep(memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._missing = {n: self.address + table + i * _SLOT for i, n in enumerate(imports)}
        # Memory is never writable and executable at once: the table has a page of its own.
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if protect(self.address, table, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "memory can't be made executable")

    def addresses(self, module: Module, address_of: Callable[[str], int | None]) -> dict[str, int]:
        """The addresses of a module's functions, once the code knows where those lie that they
        call; LookupError if `address_of` doesn't know."""
        for name in self._missing.keys() & set(module.imports):
            address = address_of(name)
            if address is None:
                raise LookupError(f"{name} is not in this process")
            ctypes.c_uint64.from_address(self._missing.pop(name)).value = address
        return {name: self.address + place for name, place in module.functions.items()}
