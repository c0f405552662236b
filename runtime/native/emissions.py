"""Emitted kernels on disk: what another process wrote for a kernel need not be written again.

The key is the kernel with its numbers, its schedule, the machine, and the text of the compiler
itself. A kernel that can fail by its values names the user's lines, which are no part of that: it
is always written anew.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright import codegen, ir
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.llvm import Emitted, Schedule
from tilewright.codegen.structure import identity

from .. import cache
from . import host

_KIND = "emitted"


def load(kernel: Kernel | Bundle, schedule: Schedule) -> list[Emitted] | None:
    """What was kept for the members of a kernel."""
    content = cache.load_bytes(_KIND, _key(kernel, schedule)) if cache.enabled() else None
    # The cache answers for the bytes, the key for those who wrote them.
    return None if content is None else pickle.loads(content)


def keep(kernel: Kernel | Bundle, schedule: Schedule, emitted: Sequence[Emitted]) -> None:
    if cache.enabled() and not any(each.checks for each in emitted):
        anonymous = [replace(each, name="kernel", notes="") for each in emitted]
        cache.store_bytes(_KIND, _key(kernel, schedule), pickle.dumps(anonymous))


def _key(kernel: Kernel | Bundle, schedule: Schedule) -> str:
    members = kernel.members if isinstance(kernel, Bundle) else (kernel,)
    made_for = [_compiler(), repr(host.machine()), repr(schedule)]
    return cache.digest("\n".join([*made_for, *map(identity, members)]))


@functools.cache
def _compiler() -> str:
    """The hash of the source text that kernels are made and emitted with."""
    found = hashlib.sha256()
    for package in (ir, codegen):
        for root in map(Path, package.__path__):
            for file in sorted(root.rglob("*.py")):
                found.update(f"{file.relative_to(root)}\n".encode())
                found.update(file.read_bytes())
    return found.hexdigest()
