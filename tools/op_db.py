"""Print how much of PyTorch's operator database is right, by namespace.

PYTHONPATH=.src python tools/op_db.py [--only PATTERN] [--most N] [--device NAME]
    [--faults | --known | --refused | --page]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TW_TIER", "baseline")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import op_db  # noqa: E402
import op_db_dtypes  # noqa: E402
import op_db_dtypes_known  # noqa: E402
from op_db_known import KNOWN  # noqa: E402

import tilewright  # noqa: E402

_HEAD = """# PyTorch's operator database

PyTorch has sample inputs for some 700 variants of its operators. This is how many of them there
are here, and of how many all samples are right: values, first and second derivatives, writes in
place and to `out`, classes of errors. `tools/op_db.py --page` writes this page;
`tests/support/op_db_known.py` has the reason for each difference. The counts of the NumPy engine
(`TW_CPU=numpy`) are the same. On `interpret` (`TW_TIER=fused`, `--device interpret --most 4`)
values and gradients of 672 of the 676 variants that have values to compare are right; the reasons
of the other four are in that list.

"""
PAGE = ROOT / "docs" / "op_db.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--most", type=int, help="samples of each variant and dtype")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--device", help="where tensors are made, as interpret")
    parser.add_argument("--aspects", default=",".join(op_db.ASPECTS))
    parser.add_argument(
        "--faults", action="store_true", help="print the first fault of each aspect"
    )
    parser.add_argument("--json", help="write what was found to this file")
    parser.add_argument("--known", action="store_true", help="hold it against op_db_known.py")
    parser.add_argument(
        "--refused", action="store_true", help="the same of dtypes that PyTorch refuses"
    )
    parser.add_argument("--page", action="store_true", help="write docs/op_db.md, too")
    options = parser.parse_args()
    if options.device:
        tilewright.set_default_device(options.device)
    ops = [op for op in op_db.load() if re.search(options.only, op_db.title(op))]
    if options.known:
        for found, what in zip(op_db.differences(ops, KNOWN), ("new", "right by now")):
            print("\n".join(f"{what}: {each}" for each in found))
        return
    if options.refused:
        known = op_db_dtypes_known.KNOWN
        for found, what in zip(op_db_dtypes.differences(ops, known), ("new", "refused by now")):
            print("\n".join(f"{what}: {each}" for each in found))
        return
    rows: dict[str, list[int]] = defaultdict(lambda: [0] * (2 + 2 * len(op_db.ASPECTS)))
    record = {}
    aspects = options.aspects.split(",")
    for op in ops:
        start = time.perf_counter()
        report = op_db.examine(op, options.dtypes.split(","), options.most, aspects)
        took = time.perf_counter() - start
        name, row = op_db.title(op), rows[op_db.namespace(op)]
        row[0] += 1
        if report is None:
            record[name] = None
            if options.faults:
                print(f"{name}: missing")
            continue
        row[1] += 1
        record[name] = {a: [t.right, t.all, t.faults] for a, t in report.items()}
        record[name]["seconds"] = round(took, 2)
        for i, aspect in enumerate(op_db.ASPECTS):
            tally = report.get(aspect)
            if tally and tally.all:
                row[2 + 2 * i] += tally.good
                row[3 + 2 * i] += 1
                if options.faults and not tally.good:
                    print(f"{name} [{aspect} {tally.right}/{tally.all}] {tally.faults[0]}")
    if options.json:
        Path(options.json).write_text(json.dumps(record, indent=1))
    if options.page:
        PAGE.write_text(_HEAD + table(rows) + "\n", encoding="utf-8")
    print(table(rows))


def table(rows: dict[str, list[int]]) -> str:
    """A row for each namespace: variants that there are, and how many are right."""
    head = ["namespace", "variants", "present", *(f"right {a}" for a in op_db.ASPECTS)]
    lines = [" | ".join(head), "|".join(["---"] * len(head))]
    total = [sum(column) for column in zip(*rows.values())]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        pairs = [f"{row[i]} of {row[i + 1]}" for i in range(2, len(row), 2)]
        shown = "all" if name == "all" else f"`torch.{name}`".replace(".`", "`")
        lines.append(" | ".join([shown, *map(str, row[:2]), *pairs]))
    return "\n".join(f"| {line} |" if "-|-" not in line else f"|{line}|" for line in lines)


if __name__ == "__main__":
    main()
