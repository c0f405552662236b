"""Packs: kernels compiled ahead for a GPU that isn't here, so that a first step compiles none.

A pack is one file: a line of JSON, which says what is where, then the cubins. A kernel is found by
the key of its request, as in the disk cache, so a pack serves all programs that launch it, on any
card of the architecture. It has every schedule that a device would compile on its way to the one
that it takes: also those that spill.

TW_KERNELS names packs, as PATH names folders. Their code runs: name only files that you trust.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, Usage, default_schedule, settled
from tilewright.codegen.target import Target, gpu
from tilewright.codegen.triton import emit

from .. import debug, files, offline
from .image import ASSEMBLER, Image, assembler_for, key_of, suited

FORMAT = 2


@dataclass(frozen=True)
class Made:
    """Kernels compiled for a GPU that isn't here.

    images: what a device asks for on its way to each kernel's schedule, by key. taken: for each
    kernel the schedule that it is taken with, and its image.
    """

    images: dict[str, Image]
    taken: dict[Kernel | Bundle, tuple[Schedule, Image]]


def compiled(kernels: Iterable[Kernel | Bundle], target: str | Target, driver: int = 13000) -> Made:
    """Compile kernels for `target`. Those that have no form in Triton are left out. driver: the
    driver's CUDA version."""
    machine = gpu(target) if isinstance(target, str) else target
    architecture = machine.name
    assembler = assembler_for(architecture, driver)
    if assembler:
        os.environ[ASSEMBLER] = assembler  # for compiling processes too
    found: dict[str, Image] = {}
    last: dict[Kernel | Bundle, str] = {}

    def usages(todo: dict[Any, Schedule]) -> dict[Any, Usage]:
        asked = {}
        for kernel, schedule in todo.items():
            try:
                emitted = suited(emit(kernel, schedule), architecture)
            except NotImplementedError:
                continue
            asked[kernel] = offline.request(emitted, architecture)
        keys = {k: key_of(r, assembler) for k, r in asked.items()}
        missing = {key: asked[k] for k, key in keys.items() if key not in found}
        made = offline.compile_many(list(missing.values()))
        found.update({key: Image.of(c) for key, c in zip(missing, made, strict=True)})
        last.update(keys)
        return {k: found[key].usage for k, key in keys.items()}

    chosen = settled({k: default_schedule(k, machine) for k in kernels}, machine, usages)
    return Made(found, {k: (schedule, found[last[k]]) for k, schedule in chosen.items()})


def write(file: Path, target: str, images: dict[str, Image]) -> None:
    """Write a pack, all at once."""
    places: dict[str, Any] = {}
    start = 0
    for key, image in images.items():
        places[key] = {"start": start, "size": len(image.binary), "numbers": image.numbers()}
        start += len(image.binary)
    said = {"format": FORMAT, "target": target, "images": places}
    with files.whole(file) as out:
        out.write(json.dumps(said).encode() + b"\n")
        out.write(b"".join(i.binary for i in images.values()))


def image(key: str) -> Image | None:
    """The image of a request in the packs that TW_KERNELS names; None if it isn't there."""
    for name in os.environ.get("TW_KERNELS", "").split(os.pathsep):
        found = _content(name) if name else None
        place = found[0].get(key) if found is not None else None
        if found is not None and place is not None:
            start = place["start"]
            return Image.read(found[1][start : start + place["size"]], place["numbers"])
    return None


@functools.lru_cache(16)
def _content(name: str) -> tuple[dict[str, Any], bytes] | None:
    """(what is where, the code) of a pack; None if it can't be read."""
    try:
        line, _, code = Path(name).read_bytes().partition(b"\n")
        said = json.loads(line)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']}, expected {FORMAT}")
        ends = [p["start"] + p["size"] for p in said["images"].values()]
        if max(ends, default=0) > len(code):
            raise ValueError("it is cut off")
        return said["images"], code
    except (OSError, ValueError, LookupError, TypeError) as error:
        debug.say(f"the pack of kernels {name} isn't used: {error}")
        return None
