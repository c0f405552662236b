"""The operators of the namespaces torchaudio and _torchaudio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..library import Library
from .alignment import forced_align
from .filters import lfilter_core_loop, overdrive_core_loop
from .transducers import rnnt_loss_forward

_OPERATORS: dict[str, dict[str, Callable[..., Any]]] = {
    "torchaudio": {
        "_lfilter_core_loop(Tensor waveform, Tensor a_coeff_flipped, Tensor(a!) padded) -> ()": (
            lfilter_core_loop
        ),
        "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, "
        "Tensor(a!) output) -> ()": overdrive_core_loop,
        "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, "
        "Tensor target_lengths, int blank, float clamp, bool fused_log_softmax) "
        "-> (Tensor, Tensor)": rnnt_loss_forward,
        "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, "
        "Tensor target_lengths, int blank) -> (Tensor, Tensor)": forced_align,
    },
    "_torchaudio": {
        "cuda_version() -> int?": lambda: None,
        "is_align_available() -> bool": lambda: True,
        "is_rir_available() -> bool": lambda: False,
    },
}

_libraries = []
for _namespace, _operators in _OPERATORS.items():
    _libraries.append(Library(_namespace, "DEF"))
    for _schema, _function in _operators.items():
        _name = _libraries[-1].define(_schema)
        _libraries[-1].impl(_name, _function, "CompositeImplicitAutograd")
