"""Programs and TorchScript's archives, read from files."""

from __future__ import annotations

from typing import Any

from ..serialization.reading import Archive, mover
from . import archive, torchscript


def load(f: Any, map_location: Any = None, extra: dict[str, Any] | None = None) -> Any:
    """The program in a file, or the weights of TorchScript's. extra: gets records, by its keys."""
    with Archive.opened(f, mover(map_location)) as found:
        if extra is not None:
            for name in extra:
                if found.has(f"extra/{name}"):
                    extra[name] = found.member(f"extra/{name}")
        if torchscript.is_torchscript(found):
            return torchscript.read(found)
        return archive.read(found)
