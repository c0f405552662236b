"""Results as one file that a project can keep: JSON, a line for each kernel.

{"tilewright": "tuning results", "format": 1, "kernels": [
{"name": "matmul", "device": "...", "sizes": [...], "schedule": {...}, "gain": 1.21, ...},
...
]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import files
from .key import Key
from .record import About, Found, Record

TITLE, FORMAT = "tuning results", 1


def write(path: str | Path, records: Iterable[Record]) -> int:
    """Write records with their candidates, in a fixed order. Returns their number."""
    lines = [json.dumps(entry(r), sort_keys=False) for r in sorted(records, key=_order)]
    head = json.dumps({"tilewright": TITLE, "format": FORMAT})[:-1]
    text = f'{head}, "kernels": [\n' + ",\n".join(lines) + "\n]}\n"
    with files.whole(path) as file:
        file.write(text.encode())
    return len(lines)


def read(path: str | Path) -> list[Record]:
    """The records of a file. ValueError with the place of the error if it isn't a file of ours;
    OSError."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected tuning results, got no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("tilewright") != TITLE:
        raise ValueError(f"{path}: expected a file that `tilewright tune export` wrote")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, got {content.get('format')!r}")
    out = []
    for number, entry in enumerate(content["kernels"], 2):
        try:
            out.append(_record(entry))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: not a kernel's results: {error!r}") from None
    return out


def _order(record: Record) -> tuple[Any, ...]:
    about = record.about
    return about.family, about.name, record.key.device, record.key.structure, record.key.sizes


def entry(record: Record) -> dict[str, Any]:
    """A record as plain data."""
    found = {
        **asdict(record.about),
        "device": record.key.device,
        "versions": record.key.versions,
        "structure": record.key.structure,
        "sizes": list(record.key.sizes),
        "schedule": record.chosen,
        "seconds": record.seconds,
        "default_seconds": record.default_seconds,
        "gain": round(record.gain, 3),
        "effort": record.effort,
        "changed": record.changed,
    }
    if record.candidates:
        found["candidates"] = {o: asdict(f) for o, f in sorted(record.candidates.items())}
    return found


def _record(entry: dict[str, Any]) -> Record:
    return Record(
        Key(
            str(entry["structure"]),
            tuple(int(n) for n in entry["sizes"]),
            str(entry["device"]),
            str(entry["versions"]),
        ),
        About(entry["name"], entry["family"], entry["dtype"], int(entry["space"])),
        entry["effort"],
        None if entry["schedule"] is None else dict(entry["schedule"]),
        entry["seconds"],
        entry["default_seconds"],
        float(entry["changed"]),
        {o: Found(**f) for o, f in entry.get("candidates", {}).items()},
    )
