"""Write the packs of ready object code (runtime/native/pack.py) into the source tree, and what is
learned with them of usual calls (usual_calls.py).

    python tools/make_pack.py

The Makefile's targets run it once, and `make pack` again. Run it before a wheel is built: the wheel
takes the files along. It needs llvmlite, and takes some seconds. On another machine than x86-64
Linux it writes nothing.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilewright.runtime import baseline, cache
from tilewright.runtime.native import host, jit, pack, source


def main() -> None:
    if host.reason_against() is not None or not host.is_proven():
        print("no pack for this machine", file=sys.stderr)
        return
    for name, machine in pack.MACHINES.items():
        kernels = list(baseline.all_kernels(machine))
        codes = {called: code for called, _, code in kernels}
        codes.update(
            (called, code + machine.attributes) for called, code in baseline.all_code(machine)
        )
        entry = source.text("x86_64")
        codes[cache.digest(entry)] = entry  # found by its text
        assemble = functools.partial(jit.assemble, machine=machine)
        with ThreadPoolExecutor() as threads:
            objects = dict(zip(codes, threads.map(assemble, codes.values()), strict=True))
        file = pack.FOLDER / name
        try:
            pack.write(objects, {called: layout for called, layout, _ in kernels}, file)
        except ValueError as reason:  # another version of LLVM refers to things otherwise
            print(f"no pack: {reason}", file=sys.stderr)
            return
        print(f"{len(objects)} pieces of code, {file.stat().st_size >> 10} KB: {name}")
    # In a process that begins with the packs.
    subprocess.run([sys.executable, str(Path(__file__).with_name("usual_calls.py"))], check=True)


if __name__ == "__main__":
    main()
