"""Write docs/onnx_export.md: which layers and models are exported to ONNX with dynamic sizes.

PYTHONPATH=.src python tools/onnx_table.py [--only PATTERN] [--page]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

os.environ.setdefault("TW_TIER", "baseline")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import onnx_table  # noqa: E402

PAGE = ROOT / "docs" / "onnx_export.md"
_HEAD = """# What is exported to ONNX

Each layer of PyTorch's database of modules (with its first three inputs), functions of sizes, the
models of `examples/`, and small models with the structures of vision, language and speech are
exported with all axes dynamic that the model accepts at other sizes. Then onnxruntime runs them at
the sizes of the example and at two others, and the results are compared with our own.
`tools/onnx_table.py --page` writes this page; `tests/frontend/onnx/test_onnx_table.py` holds it.

- *right*: equal at all three sizes, with all axes dynamic.
- *fixed*: right, but only with the sizes of the example.
- *refused*: an error says why.
- *wrong*: onnxruntime computes something else, or can't run the model.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--page", action="store_true", help="write docs/onnx_export.md, too")
    options = parser.parse_args()
    rows = []
    for group, cases in onnx_table.GROUPS.items():
        for name, make in cases():
            if re.search(options.only, name):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = onnx_table.examine(*make())
                rows.append((group, name, result))
                if result.state != "right":
                    print(f"{name}: {result.state}: {result.reason}", flush=True)
    print(Counter(result.state for *_, result in rows))
    if options.page:
        PAGE.write_text(_HEAD + "\n".join(_tables(rows)) + "\n", encoding="utf-8")


def _tables(rows: list[tuple[str, str, onnx_table.Result]]) -> list[str]:
    states = ("right", "fixed", "refused", "wrong")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for group, _, result in rows:
        counts[group][result.state] += 1
    out = [f"| | {' | '.join(states)} |", "|---|" + "---:|" * len(states)]
    for group, found in counts.items():
        out.append(f"| {group} | {' | '.join(str(found[s]) for s in states)} |")
    out += ["", "## Not right with dynamic axes", "", "| what | state | why |", "|---|---|---|"]
    for _, name, result in rows:
        if result.state != "right":
            out.append(f"| {name} | {result.state} | {onnx_table.EXCEPTIONS.get(name, '')} |")
    for group in counts:
        out += ["", f"## {group[0].upper()}{group[1:]}", "", "| what | dynamic axes | state |"]
        out.append("|---|---:|---|")
        for each, name, result in rows:
            if each == group:
                out.append(f"| {name} | {result.dynamic} | {result.state} |")
    return out


if __name__ == "__main__":
    main()
