"""torch.package: objects together with the source of the modules that they need, in one archive.

`PackageExporter` writes it and `PackageImporter` reads it. PyTorch reads the archives too, and its
own are read here. An archive holds code that is run: load only those that you trust.
"""

from __future__ import annotations

from .. import paths
from .errors import EmptyMatchError, PackagingError
from .file_structure_representation import Directory
from .glob_group import GlobGroup
from .importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, sys_importer
from .package_exporter import PackageExporter
from .package_importer import PackageImporter, is_from_package

__all__ = [
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
    "is_from_package",
    "sys_importer",
]


def __getattr__(name: str) -> object:
    return paths.found(__name__, name)
