"""The command line: `tilewright` and `python -m tilewright`."""

from __future__ import annotations


def main() -> None:
    """Run the command that sys.argv names."""
    from .app import app

    app(prog_name="tilewright")
