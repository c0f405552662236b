"""The paths at which PyTorch has names that stand elsewhere here.

`PATHS` says what each module there holds and where that is. `install` makes these modules, so that
imports find them; their names are looked up when they are asked for.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

_TOP = __package__

# PyTorch's path: our module -> what of it is there. "" is torch itself.
PATHS: dict[str, dict[str, str]] = {
    "_inductor": {"_dynamo.inductor": "cudagraph_mark_step_begin"},
    "_inductor.config": {
        "_dynamo.inductor": "conv_1x1_as_mm coordinate_descent_check_all_directions "
        "coordinate_descent_tuning compile_threads cpp debug epilogue_fusion "
        "force_fuse_int_mm_with_mul freezing fx_graph_cache max_autotune "
        "max_autotune_gemm max_autotune_gemm_backends max_autotune_pointwise patch shape_padding "
        "triton use_mixed_mm"
    },
    "_C._functorch": {
        "func.vmapping": "is_batchedtensor",
        "func.levels": "_add_batch_dim _remove_batch_dim get_unwrapped",
    },
    "_functorch": {},
    "_functorch.deprecated": {
        "func.older": "combine_state_for_ensemble functionalize grad grad_and_value hessian jacfwd "
        "jacrev jvp make_functional make_functional_with_buffers vjp vmap"
    },
    "_functorch.make_functional": {"func.older": "FunctionalModule FunctionalModuleWithBuffers"},
    "_functorch.vmap": {
        "func.levels": "_add_batch_dim _broadcast_to_and_flatten _get_name "
        "_maybe_remove_batch_dim _remove_batch_dim",
        "utils._pytree": "tree_flatten tree_unflatten",
        "": "Tensor",
    },
    "jit._script": {
        "jit.scripting": "RecursiveScriptModule ScriptFunction ScriptModule script script_method"
    },
    "jit._trace": {"jit": "_get_trace_graph is_tracing", "jit.tracing": "trace trace_module"},
    "_guards": {"_subclasses.fake_tensor": "active_fake_mode detect_fake_mode"},
    "_ops": {"ops": "HigherOrderOperator OpOverload OpOverloadPacket"},
    "_VF": {
        "": "broadcast_tensors block_diag cartesian_prod cdist chunk einsum gru gru_cell istft "
        "lstm lstm_cell meshgrid norm nuclear_norm frobenius_norm rnn_relu rnn_relu_cell rnn_tanh "
        "rnn_tanh_cell split stft tensordot unique_consecutive"
    },
    "accelerator.memory": {
        "accelerator": "empty_cache empty_host_cache get_memory_info max_memory_allocated "
        "max_memory_reserved memory_allocated memory_reserved memory_stats "
        "reset_accumulated_memory_stats reset_peak_memory_stats"
    },
    "autograd.anomaly_mode": {"autograd.anomaly": "detect_anomaly set_detect_anomaly"},
    "autograd.grad_mode": {
        "autograd.modes": "enable_grad enforce_grad_layout_policy inference_mode no_grad "
        "set_grad_enabled set_multithreading_enabled"
    },
    "autograd.profiler_legacy": {"autograd.profiler": "profile"},
    "autograd.forward_ad": {
        "func.dual": "UnpackedDualTensor dual_level enter_dual_level exit_dual_level make_dual "
        "unpack_dual"
    },
    "cpu.amp": {"amp": "GradScaler autocast"},
    "cpu.amp.autocast_mode": {"amp": "autocast"},
    "cpu.amp.grad_scaler": {"amp": "GradScaler"},
    "cuda.amp.autocast_mode": {"cuda.amp": "autocast custom_bwd custom_fwd"},
    "cuda.amp.common": {"cuda.amp": "amp_definitely_not_available"},
    "cuda.amp.grad_scaler": {"cuda.amp": "GradScaler"},
    "cuda.random": {
        "cuda": "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed "
        "seed_all set_rng_state set_rng_state_all"
    },
    "distributed._composable": {},
    "distributed._composable.fsdp": {
        "distributed.fsdp": "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy "
        "fully_shard register_fsdp_forward_method"
    },
    "distributed._tensor": {
        "distributed.tensor": "DTensor DeviceMesh Partial Replicate Shard distribute_module "
        "distribute_tensor init_device_mesh"
    },
    "distributed._tensor.device_mesh": {"distributed.device_mesh": "DeviceMesh init_device_mesh"},
    "distributed._tensor.experimental": {"distributed.absent": "implicit_replication"},
    "distributed._tensor.placement_types": {
        "distributed.tensor": "Partial Placement Replicate Shard"
    },
    "distributed.algorithms": {},
    "distributed.algorithms._checkpoint": {},
    "distributed.algorithms._checkpoint.checkpoint_wrapper": {
        "sharding.checkpoint_wrapper": "ActivationWrapper CheckpointImpl CheckpointWrapper "
        "OffloadWrapper apply_activation_checkpointing checkpoint_wrapper offload_wrapper"
    },
    "distributed.algorithms.ddp_comm_hooks": {
        "distributed.gradient_hooks": "DDPCommHookType register_ddp_comm_hook"
    },
    "distributed.algorithms.ddp_comm_hooks.default_hooks": {
        "distributed.gradient_hooks": "allreduce_hook bf16_compress_hook bf16_compress_wrapper "
        "fp16_compress_hook fp16_compress_wrapper"
    },
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": {
        "distributed.gradient_hooks": "PostLocalSGDState post_localSGD_hook"
    },
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": {
        "distributed.absent": "PowerSGDState batched_powerSGD_hook powerSGD_hook"
    },
    "distributed.algorithms.join": {"distributed.join": "Join JoinHook Joinable"},
    "distributed.algorithms.model_averaging": {},
    "distributed.algorithms.model_averaging.averagers": {
        "distributed.averaging": "ModelAverager PeriodicModelAverager"
    },
    "distributed.checkpoint": {
        "sharding.checkpoint_files": "FileSystemReader FileSystemWriter",
        "sharding.checkpoint_metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata "
        "TensorStorageMetadata",
        "sharding.checkpoints": "CheckpointException DefaultLoadPlanner DefaultSavePlanner "
        "async_save load load_state_dict save save_state_dict",
        "distributed.absent": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    },
    "distributed.checkpoint.api": {"sharding.checkpoints": "CheckpointException"},
    "distributed.checkpoint.default_planner": {
        "sharding.checkpoints": "DefaultLoadPlanner DefaultSavePlanner _EmptyStateDictLoadPlanner"
    },
    "distributed.checkpoint.filesystem": {
        "sharding.checkpoint_files": "FileSystemReader FileSystemWriter",
        "sharding.checkpoint_metadata": "_StorageInfo",
    },
    "distributed.checkpoint.format_utils": {
        "sharding.checkpoints": "_EmptyStateDictLoadPlanner _load_state_dict dcp_to_torch_save "
        "torch_save_to_dcp"
    },
    "distributed.checkpoint.metadata": {
        "sharding.checkpoint_metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata "
        "MetadataIndex StorageMeta TensorProperties TensorStorageMetadata _MEM_FORMAT_ENCODING"
    },
    "distributed.checkpoint.stateful": {"sharding.checkpoints": "Stateful"},
    "distributed.checkpoint.state_dict": {
        "sharding.state_dict": "StateDictOptions get_model_state_dict get_optimizer_state_dict "
        "get_state_dict set_model_state_dict set_optimizer_state_dict set_state_dict"
    },
    "distributed.fsdp.wrap": {
        "sharding.wrap": "CustomPolicy ModuleWrapPolicy _recursive_wrap always_wrap_policy "
        "enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy "
        "transformer_auto_wrap_policy wrap"
    },
    "distributed.checkpoint._consolidate_hf_safetensors": {
        "distributed.absent": "consolidate_safetensors_files"
    },
    "distributed.checkpoint.hf_storage": {
        "distributed.absent": "HuggingFaceStorageReader HuggingFaceStorageWriter"
    },
    "distributed.checkpoint.optimizer": {"distributed.absent": "load_sharded_optimizer_state_dict"},
    "distributed.checkpoint.state_dict_loader": {
        "sharding.checkpoints": "_load_state_dict _load_state_dict_from_keys load load_state_dict"
    },
    "distributed.checkpoint.state_dict_saver": {
        "sharding.checkpoints": "async_save save save_state_dict"
    },
    "distributed.constants": {"distributed": "default_pg_timeout"},
    "distributed.elastic": {},
    "distributed.elastic.multiprocessing": {},
    "distributed.elastic.multiprocessing.errors": {"distributed.errors": "ChildFailedError record"},
    "distributed.launcher": {},
    "distributed.launcher.api": {"distributed.absent": "LaunchConfig elastic_launch"},
    "distributed.fsdp.sharded_grad_scaler": {"distributed.absent": "ShardedGradScaler"},
    "distributed.pipelining": {"distributed.absent": "ScheduleGPipe SplitPoint pipeline"},
    "distributed.tensor._utils": {"distributed.absent": "compute_local_shape_and_global_offset"},
    "distributed.tensor.experimental": {
        "distributed.absent": "context_parallel implicit_replication"
    },
    "distributed.tensor.experimental._attention": {"distributed.absent": "set_rotate_method"},
    "distributed.tensor.parallel": {
        "distributed.absent": "ColwiseParallel ParallelStyle PrepareModuleInput "
        "PrepareModuleInputOutput PrepareModuleOutput RowwiseParallel SequenceParallel "
        "loss_parallel parallelize_module"
    },
    "distributed.tensor.placement_types": {
        "distributed.tensor": "Partial Placement Replicate Shard",
        "distributed.absent": "_MaskPartial _StridedShard",
    },
    "distributed.optim": {
        "sharding.optimizers": "PostLocalSGDOptimizer ZeroRedundancyOptimizer",
        "distributed.absent": "DistributedOptimizer",
    },
    "distributed.utils": {"distributed.absent": "_sync_module_states"},
    "distributed.fsdp.api": {
        "distributed.fsdp": "BackwardPrefetch CPUOffload FullOptimStateDictConfig "
        "FullStateDictConfig LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision "
        "OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy "
        "StateDictConfig StateDictSettings StateDictType"
    },
    "distributed.fsdp.fully_sharded_data_parallel": {
        "distributed.fsdp": "BackwardPrefetch CPUOffload FullOptimStateDictConfig "
        "FullStateDictConfig FullyShardedDataParallel LocalOptimStateDictConfig "
        "LocalStateDictConfig MixedPrecision OptimStateDictConfig OptimStateKeyType "
        "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig "
        "StateDictSettings StateDictType"
    },
    "distributed.nn.functional": {
        "distributed.nn": "all_gather all_reduce all_to_all all_to_all_single broadcast gather "
        "reduce reduce_scatter scatter"
    },
    "functional": {
        "": "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors "
        "cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft "
        "svd_lowrank tensordot unique unique_consecutive unravel_index"
    },
    "masked._ops": {
        "masked": "amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean "
        "median norm normalize prod softmax softmin std sum var"
    },
    "multiprocessing.queue": {"multiprocessing.queues": "ConnectionWrapper Queue SimpleQueue"},
    "multiprocessing.spawn": {
        "multiprocessing.spawning": "ProcessContext ProcessException ProcessExitedException "
        "ProcessRaisedException SpawnContext spawn start_processes"
    },
    "nn.parallel.parallel_apply": {
        "nn.parallel": "parallel_apply",
        "nn.parallel.data_parallel": "get_a_var",
    },
    "nn.parallel.replicate": {"nn.parallel": "replicate"},
    "nn.parallel.scatter_gather": {
        "nn.parallel": "gather scatter",
        "nn.parallel.data_parallel": "scatter_kwargs",
    },
    "nn.utils.clip_grad": {"nn.utils.gradients": "clip_grad_norm clip_grad_norm_ clip_grad_value_"},
    "nn.utils.convert_parameters": {
        "nn.utils.gradients": "parameters_to_vector vector_to_parameters"
    },
    "nn.utils.init": {"nn.utils.skipping": "skip_init"},
    "nn.utils.memory_format": {
        "nn.utils": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format"
    },
    "nn.utils._per_sample_grad": {"func.by_sample": "call_for_per_sample_grads"},
    "nn.utils.spectral_norm": {
        "nn.utils.hooked_spectra": "SpectralNorm remove_spectral_norm spectral_norm"
    },
    "nn.utils.stateless": {
        "func.stateless": "functional_call",
        "func.modules": "_reparametrize_module",
    },
    "nn.utils.weight_norm": {"nn.utils.hooked_norms": "WeightNorm remove_weight_norm weight_norm"},
    "optim._functional": {
        "optim.adadelta": "adadelta",
        "optim.adagrad": "adagrad",
        "optim.adam": "adam adamw",
        "optim.adamax": "adamax",
        "optim.asgd": "asgd",
        "optim.nadam": "nadam",
        "optim.radam": "radam",
        "optim.rmsprop": "rmsprop",
        "optim.rprop": "rprop",
        "optim.sgd": "sgd",
        "optim.sparse_adam": "sparse_adam",
    },
    "optim.adamw": {"optim.adam": "AdamW adamw"},
    "nn.intrinsic": {
        "ao.nn.intrinsic": "BNReLU2d BNReLU3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d "
        "ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d LinearReLU"
    },
    "nn.intrinsic.quantized": {
        "ao.nn.intrinsic.quantized": "BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d "
        "LinearReLU",
    },
    "nn.intrinsic.quantized.dynamic": {"ao.nn.intrinsic.quantized.dynamic": "LinearReLU"},
    "nn.quantized": {
        "ao.nn.quantized": "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d "
        "ConvTranspose2d ConvTranspose3d DeQuantize Dropout ELU Embedding "
        "EmbeddingBag FXFloatFunctional FloatFunctional GroupNorm "
        "Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm "
        "LeakyReLU Linear PReLU QFunctional Quantize ReLU6 Sigmoid "
        "Softmax",
    },
    "nn.quantized.dynamic": {
        "ao.nn.quantized.dynamic": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d "
        "ConvTranspose3d GRU GRUCell LSTM LSTMCell Linear RNNCell",
    },
    "nn.quantized.functional": {
        "ao.nn.quantized.functional": "adaptive_avg_pool2d adaptive_avg_pool3d avg_pool2d "
        "avg_pool3d celu clamp conv1d conv2d conv3d elu hardsigmoid hardswish hardtanh "
        "interpolate leaky_relu linear max_pool1d max_pool2d threshold upsample "
        "upsample_bilinear upsample_nearest"
    },
    "package.analyze": {
        "package.analysis": "find_first_use_of_broken_modules trace_dependencies",
        "package": "is_from_package",
    },
    "package.analyze.find_first_use_of_broken_modules": {
        "package.analysis": "find_first_use_of_broken_modules"
    },
    "package.analyze.is_from_package": {"package": "is_from_package"},
    "package.analyze.trace_dependencies": {"package.analysis": "trace_dependencies"},
    "package.find_file_dependencies": {"package.dependencies": "find_files_source_depends_on"},
    "profiler.profiler": {
        "profiler": "ProfilerAction _default_schedule_fn profile schedule supported_activities "
        "tensorboard_trace_handler"
    },
    "ao.quantization.observer": {
        "ao.quantization.observers": "FixedQParamsObserver MinMaxObserver "
        "MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver "
        "ObserverBase "
        "PerChannelMinMaxObserver PlaceholderObserver RecordingObserver "
        "ReuseInputObserver default_affine_fixed_qparams_observer "
        "default_debug_observer default_dynamic_quant_observer "
        "default_fixed_qparams_range_0to1_observer "
        "default_fixed_qparams_range_neg1to1_observer "
        "default_float_qparams_observer default_observer "
        "default_per_channel_weight_observer default_placeholder_observer "
        "default_reuse_input_observer "
        "default_symmetric_fixed_qparams_observer default_weight_observer "
        "get_observer_state_dict load_observer_state_dict "
        "per_channel_weight_observer_range_neg_127_to_127 "
        "weight_observer_range_neg_127_to_127",
        "ao.quantization.histograms": "HistogramObserver",
        "ao.quantization.qconfig": "default_histogram_observer",
    },
    "quantization": {
        "ao.quantization": "DEFAULT_QAT_MODULE_MAPPINGS DEFAULT_STATIC_QUANT_MODULE_MAPPINGS "
        "DeQuantStub FakeQuantize FakeQuantizeBase "
        "FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize "
        "HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase "
        "PerChannelMinMaxObserver PlaceholderObserver QConfig QuantStub "
        "QuantWrapper RecordingObserver add_quant_dequant convert "
        "default_activation_only_qconfig default_debug_observer "
        "default_debug_qconfig default_dynamic_qconfig "
        "default_dynamic_quant_observer default_fake_quant "
        "default_fixed_qparams_range_0to1_fake_quant "
        "default_fixed_qparams_range_neg1to1_fake_quant "
        "default_float_qparams_observer "
        "default_fused_act_fake_quant "
        "default_fused_per_channel_wt_fake_quant "
        "default_fused_wt_fake_quant default_histogram_fake_quant "
        "default_histogram_observer default_observer "
        "default_per_channel_qconfig "
        "default_per_channel_weight_fake_quant "
        "default_per_channel_weight_observer default_placeholder_observer "
        "default_qat_qconfig default_qat_qconfig_v2 default_qconfig "
        "default_weight_fake_quant default_weight_observer "
        "default_weight_only_qconfig disable_fake_quant disable_observer "
        "enable_fake_quant enable_observer float16_dynamic_qconfig "
        "float16_static_qconfig float_qparams_weight_only_qconfig "
        "fuse_modules get_default_dynamic_quant_module_mappings "
        "get_default_qat_module_mappings get_default_qat_qconfig "
        "get_default_qconfig get_default_static_quant_module_mappings "
        "get_observer_state_dict get_static_quant_module_class "
        "load_observer_state_dict per_channel_dynamic_qconfig prepare "
        "prepare_qat propagate_qconfig_ qconfig_equals quantize "
        "quantize_dynamic quantize_qat swap_module",
    },
    "quantization.observer": {
        "ao.quantization.observers": "MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase "
        "PerChannelMinMaxObserver PlaceholderObserver RecordingObserver "
        "default_debug_observer default_dynamic_quant_observer "
        "default_float_qparams_observer default_observer "
        "default_per_channel_weight_observer default_placeholder_observer "
        "default_weight_observer get_observer_state_dict "
        "load_observer_state_dict",
        "ao.quantization.histograms": "HistogramObserver",
        "ao.quantization.qconfig": "default_histogram_observer",
    },
    "quantization.quantize_fx": {
        "ao.quantization.quantize_fx": "convert_fx fuse_fx prepare_fx prepare_qat_fx",
    },
    "nn.quantizable": {"ao.nn.quantizable": "LSTM LSTMCell MultiheadAttention"},
    "nn.qat": {
        "ao.nn.qat": "Conv1d Conv2d Conv3d Embedding EmbeddingBag Linear",
    },
    "nn.intrinsic.qat": {
        "ao.nn.intrinsic.qat": "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d "
        "ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d "
        "LinearReLU freeze_bn_stats update_bn_stats",
    },
    "quantization.qconfig": {
        "ao.quantization.qconfig": "QConfig default_activation_only_qconfig default_debug_qconfig "
        "default_dynamic_qconfig default_per_channel_qconfig "
        "default_qat_qconfig default_qat_qconfig_v2 default_qconfig "
        "default_weight_only_qconfig float16_dynamic_qconfig "
        "float16_static_qconfig float_qparams_weight_only_qconfig "
        "get_default_qat_qconfig get_default_qconfig "
        "per_channel_dynamic_qconfig qconfig_equals",
    },
    "quantization.fake_quantize": {
        "ao.quantization.fake_quantize": "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize "
        "FusedMovingAvgObsFakeQuantize default_fake_quant "
        "default_fixed_qparams_range_0to1_fake_quant "
        "default_fixed_qparams_range_neg1to1_fake_quant "
        "default_fused_act_fake_quant "
        "default_fused_per_channel_wt_fake_quant "
        "default_fused_wt_fake_quant default_histogram_fake_quant "
        "default_per_channel_weight_fake_quant default_weight_fake_quant "
        "disable_fake_quant disable_observer enable_fake_quant "
        "enable_observer",
    },
    "nn._reduction": {"nn.functional.reductions": "get_enum legacy_get_enum legacy_get_string"},
    "signal.windows.windows": {
        "signal.windows": "bartlett blackman cosine exponential gaussian general_cosine "
        "general_hamming hamming hann kaiser nuttall"
    },
    "utils.benchmark.utils": {},
    "utils.benchmark.utils.common": {
        "utils.benchmark": "Measurement TaskSpec ordered_unique select_unit set_torch_threads "
        "trim_sigfig unit_to_english"
    },
    "utils.benchmark.utils.compare": {"utils.benchmark": "Colorize Compare"},
    "utils.benchmark.utils.timer": {"utils.benchmark": "Language Timer timer"},
    "utils._device": {},
    "utils._contextlib": {
        "autograd.modes": "_DecoratorContextManager _NoParamDecoratorContextManager"
    },
    "utils.data._utils": {},
    "utils.data._utils.collate": {
        "utils.data.collate": "collate collate_tensor_fn default_collate default_collate_fn_map "
        "default_collate_err_msg_format default_convert np_str_obj_array_pattern"
    },
    "utils.data.datapipes.iter.combinatorics": {
        "utils.data.datapipes.iter": "ShufflerIterDataPipe"
    },
    "utils.data._utils.pin_memory": {"utils.data.pinning": "pin_memory"},
    "utils.data._utils.worker": {"utils.data.worker": "WorkerInfo _generate_state get_worker_info"},
}


class _Path(ModuleType):
    """A module of the table."""

    def __init__(self, path: str, homes: dict[str, str]):
        super().__init__(f"{_TOP}.{path}", f"torch.{path}.")
        self.__dict__["_homes"] = {n: home for home, names in homes.items() for n in names.split()}
        self.__dict__["__all__"] = [n for n in self._homes if not n.startswith("_")]
        self.__spec__ = ModuleSpec(self.__name__, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_homes"]:
            home = self.__dict__["_homes"][name]
            module = importlib.import_module(f"{_TOP}.{home}" if home else _TOP)
            value = self.__dict__[name] = getattr(module, name)
            return value
        return found(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__["_homes"]})


def install() -> None:
    """Make the modules of the table."""
    for path, homes in PATHS.items():
        sys.modules.setdefault(f"{_TOP}.{path}", _Path(path, homes))


def found(package: str, name: str) -> ModuleType:
    """The module of the table that `package` has as an attribute; AttributeError without one."""
    if f"{package}.{name}".removeprefix(f"{_TOP}.") in PATHS:
        return sys.modules[f"{package}.{name}"]
    missing(package, name)


def missing(package: str, name: str) -> NoReturn:
    """The error of a name that a module doesn't have."""
    raise AttributeError(
        f"{package} has no {name!r}: it is not a name of PyTorch's, or not implemented yet"
    )
