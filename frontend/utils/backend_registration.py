"""torch.utils.backend_registration: refused. Backends register with PyTorch's own dispatcher."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.utils.{name}: tilewright has no dispatcher in which another package could register "
        f"a kind of device; its own are cpu, cuda, interpret and meta{at_user_line()}"
    )


def rename_privateuse1_backend(backend_name: str) -> NoReturn:
    _refuse("rename_privateuse1_backend")


def generate_methods_for_privateuse1_backend(*args: Any, **options: Any) -> NoReturn:
    _refuse("generate_methods_for_privateuse1_backend")
