"""The files of TensorBoard's projector: vectors, their labels and their pictures."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .summary import make_np


def write_vectors(folder: str, vectors: np.ndarray) -> None:
    rows = ("\t".join(str(x) for x in row) for row in vectors.tolist())
    _write(folder, "tensors.tsv", rows)


def write_labels(folder: str, labels: Sequence[Any], header: Sequence[str] | None) -> None:
    """The labels of the vectors: texts, or, with a header, a row of texts for each."""
    if header:
        rows = ["\t".join(header), *("\t".join(map(str, row)) for row in labels)]
    else:
        rows = [str(label) for label in labels]
    _write(folder, "metadata.tsv", rows)


def _write(folder: str, name: str, rows: Any) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)


def write_sprite(folder: str, images: Any) -> None:
    """The pictures [n, c, h, w] as one square of pictures."""
    from PIL import Image

    array = make_np(images)
    side = math.ceil(math.sqrt(len(array)))
    rows = np.zeros((side * side, *array.shape[1:]), array.dtype)
    rows[: len(array)] = array
    _, channels, height, width = rows.shape
    grid = rows.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2)
    grid = grid.reshape(side * height, side * width, channels)
    pixels = grid if grid.dtype == np.uint8 else (np.clip(grid, 0, 1) * 255).astype(np.uint8)
    picture = np.repeat(pixels, 3, -1) if channels == 1 else pixels
    Image.fromarray(picture).save(os.path.join(folder, "sprite.png"))
