"""The distribution `torch` that stands for tilewright: a package of one file, and its metadata.

Packages ask for torch in several ways: they import it, look for its spec, or read the version of
the installed distribution. A folder on the path with these files answers all of them, in child
processes too.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from ..torch_version import VERSION
from .finder import OURS, TorchFinder, take_names

_INSTALLER = "tilewright"
_INFO = f"torch-{VERSION}.dist-info"
_FILES = {
    "torch/__init__.py": (
        '"""torch is tilewright here. `tilewright as-torch uninstall` removes this folder."""\n\n'
        "from tilewright.as_torch.finder import install\n\ninstall()\n"
    ),
    f"{_INFO}/METADATA": (
        f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
        "Summary: tilewright under PyTorch's name\nRequires-Dist: tilewright\n"
    ),
    f"{_INFO}/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: tilewright\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    f"{_INFO}/INSTALLER": f"{_INSTALLER}\n",
    f"{_INFO}/top_level.txt": "torch\n",
}


class Refused(RuntimeError):
    """What can't be installed or removed, and why."""


def write(folder: Path) -> None:
    """Write the distribution into a folder."""
    rows = []
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{name},sha256={digest.decode()},{len(text.encode())}\n")
    record = f"{_INFO}/RECORD"
    (folder / record).write_text("".join([*rows, f"{record},,\n"]), encoding="utf-8", newline="\n")


def installed(site: Path | None = None) -> metadata.Distribution | None:
    """The distribution `torch` of this environment, or of one folder, whoever made it."""
    path = sys.path if site is None else [str(site)]
    return next(iter(metadata.distributions(name="torch", path=path)), None)


def is_ours(found: metadata.Distribution) -> bool:
    return (found.read_text("INSTALLER") or "").strip() == _INSTALLER


def place(found: metadata.Distribution) -> Path:
    return Path(str(found.locate_file("")))


def install(site: Path | None = None) -> Path:
    """Write the distribution into the folder of this environment's packages, or into another one.
    Returns the folder; PyTorch itself there is a `Refused`."""
    found = installed(site)
    if found is not None and not is_ours(found):
        raise Refused(
            f"PyTorch {found.version} is installed in {place(found)}: use an environment without "
            "it, or `tilewright run SCRIPT`"
        )
    folder = site or Path(sysconfig.get_paths()["purelib"])
    if found is None and (folder / "torch").exists():
        raise Refused(f"there is a folder {folder / 'torch'} already, which no package owns")
    if found is not None:  # perhaps another version's
        uninstall(site)
    try:
        write(folder)
    except OSError as error:
        raise Refused(f"can't write to {folder}: {error.strerror}") from error
    return folder


def uninstall(site: Path | None = None) -> Path:
    """Remove the distribution and all that Python put beside it. Returns the folder it was in."""
    found = installed(site)
    if found is None:
        raise Refused("there is no torch in this environment")
    folder = place(found)
    if not is_ours(found):
        raise Refused(f"the torch in {folder} is PyTorch {found.version} itself")
    folders = ("torch/__pycache__", "torch", f"torch-{found.version}.dist-info")
    for path in sorted((folder / "torch" / "__pycache__").glob("__init__.*.pyc")):
        path.unlink()
    for file in found.files or ():
        Path(str(file.locate())).unlink(missing_ok=True)
    for name in folders:
        if (folder / name).is_dir():
            (folder / name).rmdir()
    return folder


@contextmanager
def torch_means_tilewright() -> Iterator[None]:
    """Make `torch` mean tilewright inside the block, for this process and for those it starts.

    Modules that are imported there stay in sys.modules.
    """
    already = sys.modules.get("torch")
    if already is not None and already.__package__ != OURS:
        raise RuntimeError("PyTorch itself is already imported in this process")
    finder = TorchFinder()
    before = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True) as folder:
        write(Path(folder))
        sys.meta_path.insert(0, finder)
        take_back = take_names(importlib.import_module(OURS))
        sys.path.insert(1, folder)  # behind the script's own folder
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, before]))
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            take_back()
            sys.path.remove(folder)
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
