"""torch.distributed.fsdp: models whose parameters are spread over processes. None can be made yet.

The names with which packages ask whether a model is such a one, and their options, are here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from . import _Absent, _refuse

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictType",
    "fully_shard",
    "register_fsdp_forward_method",
]


class FullyShardedDataParallel(_Absent):
    """A module whose parameters are spread over processes. None can be made."""

    @staticmethod
    def state_dict_type(*args: Any, **options: Any) -> NoReturn:
        _refuse("fsdp.FullyShardedDataParallel.state_dict_type")

    set_state_dict_type = optim_state_dict = optim_state_dict_to_load = state_dict_type
    rekey_optim_state_dict = full_optim_state_dict = summon_full_params = state_dict_type


class FSDPModule(_Absent):
    """What `fully_shard` makes of a module. None can be made."""


def fully_shard(*args: Any, **options: Any) -> NoReturn:
    _refuse("fsdp.fully_shard")


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Let a method gather the parameters as `forward` does. A module that isn't spread stays as it
    is, as with PyTorch, and there are no others."""


class ShardingStrategy(enum.Enum):
    """What is spread: parameters, gradients, states of optimizers."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    """When the next parameters are gathered in the backward pass."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    """How a state dictionary holds what is spread."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


class OptimStateKeyType(enum.Enum):
    """What an optimizer's state is called by."""

    PARAM_NAME = 1
    PARAM_ID = 2


@dataclass
class CPUOffload:
    """Whether parameters wait in main memory."""

    offload_params: bool = False


@dataclass
class MixedPrecision:
    """The dtypes of parameters, of reductions and of buffers."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[type, ...] = ()


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of parameters, of reductions and of results."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Nothing waits in main memory."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters, gradients and states wait in main memory."""

    pin_memory: bool = True


@dataclass
class StateDictConfig:
    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    pass


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
