"""Print how many cases of ONNX's backend suite are right, by family of operators.

PYTHONPATH=.src python tools/onnx_suite.py [--page]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path.insert(0, str(SUPPORT))

import onnx  # noqa: E402
import onnx_backend  # noqa: E402

from tilewright.onnx.loading import table  # noqa: E402

PAGE = ROOT / "docs" / "onnx_loading.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"
ENGINES = ("llvm", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the table to the docs, too")
    options = parser.parse_args()
    text = report({engine: failures(engine) for engine in ENGINES})
    print(text)
    if options.page:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def failures(engine: str) -> set[str]:
    """The cases that fail on an engine, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(SUPPORT / "onnx_backend.py"), "0", "1"],
        env={**os.environ, "TW_CPU": engine},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return set(json.loads(child.stdout))


def report(failed: dict[str, set[str]]) -> str:
    """A row for each family, and the exceptions."""
    files: dict[tuple[str, str], str] = {}
    operators: dict[str, list[str]] = defaultdict(list)
    for domain, name in table.names():
        file = table.file_of(domain, name)
        files[domain, name] = file
        operators[file].append(f"`{name}`")
    uses: dict[str, set[str]] = defaultdict(set)
    for name, case in onnx_backend.cases().items():
        for node in nodes_of(case):
            uses[files.get((table.standard(node.domain), node.op_type), "")].add(name)
    lines = [
        "| file | operators | cases | right on native code | right on NumPy |",
        "|---|---|---|---|---|",
    ]
    told = {**onnx_backend.EXCEPTIONS, **onnx_backend.ROUNDED, **onnx_backend.FORM_ONLY}
    for file in table.FAMILIES:
        right = [str(len(uses[file] - failed[engine] - told.keys())) for engine in ENGINES]
        names = " ".join(operators[file])
        lines.append(f"| `{file}.py` | {names} | {len(uses[file])} | {' | '.join(right)} |")
    every = set(onnx_backend.cases())
    right = [str(len(every - failed[engine] - told.keys())) for engine in ENGINES]
    count = f"{len(table.names())} operators"
    lines.append(f"| all | {count} | {len(every)} | {' | '.join(right)} |")
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in told.items():
        reasons[reason].append(f"`{name}`")
    lines += ["", "| what isn't right | because |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def nodes_of(case: Any) -> Iterator[Any]:
    model = case.model
    if model is None:
        root = Path(onnx.__file__).parent.parent
        path = root / case.url if case.model_dir is None else Path(case.model_dir) / "model.onnx"
        model = onnx.load(path, load_external_data=False)
    yield from inside(model.graph.node)
    for function in model.functions:
        yield from inside(function.node)


def inside(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from inside(attribute.g.node)


if __name__ == "__main__":
    main()
