"""QConfigMapping: which QConfig the layers and functions of a traced model have."""

from __future__ import annotations

import re
from typing import Any

from ... import nn
from .qconfig import QConfig, default_weight_observer, get_default_qat_qconfig, get_default_qconfig


class QConfigMapping:
    """QConfigs by the name of a module, a pattern of names, the type of a module or a function, and
    one for all others; the first that fits counts. None leaves floats."""

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: dict[Any, Any] = {}
        self.module_name_regex_qconfigs: dict[str, Any] = {}
        self.module_name_qconfigs: dict[str, Any] = {}

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def of(self, name: str, kind: Any) -> Any:
        """The QConfig of a module by its name and type; of a function, with the module around."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if (found := ".".join(parts[:end])) in self.module_name_qconfigs:
                return self.module_name_qconfigs[found]
        for pattern, config in self.module_name_regex_qconfigs.items():
            if re.match(pattern, name):
                return config
        return self.object_type_qconfigs.get(kind, self.global_qconfig)


_WHOLE_WEIGHTS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _default(config: QConfig, weight: Any) -> QConfigMapping:
    made = QConfigMapping().set_global(config)
    for kind in _WHOLE_WEIGHTS:  # their channels lie along another axis
        made.set_object_type(kind, QConfig(config.activation, weight))
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The mapping for static quantization with one of PyTorch's engines."""
    return _default(get_default_qconfig(backend, version), default_weight_observer)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The mapping for training with rounded numbers."""
    whole = get_default_qat_qconfig("qnnpack", version).weight
    return _default(get_default_qat_qconfig(backend, version), whole)
