"""torch.PyTorchFileReader: the records of a saved file, by name."""

from __future__ import annotations

import zipfile
from typing import Any

from tilewright.ir.location import at_user_line


class PyTorchFileReader:
    """Reads records of a file in PyTorch's zip format. name: a path or a binary stream."""

    def __init__(self, name: Any):
        self._zip = zipfile.ZipFile(name)
        self._top = self._zip.namelist()[0].partition("/")[0]

    def get_all_records(self) -> list[str]:
        return [name.partition("/")[2] for name in self._zip.namelist()]

    def has_record(self, name: str) -> bool:
        return f"{self._top}/{name}" in self._zip.namelist()

    def get_record(self, name: str) -> bytes:
        if not self.has_record(name):
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found{at_user_line()}"
            )
        return self._zip.read(f"{self._top}/{name}")
