"""Write the pack of ready object code (runtime/native/pack.py) into the source tree.

    python tools/make_pack.py

The Makefile's targets run it once, and `make pack` again. Run it before a wheel is built: the wheel
takes the file along. It needs llvmlite, and takes some seconds. On another machine than x86-64
Linux it writes nothing.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tilewright.runtime import baseline, cache
from tilewright.runtime.native import host, jit, pack, source


def main() -> None:
    if host.reason_against() is not None or not host.is_proven():
        print("no pack for this machine", file=sys.stderr)
        return
    kernels = list(baseline.all_kernels(pack.MACHINE))
    codes = {name: code for name, _, code in kernels}
    codes.update((name, code + pack.MACHINE.attributes) for name, code in baseline.all_code())
    entry = source.text("x86_64")
    codes[cache.digest(entry)] = entry  # found by its text
    with ThreadPoolExecutor() as threads:
        made = threads.map(lambda code: jit.assemble(code, pack.MACHINE), codes.values())
        objects = dict(zip(codes, made, strict=True))
    try:
        pack.write(objects, {name: layout for name, layout, _ in kernels})
    except ValueError as reason:  # another version of LLVM refers to things otherwise
        print(f"no pack: {reason}", file=sys.stderr)
        return
    size = pack.FILE.stat().st_size
    print(f"{len(objects)} pieces of code, {size >> 10} KB: {pack.FILE.name}")


if __name__ == "__main__":
    main()
