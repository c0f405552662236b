"""Write docs/ops.md, the table of the public ops, from their declarations.

PYTHONPATH=.src python tools/list_ops.py
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tilewright import publish
from tilewright.functions.call import DECLARED, Declaration
from tilewright.recording.builders import Cast

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
_HEAD = """# Operators

What `torch` and `Tensor` have of PyTorch's operators. `tools/list_ops.py` writes this page from the
declarations beside the functions (`frontend/functions/call.py`).

- *function*, *method*, *in place*: the forms that there are; `out` where a result can be written to
  a given tensor.
- *autocast*: to what operands are cast under `torch.autocast`, on the CPU / on a GPU. `low` is the
  dtype of the mode, `wide` the widest dtype of the operands.
- *ONNX*: — where no exported graph can hold it.

| operator | function | method | in place | Python | autocast | ONNX | also called |
|---|---|---|---|---|---|---|---|
"""
_CASTS = {
    Cast.LOWER: "low",
    Cast.LOWER_BEFORE: "low",
    Cast.FLOAT32: "float32",
    Cast.WIDEST: "wide",
    Cast.FIRST: "first",
    Cast.REFUSED: "error",
}


def page() -> str:
    """The text of the page."""
    for module in publish.LATER:
        importlib.import_module(f"tilewright.{module}")
    return _HEAD + "".join(_row(DECLARED[name]) for name in sorted(DECLARED))


def _row(op: Declaration) -> str:
    function = ("yes, `out`" if op.takes_out else "yes") if op.function else ""
    forms = [op.in_place and f"`x.{op.name}_`", op.in_place_function and f"`{op.name}_`"]
    columns = [
        f"`{op.name}`",
        function,
        "yes" if op.method else "",
        ", ".join(form for form in forms if form),
        ", ".join(f"`{each}`" for each in op.operators or ()),
        _autocast(op),
        f"— ({', '.join(set(op.unexportable.values()))})" if op.unexportable else "",
        ", ".join(f"`{alias}`" for alias in op.aliases),
    ]
    return f"| {' | '.join(columns)} |\n"


def _autocast(op: Declaration) -> str:
    casts = {kind: _CASTS[cast] for kind, cast in op.casts.items()}
    return " / ".join(casts.get(kind, "–") for kind in ("cpu", "cuda")) if casts else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
