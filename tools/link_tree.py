"""Build `.src/tilewright`, a tree of relative symlinks laid out as the installed package is.

The layers live in `frontend/`, `ir/`, `codegen/` and `runtime/` and install as one package through
setuptools' package-dir, which type checkers don't follow. They follow this tree, and
`PYTHONPATH=.src python ...` runs from it without an install:

    .src/tilewright/<entry of frontend/>  ->  frontend/<entry>
    .src/tilewright/{ir,codegen,runtime}  ->  {ir,codegen,runtime}

Running it again changes nothing. Stale links are removed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("ir", "codegen", "runtime")


def wanted_links(root: Path) -> dict[str, Path]:
    """The links of the tree: name below `.src/tilewright` -> path."""
    links = {
        entry.name: entry
        for entry in sorted((root / "frontend").iterdir())
        if entry.name != "__pycache__" and not entry.name.startswith(".")
    }
    for layer in LAYERS:
        if layer in links:
            raise SystemExit(f"frontend/{layer} hides the layer {layer}/: rename it")
        if (root / layer).is_dir():
            links[layer] = root / layer
    return links


def link(path: Path, target: str) -> bool:
    """Make `path` a symlink to `target`. Returns whether anything changed."""
    if path.is_symlink() and os.readlink(path) == target:
        return False
    # A rename, so that readers and other processes never find the link missing.
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(path)
    return True


def build(root: Path = ROOT) -> Path:
    """Update `root/.src/tilewright`. Returns `root/.src`."""
    package = root / ".src" / "tilewright"
    package.mkdir(parents=True, exist_ok=True)
    links = wanted_links(root)
    for entry in package.iterdir():
        if entry.is_symlink() and entry.name not in links:
            entry.unlink(missing_ok=True)
    for name, source in links.items():
        link(package / name, os.path.relpath(source, package))
    return package.parent


if __name__ == "__main__":
    tree = build()
    if "--quiet" not in sys.argv[1:]:
        print(tree)
