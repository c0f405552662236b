"""`tilewright as-torch`: `import torch` in a whole environment."""

from __future__ import annotations

import typer

from ..as_torch import distribution
from .errors import user_errors

as_torch = typer.Typer(
    no_args_is_help=True,
    help="Let `import torch` mean tilewright in this environment, for packages that need torch.",
)


@as_torch.command()
def install() -> None:
    """Write a package `torch` that is tilewright. PyTorch itself must not be there."""
    with user_errors(distribution.Refused, status=1):
        folder = distribution.install()
    print(f"torch {distribution.VERSION} in {folder} is tilewright")


@as_torch.command()
def uninstall() -> None:
    """Remove that package again."""
    with user_errors(distribution.Refused, status=1):
        folder = distribution.uninstall()
    print(f"removed torch from {folder}")


@as_torch.command()
def status() -> None:
    """Tell what `import torch` means in this environment."""
    found = distribution.installed()
    if found is None:
        print("there is no torch in this environment")
    elif distribution.is_ours(found):
        print(f"torch {found.version} in {distribution.place(found)} is tilewright")
    else:
        print(f"torch {found.version} in {distribution.place(found)} is PyTorch")
