"""torch.utils.model_zoo: the older name of torch.hub's download."""

from __future__ import annotations

from typing import Any

from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    """tqdm, which packages import from here."""
    if name == "tqdm":
        from tqdm import tqdm

        return tqdm
    raise AttributeError(f"torch.utils.model_zoo has no {name!r}")
