"""A libcuda.so.1 made by gcc of `fake_libcuda.c`: its functions succeed and do next to nothing.

python tests/support/fake_libcuda.py FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path, names: Iterable[str]) -> Path:
    """Make the library in `folder`. names: functions that it has besides those of its source; they
    only succeed."""
    text = SOURCE.read_text(encoding="utf-8")
    plain = [n for n in dict.fromkeys(names) if f"int {n}(" not in text]
    (folder / "plain.c").write_text("".join(f"int {n}(void) {{ return 0; }}\n" for n in plain))
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", "libcuda.so.1", SOURCE, "plain.c"],
        cwd=folder,
        check=True,
    )
    os.symlink("libcuda.so.1", folder / "libcuda.so")
    return folder


if __name__ == "__main__":
    from tilewright.runtime.driver import PROTOTYPES

    build(Path(sys.argv[1]), PROTOTYPES)
