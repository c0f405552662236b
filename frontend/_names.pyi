"""The names of torch that ops give, and those that are imported when asked for.

Written by tools/stubs.py from the declarations of ops.
"""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Sequence
from typing import Any, NoReturn

from tilewright.ir.dtype import bfloat16 as bfloat16
from tilewright.ir.dtype import bool_ as _is_bool
from tilewright.ir.dtype import complex32 as complex32
from tilewright.ir.dtype import complex64 as complex64
from tilewright.ir.dtype import complex128 as complex128
from tilewright.ir.dtype import float8_e4m3fn as float8_e4m3fn
from tilewright.ir.dtype import float8_e5m2 as float8_e5m2
from tilewright.ir.dtype import float16 as float16
from tilewright.ir.dtype import float32 as float32
from tilewright.ir.dtype import float64 as float64
from tilewright.ir.dtype import int8 as int8
from tilewright.ir.dtype import int16 as int16
from tilewright.ir.dtype import int32 as int32
from tilewright.ir.dtype import int64 as int64
from tilewright.ir.dtype import uint8 as uint8
from tilewright.ir.dtype import uint16 as uint16
from tilewright.ir.dtype import uint32 as uint32
from tilewright.ir.dtype import uint64 as uint64
from tilewright.ir.shape import Size as Size
from tilewright.runtime.device import OutOfMemoryError as OutOfMemoryError
from tilewright.runtime.driver import CudaError as _is_AcceleratorError

from . import accelerator as accelerator
from . import amp as amp
from . import ao as ao
from . import aot as aot
from . import autograd as autograd
from . import backends as backends
from . import classes as classes
from . import compiler as compiler
from . import cpu as cpu
from . import cuda as cuda
from . import distributed as distributed
from . import distributions as distributions
from . import export as export
from . import fft as fft
from . import func as func
from . import futures as futures
from . import fx as fx
from . import hub as hub
from . import inspection as inspection
from . import jit as jit
from . import library as library
from . import linalg as linalg
from . import masked as masked
from . import monitor as monitor
from . import mps as mps
from . import mtia as mtia
from . import multiprocessing as multiprocessing
from . import nested as nested
from . import nn as nn
from . import onnx as onnx
from . import ops as ops
from . import optim as optim
from . import overrides as overrides
from . import package as package
from . import profiler as profiler
from . import quasirandom as quasirandom
from . import random as random
from . import return_types as return_types
from . import serialization as serialization
from . import signal as signal
from . import sparse as sparse
from . import special as special
from . import storage as storage
from . import testing as testing
from . import torch_version as torch_version
from . import types as types
from . import utils as utils
from . import version as version
from . import xpu as xpu
from ._C import DisableTorchFunction as DisableTorchFunction
from ._C import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from ._C import DispatchKey as DispatchKey
from ._C import ScriptObject as ScriptObject
from ._C import TensorType as TensorType
from ._higher_order_ops import cond as cond
from ._higher_order_ops import while_loop as while_loop
from ._tensor import Tensor as Tensor
from .accelerator.streams import Event as Event
from .accelerator.streams import Stream as Stream
from .amp import GradScaler as GradScaler
from .amp.autocast_mode import autocast as autocast
from .amp.autocast_mode import clear_autocast_cache as clear_autocast_cache
from .amp.autocast_mode import get_autocast_dtype as get_autocast_dtype
from .amp.autocast_mode import is_autocast_cache_enabled as is_autocast_cache_enabled
from .amp.autocast_mode import is_autocast_enabled as is_autocast_enabled
from .amp.autocast_mode import set_autocast_cache_enabled as set_autocast_cache_enabled
from .amp.autocast_mode import set_autocast_dtype as set_autocast_dtype
from .amp.autocast_mode import set_autocast_enabled as set_autocast_enabled
from .amp.older import autocast_decrement_nesting as autocast_decrement_nesting
from .amp.older import autocast_increment_nesting as autocast_increment_nesting
from .amp.older import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from .amp.older import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from .amp.older import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from .amp.older import set_autocast_cpu_dtype as set_autocast_cpu_dtype
from .amp.older import set_autocast_cpu_enabled as set_autocast_cpu_enabled
from .amp.older import set_autocast_gpu_dtype as set_autocast_gpu_dtype
from .ao.nn.quantized.root import quantized_batch_norm as quantized_batch_norm
from .ao.nn.quantized.root import quantized_max_pool1d as quantized_max_pool1d
from .ao.nn.quantized.root import quantized_max_pool2d as quantized_max_pool2d
from .ao.nn.quantized.root import quantized_max_pool3d as quantized_max_pool3d
from .autograd import enable_grad as enable_grad
from .autograd import inference_mode as inference_mode
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
from .autograd import set_grad_enabled as set_grad_enabled
from .autograd.anomaly import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from .autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled
from .autograd.anomaly import set_anomaly_enabled as set_anomaly_enabled
from .autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
from .compiler import compile as compile
from .devices import device as device
from .devices import get_default_device as get_default_device
from .devices import set_default_device as set_default_device
from .exchange.arrays import asarray as asarray
from .exchange.arrays import from_dlpack as from_dlpack
from .exchange.printing import set_printoptions as set_printoptions
from .exchange.storages import StorageBase as StorageBase
from .exchange.storages import from_file as from_file
from .exchange.storages import is_storage as is_storage
from .exchange.typed_storages import BFloat16Storage as BFloat16Storage
from .exchange.typed_storages import BoolStorage as BoolStorage
from .exchange.typed_storages import ByteStorage as ByteStorage
from .exchange.typed_storages import CharStorage as CharStorage
from .exchange.typed_storages import ComplexDoubleStorage as ComplexDoubleStorage
from .exchange.typed_storages import ComplexFloatStorage as ComplexFloatStorage
from .exchange.typed_storages import DoubleStorage as DoubleStorage
from .exchange.typed_storages import FloatStorage as FloatStorage
from .exchange.typed_storages import HalfStorage as HalfStorage
from .exchange.typed_storages import IntStorage as IntStorage
from .exchange.typed_storages import LongStorage as LongStorage
from .exchange.typed_storages import ShortStorage as ShortStorage
from .func.vmapping import vmap as vmap
from .functions.assertions import _assert as _assert
from .functions.assertions import _assert_async as _assert_async
from .functions.assertions import _check as _check
from .functions.assertions import _check_index as _check_index
from .functions.assertions import _check_is_size as _check_is_size
from .functions.assertions import _check_not_implemented as _check_not_implemented
from .functions.assertions import _check_tensor_all as _check_tensor_all
from .functions.assertions import _check_tensor_all_with as _check_tensor_all_with
from .functions.assertions import _check_type as _check_type
from .functions.assertions import _check_value as _check_value
from .functions.assertions import _check_with as _check_with
from .functions.bins import histogram as histogram
from .functions.bins import histogramdd as histogramdd
from .functions.calculus import cumulative_trapezoid as cumulative_trapezoid
from .functions.calculus import gradient as gradient
from .functions.calculus import norm_except_dim as norm_except_dim
from .functions.calculus import renorm as renorm
from .functions.calculus import trapezoid as _is_trapz
from .functions.calculus import trapezoid as trapezoid
from .functions.complexes import angle as angle
from .functions.complexes import complex as complex
from .functions.complexes import conj as conj
from .functions.complexes import conj_physical as conj_physical
from .functions.complexes import imag as imag
from .functions.complexes import is_complex as is_complex
from .functions.complexes import is_conj as is_conj
from .functions.complexes import is_neg as is_neg
from .functions.complexes import polar as polar
from .functions.complexes import real as real
from .functions.complexes import resolve_conj as resolve_conj
from .functions.complexes import resolve_neg as resolve_neg
from .functions.complexes import sgn as sgn
from .functions.complexes import view_as_complex as view_as_complex
from .functions.complexes import view_as_real as view_as_real
from .functions.composed import clamp_max as clamp_max
from .functions.composed import clamp_min as clamp_min
from .functions.composed import fill as fill
from .functions.composed import float_power as float_power
from .functions.composed import frexp as frexp
from .functions.composed import heaviside as heaviside
from .functions.composed import isneginf as isneginf
from .functions.composed import isposinf as isposinf
from .functions.composed import isreal as isreal
from .functions.composed import ldexp as ldexp
from .functions.composed import logaddexp as logaddexp
from .functions.composed import logaddexp2 as logaddexp2
from .functions.composed import logit as logit
from .functions.composed import nextafter as nextafter
from .functions.composed import polygamma as polygamma
from .functions.composed import rsub as rsub
from .functions.composed import signbit as signbit
from .functions.composed import sinc as sinc
from .functions.composed import xlogy as xlogy
from .functions.contractions import einsum as einsum
from .functions.contractions import tensordot as tensordot
from .functions.copies import as_strided_scatter as as_strided_scatter
from .functions.copies import narrow_copy as narrow_copy
from .functions.creation import empty as empty
from .functions.creation import empty_like as empty_like
from .functions.creation import eye as eye
from .functions.creation import full as full
from .functions.creation import full_like as full_like
from .functions.creation import ones as ones
from .functions.creation import ones_like as ones_like
from .functions.creation import zeros as zeros
from .functions.creation import zeros_like as zeros_like
from .functions.data_sized import argwhere as argwhere
from .functions.data_sized import nonzero as nonzero
from .functions.data_sized import nonzero_static as nonzero_static
from .functions.data_sized import unique as unique
from .functions.data_sized import unique_consecutive as unique_consecutive
from .functions.distances import cdist as cdist
from .functions.distances import pdist as pdist
from .functions.divisors import gcd as gcd
from .functions.divisors import lcm as lcm
from .functions.elementwise import abs as _is_absolute
from .functions.elementwise import abs as abs
from .functions.elementwise import acos as _is_arccos
from .functions.elementwise import acos as acos
from .functions.elementwise import acosh as _is_arccosh
from .functions.elementwise import acosh as acosh
from .functions.elementwise import add as add
from .functions.elementwise import addcdiv as addcdiv
from .functions.elementwise import addcmul as addcmul
from .functions.elementwise import asin as _is_arcsin
from .functions.elementwise import asin as asin
from .functions.elementwise import asinh as _is_arcsinh
from .functions.elementwise import asinh as asinh
from .functions.elementwise import atan as _is_arctan
from .functions.elementwise import atan as atan
from .functions.elementwise import atan2 as _is_arctan2
from .functions.elementwise import atan2 as atan2
from .functions.elementwise import atanh as _is_arctanh
from .functions.elementwise import atanh as atanh
from .functions.elementwise import bitwise_and as bitwise_and
from .functions.elementwise import bitwise_left_shift as bitwise_left_shift
from .functions.elementwise import bitwise_not as bitwise_not
from .functions.elementwise import bitwise_or as bitwise_or
from .functions.elementwise import bitwise_right_shift as bitwise_right_shift
from .functions.elementwise import bitwise_xor as bitwise_xor
from .functions.elementwise import ceil as ceil
from .functions.elementwise import clamp as _is_clip
from .functions.elementwise import clamp as clamp
from .functions.elementwise import copysign as copysign
from .functions.elementwise import cos as cos
from .functions.elementwise import cosh as cosh
from .functions.elementwise import deg2rad as deg2rad
from .functions.elementwise import digamma as digamma
from .functions.elementwise import div as _is_divide
from .functions.elementwise import div as _is_true_divide
from .functions.elementwise import div as div
from .functions.elementwise import eq as eq
from .functions.elementwise import erf as erf
from .functions.elementwise import erfc as erfc
from .functions.elementwise import erfinv as erfinv
from .functions.elementwise import exp as exp
from .functions.elementwise import exp2 as exp2
from .functions.elementwise import expm1 as expm1
from .functions.elementwise import floor as floor
from .functions.elementwise import floor_divide as floor_divide
from .functions.elementwise import fmax as fmax
from .functions.elementwise import fmin as fmin
from .functions.elementwise import fmod as fmod
from .functions.elementwise import frac as frac
from .functions.elementwise import ge as _is_greater_equal
from .functions.elementwise import ge as ge
from .functions.elementwise import gt as _is_greater
from .functions.elementwise import gt as gt
from .functions.elementwise import hypot as hypot
from .functions.elementwise import isclose as isclose
from .functions.elementwise import isfinite as isfinite
from .functions.elementwise import isinf as isinf
from .functions.elementwise import isnan as isnan
from .functions.elementwise import le as _is_less_equal
from .functions.elementwise import le as le
from .functions.elementwise import lerp as lerp
from .functions.elementwise import lgamma as lgamma
from .functions.elementwise import log as log
from .functions.elementwise import log1p as log1p
from .functions.elementwise import log2 as log2
from .functions.elementwise import log10 as log10
from .functions.elementwise import logical_and as logical_and
from .functions.elementwise import logical_not as logical_not
from .functions.elementwise import logical_or as logical_or
from .functions.elementwise import logical_xor as logical_xor
from .functions.elementwise import lt as _is_less
from .functions.elementwise import lt as lt
from .functions.elementwise import maximum as maximum
from .functions.elementwise import minimum as minimum
from .functions.elementwise import mul as _is_multiply
from .functions.elementwise import mul as mul
from .functions.elementwise import nan_to_num as nan_to_num
from .functions.elementwise import ne as _is_not_equal
from .functions.elementwise import ne as ne
from .functions.elementwise import neg as _is_negative
from .functions.elementwise import neg as neg
from .functions.elementwise import pow as pow
from .functions.elementwise import rad2deg as rad2deg
from .functions.elementwise import reciprocal as reciprocal
from .functions.elementwise import relu as relu
from .functions.elementwise import remainder as remainder
from .functions.elementwise import round as round
from .functions.elementwise import rsqrt as rsqrt
from .functions.elementwise import sigmoid as sigmoid
from .functions.elementwise import sign as sign
from .functions.elementwise import sin as sin
from .functions.elementwise import sinh as sinh
from .functions.elementwise import sqrt as sqrt
from .functions.elementwise import square as square
from .functions.elementwise import sub as _is_subtract
from .functions.elementwise import sub as sub
from .functions.elementwise import tan as tan
from .functions.elementwise import tanh as tanh
from .functions.elementwise import trunc as _is_fix
from .functions.elementwise import trunc as trunc
from .functions.fake_quantized import (
    _fake_quantize_learnable_per_channel_affine as _fake_quantize_learnable_per_channel_affine,
)
from .functions.fake_quantized import (
    _fake_quantize_learnable_per_tensor_affine as _fake_quantize_learnable_per_tensor_affine,
)
from .functions.fake_quantized import (
    fake_quantize_per_channel_affine as fake_quantize_per_channel_affine,
)
from .functions.fake_quantized import (
    fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine,
)
from .functions.fake_quantized import (
    fused_moving_avg_obs_fake_quant as fused_moving_avg_obs_fake_quant,
)
from .functions.few_bits import bit as bit
from .functions.few_bits import bits1x8 as bits1x8
from .functions.few_bits import bits2x4 as bits2x4
from .functions.few_bits import bits4x2 as bits4x2
from .functions.few_bits import bits8 as bits8
from .functions.few_bits import bits16 as bits16
from .functions.few_bits import int1 as int1
from .functions.few_bits import int2 as int2
from .functions.few_bits import int3 as int3
from .functions.few_bits import int4 as int4
from .functions.few_bits import int5 as int5
from .functions.few_bits import int6 as int6
from .functions.few_bits import int7 as int7
from .functions.few_bits import uint1 as uint1
from .functions.few_bits import uint2 as uint2
from .functions.few_bits import uint3 as uint3
from .functions.few_bits import uint4 as uint4
from .functions.few_bits import uint5 as uint5
from .functions.few_bits import uint6 as uint6
from .functions.few_bits import uint7 as uint7
from .functions.from_data import as_tensor as as_tensor
from .functions.from_data import from_numpy as from_numpy
from .functions.from_data import frombuffer as frombuffer
from .functions.from_data import scalar_tensor as scalar_tensor
from .functions.from_data import tensor as tensor
from .functions.gathering import gather as gather
from .functions.gathering import index_select as index_select
from .functions.gathering import repeat_interleave as repeat_interleave
from .functions.gathering import take as take
from .functions.gathering import take_along_dim as take_along_dim
from .functions.hashing import hash_tensor as hash_tensor
from .functions.indexing import index_put as index_put
from .functions.indexing import masked_scatter as masked_scatter
from .functions.indexing import masked_select as masked_select
from .functions.joining import atleast_1d as atleast_1d
from .functions.joining import atleast_2d as atleast_2d
from .functions.joining import atleast_3d as atleast_3d
from .functions.joining import block_diag as block_diag
from .functions.joining import cartesian_prod as cartesian_prod
from .functions.joining import cat as _is_concat
from .functions.joining import cat as _is_concatenate
from .functions.joining import cat as cat
from .functions.joining import column_stack as column_stack
from .functions.joining import combinations as combinations
from .functions.joining import diag as diag
from .functions.joining import diag_embed as diag_embed
from .functions.joining import diagflat as diagflat
from .functions.joining import diagonal_scatter as diagonal_scatter
from .functions.joining import dsplit as dsplit
from .functions.joining import dstack as dstack
from .functions.joining import flip as flip
from .functions.joining import fliplr as fliplr
from .functions.joining import flipud as flipud
from .functions.joining import hsplit as hsplit
from .functions.joining import hstack as hstack
from .functions.joining import meshgrid as meshgrid
from .functions.joining import roll as roll
from .functions.joining import rot90 as rot90
from .functions.joining import select_scatter as select_scatter
from .functions.joining import slice_scatter as slice_scatter
from .functions.joining import stack as stack
from .functions.joining import tile as tile
from .functions.joining import tril as tril
from .functions.joining import tril_indices as tril_indices
from .functions.joining import triu as triu
from .functions.joining import triu_indices as triu_indices
from .functions.joining import unravel_index as unravel_index
from .functions.joining import vsplit as vsplit
from .functions.joining import vstack as _is_row_stack
from .functions.joining import vstack as vstack
from .functions.limits import finfo as finfo
from .functions.limits import iinfo as iinfo
from .functions.masks import masked_fill as masked_fill
from .functions.masks import where as where
from .functions.older import empty_permuted as empty_permuted
from .functions.older import empty_strided as empty_strided
from .functions.older import get_device as get_device
from .functions.older import is_distributed as is_distributed
from .functions.older import is_inference as is_inference
from .functions.parts import chunk as chunk
from .functions.parts import narrow as narrow
from .functions.parts import select as select
from .functions.parts import split as split
from .functions.parts import split_with_sizes as split_with_sizes
from .functions.parts import tensor_split as tensor_split
from .functions.parts import unbind as unbind
from .functions.parts import unsafe_chunk as unsafe_chunk
from .functions.parts import unsafe_split as unsafe_split
from .functions.parts import unsafe_split_with_sizes as unsafe_split_with_sizes
from .functions.products import addbmm as addbmm
from .functions.products import addmm as addmm
from .functions.products import addmv as addmv
from .functions.products import addr as addr
from .functions.products import baddbmm as baddbmm
from .functions.products import bmm as bmm
from .functions.products import chain_matmul as chain_matmul
from .functions.products import cross as cross
from .functions.products import dot as dot
from .functions.products import inner as inner
from .functions.products import kron as kron
from .functions.products import matmul as matmul
from .functions.products import mm as mm
from .functions.products import mv as mv
from .functions.products import outer as _is_ger
from .functions.products import outer as outer
from .functions.products import trace as trace
from .functions.products import vander as vander
from .functions.products import vdot as vdot
from .functions.promotion import can_cast as can_cast
from .functions.promotion import promote_types as promote_types
from .functions.quantized import _empty_affine_quantized as _empty_affine_quantized
from .functions.quantized import (
    _empty_per_channel_affine_quantized as _empty_per_channel_affine_quantized,
)
from .functions.quantized import dequantize as dequantize
from .functions.quantized import empty_quantized as empty_quantized
from .functions.quantized import int_repr as int_repr
from .functions.quantized import per_channel_affine as per_channel_affine
from .functions.quantized import (
    per_channel_affine_float_qparams as per_channel_affine_float_qparams,
)
from .functions.quantized import per_channel_symmetric as per_channel_symmetric
from .functions.quantized import per_tensor_affine as per_tensor_affine
from .functions.quantized import per_tensor_symmetric as per_tensor_symmetric
from .functions.quantized import q_per_channel_axis as q_per_channel_axis
from .functions.quantized import q_per_channel_scales as q_per_channel_scales
from .functions.quantized import q_per_channel_zero_points as q_per_channel_zero_points
from .functions.quantized import q_scale as q_scale
from .functions.quantized import q_zero_point as q_zero_point
from .functions.quantized import qint8 as qint8
from .functions.quantized import qint32 as qint32
from .functions.quantized import qscheme as qscheme
from .functions.quantized import quantize_per_channel as quantize_per_channel
from .functions.quantized import quantize_per_tensor as quantize_per_tensor
from .functions.quantized import quantize_per_tensor_dynamic as quantize_per_tensor_dynamic
from .functions.quantized import quint2x4 as quint2x4
from .functions.quantized import quint4x2 as quint4x2
from .functions.quantized import quint8 as quint8
from .functions.queries import (
    _has_compatible_shallow_copy_type as _has_compatible_shallow_copy_type,
)
from .functions.queries import _shape_as_tensor as _shape_as_tensor
from .functions.queries import allclose as allclose
from .functions.queries import broadcast_shapes as broadcast_shapes
from .functions.queries import equal as equal
from .functions.queries import is_floating_point as is_floating_point
from .functions.queries import is_nonzero as is_nonzero
from .functions.queries import is_same_size as is_same_size
from .functions.queries import is_signed as is_signed
from .functions.queries import is_tensor as is_tensor
from .functions.queries import numel as numel
from .functions.queries import result_type as result_type
from .functions.ranges import arange as arange
from .functions.ranges import linspace as linspace
from .functions.ranges import logspace as logspace
from .functions.ranges import range as range
from .functions.reduction import all as all
from .functions.reduction import amax as amax
from .functions.reduction import amin as amin
from .functions.reduction import aminmax as aminmax
from .functions.reduction import any as any
from .functions.reduction import argmax as argmax
from .functions.reduction import argmin as argmin
from .functions.reduction import count_nonzero as count_nonzero
from .functions.reduction import dist as dist
from .functions.reduction import logsumexp as logsumexp
from .functions.reduction import max as max
from .functions.reduction import mean as mean
from .functions.reduction import min as min
from .functions.reduction import nanmean as nanmean
from .functions.reduction import nansum as nansum
from .functions.reduction import prod as prod
from .functions.reduction import sum as sum
from .functions.sampling import bernoulli as bernoulli
from .functions.sampling import multinomial as multinomial
from .functions.sampling import normal as normal
from .functions.sampling import rand as rand
from .functions.sampling import rand_like as rand_like
from .functions.sampling import randint as randint
from .functions.sampling import randint_like as randint_like
from .functions.sampling import randn as randn
from .functions.sampling import randn_like as randn_like
from .functions.sampling import randperm as randperm
from .functions.scattering import index_add as index_add
from .functions.scattering import index_copy as index_copy
from .functions.scattering import index_fill as index_fill
from .functions.scattering import index_reduce as index_reduce
from .functions.scattering import put as put
from .functions.scattering import scatter as scatter
from .functions.scattering import scatter_add as scatter_add
from .functions.scattering import scatter_reduce as scatter_reduce
from .functions.searching import bincount as bincount
from .functions.searching import bucketize as bucketize
from .functions.searching import histc as histc
from .functions.searching import isin as isin
from .functions.searching import searchsorted as searchsorted
from .functions.segments import segment_reduce as segment_reduce
from .functions.shapes import adjoint as adjoint
from .functions.shapes import as_strided as as_strided
from .functions.shapes import broadcast_tensors as broadcast_tensors
from .functions.shapes import broadcast_to as broadcast_to
from .functions.shapes import clone as clone
from .functions.shapes import diagonal as diagonal
from .functions.shapes import flatten as flatten
from .functions.shapes import movedim as _is_moveaxis
from .functions.shapes import movedim as movedim
from .functions.shapes import permute as permute
from .functions.shapes import positive as positive
from .functions.shapes import ravel as ravel
from .functions.shapes import reshape as reshape
from .functions.shapes import squeeze as squeeze
from .functions.shapes import swapaxes as swapaxes
from .functions.shapes import t as t
from .functions.shapes import transpose as _is_swapdims
from .functions.shapes import transpose as transpose
from .functions.shapes import unflatten as unflatten
from .functions.shapes import unsqueeze as unsqueeze
from .functions.sorting import argsort as argsort
from .functions.sorting import cummax as cummax
from .functions.sorting import cummin as cummin
from .functions.sorting import cumprod as cumprod
from .functions.sorting import cumsum as cumsum
from .functions.sorting import diff as diff
from .functions.sorting import kthvalue as kthvalue
from .functions.sorting import logcumsumexp as logcumsumexp
from .functions.sorting import median as median
from .functions.sorting import mode as mode
from .functions.sorting import msort as msort
from .functions.sorting import nanmedian as nanmedian
from .functions.sorting import nanquantile as nanquantile
from .functions.sorting import quantile as quantile
from .functions.sorting import sort as sort
from .functions.sorting import topk as topk
from .functions.special import i0 as i0
from .functions.special import igamma as igamma
from .functions.special import igammac as igammac
from .functions.special import mvlgamma as mvlgamma
from .functions.statistics import corrcoef as corrcoef
from .functions.statistics import cov as cov
from .functions.statistics import std as std
from .functions.statistics import std_mean as std_mean
from .functions.statistics import var as var
from .functions.statistics import var_mean as var_mean
from .functions.symbolic import SymBool as SymBool
from .functions.symbolic import SymFloat as SymFloat
from .functions.symbolic import SymInt as SymInt
from .functions.symbolic import sym_constrain_range as sym_constrain_range
from .functions.symbolic import sym_constrain_range_for_size as sym_constrain_range_for_size
from .functions.symbolic import sym_float as sym_float
from .functions.symbolic import sym_fresh_size as sym_fresh_size
from .functions.symbolic import sym_int as sym_int
from .functions.symbolic import sym_ite as sym_ite
from .functions.symbolic import sym_max as sym_max
from .functions.symbolic import sym_min as sym_min
from .functions.symbolic import sym_not as sym_not
from .functions.symbolic import sym_sqrt as sym_sqrt
from .functions.symbolic import sym_sum as sym_sum
from .functions.typed import set_default_tensor_type as set_default_tensor_type
from .functions.variates import _sample_dirichlet as _sample_dirichlet
from .functions.variates import _standard_gamma as _standard_gamma
from .functions.variates import binomial as binomial
from .functions.variates import poisson as poisson
from .futures import Future as Future
from .inspection.explanation import explain as explain
from .jit import ScriptFunction as ScriptFunction
from .jit import ScriptModule as ScriptModule
from .jit import fork as fork
from .jit import wait as wait
from .layouts import channels_last as channels_last
from .layouts import channels_last_3d as channels_last_3d
from .layouts import contiguous_format as contiguous_format
from .layouts import jagged as jagged
from .layouts import layout as layout
from .layouts import legacy_contiguous_format as legacy_contiguous_format
from .layouts import memory_format as memory_format
from .layouts import preserve_format as preserve_format
from .layouts import sparse_bsc as sparse_bsc
from .layouts import sparse_bsr as sparse_bsr
from .layouts import sparse_coo as sparse_coo
from .layouts import sparse_csc as sparse_csc
from .layouts import sparse_csr as sparse_csr
from .layouts import strided as strided
from .library.tags import Tag as Tag
from .linalg.partial import lobpcg as lobpcg
from .linalg.root import cholesky as cholesky
from .linalg.root import cholesky_inverse as cholesky_inverse
from .linalg.root import cholesky_solve as cholesky_solve
from .linalg.root import det as det
from .linalg.root import frobenius_norm as frobenius_norm
from .linalg.root import geqrf as geqrf
from .linalg.root import inverse as inverse
from .linalg.root import logdet as logdet
from .linalg.root import lu as lu
from .linalg.root import lu_solve as lu_solve
from .linalg.root import lu_unpack as lu_unpack
from .linalg.root import matrix_exp as matrix_exp
from .linalg.root import matrix_power as matrix_power
from .linalg.root import norm as norm
from .linalg.root import nuclear_norm as nuclear_norm
from .linalg.root import orgqr as orgqr
from .linalg.root import ormqr as ormqr
from .linalg.root import pca_lowrank as pca_lowrank
from .linalg.root import pinverse as pinverse
from .linalg.root import qr as qr
from .linalg.root import slogdet as slogdet
from .linalg.root import svd as svd
from .linalg.root import svd_lowrank as svd_lowrank
from .linalg.root import triangular_solve as triangular_solve
from .nn.functional import celu_ as celu_
from .nn.functional import selu_ as selu_
from .nn.functional import threshold_ as threshold_
from .nn.functional.activation import celu as celu
from .nn.functional.activation import hardshrink as hardshrink
from .nn.functional.activation import log_softmax as log_softmax
from .nn.functional.activation import prelu as prelu
from .nn.functional.activation import rrelu as rrelu
from .nn.functional.activation import rrelu_ as rrelu_
from .nn.functional.activation import selu as selu
from .nn.functional.activation import softmax as softmax
from .nn.functional.activation import threshold as threshold
from .nn.functional.conv import conv1d as conv1d
from .nn.functional.conv import conv2d as conv2d
from .nn.functional.conv import conv3d as conv3d
from .nn.functional.conv import conv_tbc as conv_tbc
from .nn.functional.conv import conv_transpose1d as conv_transpose1d
from .nn.functional.conv import conv_transpose2d as conv_transpose2d
from .nn.functional.conv import conv_transpose3d as conv_transpose3d
from .nn.functional.conv import pixel_shuffle as pixel_shuffle
from .nn.functional.ctc import ctc_loss_by_number as _is_ctc_loss
from .nn.functional.dropout import alpha_dropout as alpha_dropout
from .nn.functional.dropout import dropout as dropout
from .nn.functional.dropout import feature_alpha_dropout as feature_alpha_dropout
from .nn.functional.grouped import _grouped_mm as _grouped_mm
from .nn.functional.linear import bilinear as bilinear
from .nn.functional.linear import cosine_similarity as cosine_similarity
from .nn.functional.linear import pairwise_distance as pairwise_distance
from .nn.functional.loss import hinge_embedding_loss_of_torch as _is_hinge_embedding_loss
from .nn.functional.narrow import _convert_weight_to_int4pack as _convert_weight_to_int4pack
from .nn.functional.narrow import (
    _convert_weight_to_int4pack_for_cpu as _convert_weight_to_int4pack_for_cpu,
)
from .nn.functional.narrow import _int_mm as _int_mm
from .nn.functional.narrow import _weight_int4pack_mm as _weight_int4pack_mm
from .nn.functional.narrow import _weight_int4pack_mm_for_cpu as _weight_int4pack_mm_for_cpu
from .nn.functional.narrow import _weight_int8pack_mm as _weight_int8pack_mm
from .nn.functional.normalization import batch_norm_of_torch as _is_batch_norm
from .nn.functional.normalization import group_norm as group_norm
from .nn.functional.normalization import instance_norm_of_torch as _is_instance_norm
from .nn.functional.normalization import layer_norm as layer_norm
from .nn.functional.normalization import rms_norm as rms_norm
from .nn.functional.pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from .nn.functional.pooling import avg_pool1d as avg_pool1d
from .nn.functional.pooling import max_pool1d as max_pool1d
from .nn.functional.pooling import max_pool1d_with_indices as max_pool1d_with_indices
from .nn.functional.pooling import max_pool2d as max_pool2d
from .nn.functional.pooling import max_pool3d as max_pool3d
from .nn.functional.resampling import native_channel_shuffle as native_channel_shuffle
from .nn.functional.root import _softmax_backward_data as _softmax_backward_data
from .nn.functional.root import affine_grid_generator as affine_grid_generator
from .nn.functional.root import alpha_dropout_ as alpha_dropout_
from .nn.functional.root import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .nn.functional.root import channel_shuffle as channel_shuffle
from .nn.functional.root import constant_pad_nd as constant_pad_nd
from .nn.functional.root import convolution as convolution
from .nn.functional.root import cosine_embedding_loss as cosine_embedding_loss
from .nn.functional.root import dropout_ as dropout_
from .nn.functional.root import embedding as embedding
from .nn.functional.root import embedding_bag as embedding_bag
from .nn.functional.root import embedding_renorm_ as embedding_renorm_
from .nn.functional.root import feature_alpha_dropout_ as feature_alpha_dropout_
from .nn.functional.root import feature_dropout as feature_dropout
from .nn.functional.root import feature_dropout_ as feature_dropout_
from .nn.functional.root import grid_sampler as grid_sampler
from .nn.functional.root import grid_sampler_2d as grid_sampler_2d
from .nn.functional.root import grid_sampler_3d as grid_sampler_3d
from .nn.functional.root import gru as gru
from .nn.functional.root import gru_cell as gru_cell
from .nn.functional.root import kl_div as kl_div
from .nn.functional.root import lstm as lstm
from .nn.functional.root import lstm_cell as lstm_cell
from .nn.functional.root import margin_ranking_loss as margin_ranking_loss
from .nn.functional.root import native_batch_norm as native_batch_norm
from .nn.functional.root import native_dropout as native_dropout
from .nn.functional.root import native_group_norm as native_group_norm
from .nn.functional.root import native_layer_norm as native_layer_norm
from .nn.functional.root import pixel_unshuffle as pixel_unshuffle
from .nn.functional.root import poisson_nll_loss as poisson_nll_loss
from .nn.functional.root import rnn_relu as rnn_relu
from .nn.functional.root import rnn_relu_cell as rnn_relu_cell
from .nn.functional.root import rnn_tanh as rnn_tanh
from .nn.functional.root import rnn_tanh_cell as rnn_tanh_cell
from .nn.functional.root import triplet_margin_loss as triplet_margin_loss
from .nn.functional.root import view_as_complex_copy as view_as_complex_copy
from .nn.functional.root import view_as_real_copy as view_as_real_copy
from .nn.functional.scaled import _scaled_mm as _scaled_mm
from .random import Generator as Generator
from .random import default_generator as default_generator
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import seed as seed
from .random import set_rng_state as set_rng_state
from .random import thread_safe_generator as thread_safe_generator
from .recording import default_dtype as _is_get_default_dtype
from .recording import set_default_dtype as set_default_dtype
from .serialization import load as load
from .serialization import save as save
from .serialization.archive import PyTorchFileReader as PyTorchFileReader
from .serialization.naming import typename as typename
from .settings.build import DeviceObjType as DeviceObjType
from .settings.build import compiled_with_cxx11_abi as compiled_with_cxx11_abi
from .settings.build import has_lapack as has_lapack
from .settings.build import has_mkl as has_mkl
from .settings.build import has_openmp as has_openmp
from .settings.build import has_spectral as has_spectral
from .settings.build import init_num_threads as init_num_threads
from .settings.build import is_vulkan_available as is_vulkan_available
from .settings.build import is_warn_always_enabled as is_warn_always_enabled
from .settings.build import set_warn_always as set_warn_always
from .settings.denormals import set_flush_denormal as set_flush_denormal
from .settings.determinism import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
)
from .settings.determinism import get_deterministic_debug_mode as get_deterministic_debug_mode
from .settings.determinism import (
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
)
from .settings.determinism import set_deterministic_debug_mode as set_deterministic_debug_mode
from .settings.determinism import use_deterministic_algorithms as use_deterministic_algorithms
from .settings.precision import get_float32_matmul_precision as get_float32_matmul_precision
from .settings.precision import get_half_rounding as get_half_rounding
from .settings.precision import set_float32_matmul_precision as set_float32_matmul_precision
from .settings.precision import set_half_rounding as set_half_rounding
from .settings.threads import get_num_interop_threads as get_num_interop_threads
from .settings.threads import get_num_threads as get_num_threads
from .settings.threads import set_num_interop_threads as set_num_interop_threads
from .settings.threads import set_num_threads as set_num_threads
from .signal.root import bartlett_window as bartlett_window
from .signal.root import blackman_window as blackman_window
from .signal.root import hamming_window as hamming_window
from .signal.root import hann_window as hann_window
from .signal.root import kaiser_window as kaiser_window
from .signal.short_time import istft as istft
from .signal.short_time import stft as stft
from .sparse.conversions import _convert_indices_from_coo_to_csr as _convert_indices_from_coo_to_csr
from .sparse.conversions import _convert_indices_from_csr_to_coo as _convert_indices_from_csr_to_coo
from .sparse.conversions import resize_as_sparse_ as resize_as_sparse_
from .sparse.creating import _sparse_coo_tensor_unsafe as _sparse_coo_tensor_unsafe
from .sparse.creating import sparse_bsc_tensor as sparse_bsc_tensor
from .sparse.creating import sparse_bsr_tensor as sparse_bsr_tensor
from .sparse.creating import sparse_compressed_tensor as sparse_compressed_tensor
from .sparse.creating import sparse_coo_tensor as sparse_coo_tensor
from .sparse.creating import sparse_csc_tensor as sparse_csc_tensor
from .sparse.creating import sparse_csr_tensor as sparse_csr_tensor
from .sparse.parts import ccol_indices_copy as ccol_indices_copy
from .sparse.parts import col_indices_copy as col_indices_copy
from .sparse.parts import crow_indices_copy as crow_indices_copy
from .sparse.parts import indices_copy as indices_copy
from .sparse.parts import row_indices_copy as row_indices_copy
from .sparse.parts import values_copy as values_copy
from .sparse.products import dsmm as dsmm
from .sparse.products import hspmm as hspmm
from .sparse.products import saddmm as saddmm
from .sparse.products import smm as smm
from .sparse.products import spmm as spmm
from .sparse.products import sspaddmm as sspaddmm
from .storage import TypedStorage as TypedStorage
from .storage import UntypedStorage as UntypedStorage
from .tuning import tune as tune
from .types import Number
from .utils.dlpack import to_dlpack as to_dlpack

FloatTensor: type[Tensor]
DoubleTensor: type[Tensor]
HalfTensor: type[Tensor]
BFloat16Tensor: type[Tensor]
LongTensor: type[Tensor]
IntTensor: type[Tensor]
ShortTensor: type[Tensor]
CharTensor: type[Tensor]
ByteTensor: type[Tensor]
BoolTensor: type[Tensor]

def abs_(input: Tensor) -> Tensor: ...
def absolute_(input: Tensor) -> Tensor: ...
def acos_(input: Tensor) -> Tensor: ...
def acosh_(input: Tensor) -> Tensor: ...
def adaptive_max_pool1d(
    input: Tensor, output_size: _int | Sequence[_int | None] | None, return_indices: _bool = False
) -> tuple[Tensor, Tensor]: ...
def addmv_(
    input: Tensor, mat: Tensor, vec: Tensor, *last: Tensor, beta: _float = 1, alpha: _float = 1
) -> Tensor: ...
def alias_copy(input: Tensor, *args: Any) -> Any: ...
def arccos_(input: Tensor) -> Tensor: ...
def arccosh_(input: Tensor) -> Tensor: ...
def arcsin_(input: Tensor) -> Tensor: ...
def arcsinh_(input: Tensor) -> Tensor: ...
def arctan_(input: Tensor) -> Tensor: ...
def arctanh_(input: Tensor) -> Tensor: ...
def as_strided_(
    input: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None
) -> Tensor: ...
def as_strided_copy(input: Tensor, *args: Any) -> Any: ...
def asin_(input: Tensor) -> Tensor: ...
def asinh_(input: Tensor) -> Tensor: ...
def atan_(input: Tensor) -> Tensor: ...
def atanh_(input: Tensor) -> Tensor: ...
def ceil_(input: Tensor) -> Tensor: ...
def clamp_(
    input: Tensor, min: Number | Tensor | None = None, max: Number | Tensor | None = None
) -> Tensor: ...
def clamp_max_(input: Tensor, max: Number | Tensor) -> Tensor: ...
def clamp_min_(input: Tensor, min: Number | Tensor) -> Tensor: ...
def clip_(
    input: Tensor, min: Number | Tensor | None = None, max: Number | Tensor | None = None
) -> Tensor: ...
def conj_physical_(input: Tensor) -> Tensor: ...
def cos_(input: Tensor) -> Tensor: ...
def cosh_(input: Tensor) -> Tensor: ...
def deg2rad_(input: Tensor) -> Tensor: ...
def detach(input: Tensor) -> Tensor: ...
def detach_(input: Tensor) -> Tensor: ...
def detach_copy(input: Tensor, *args: Any) -> Any: ...
def diagonal_copy(input: Tensor, *args: Any) -> Any: ...
def eig(input: Tensor, *args: Any) -> NoReturn: ...
def erf_(input: Tensor) -> Tensor: ...
def erfc_(input: Tensor) -> Tensor: ...
def exp2_(input: Tensor) -> Tensor: ...
def exp_(input: Tensor) -> Tensor: ...
def expand_copy(input: Tensor, *args: Any) -> Any: ...
def expm1_(input: Tensor) -> Tensor: ...
def fill_(input: Tensor, value: Tensor | Number) -> Tensor: ...
def fix_(input: Tensor) -> Tensor: ...
def floor_(input: Tensor) -> Tensor: ...
def frac_(input: Tensor) -> Tensor: ...
def gcd_(input: Tensor, other: Number | Tensor) -> Tensor: ...
def i0_(input: Tensor) -> Tensor: ...
def index_put_(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: _bool = False
) -> Tensor: ...
def lcm_(input: Tensor, other: Number | Tensor) -> Tensor: ...
def ldexp_(input: Tensor, other: Number | Tensor) -> Tensor: ...
def log10_(input: Tensor) -> Tensor: ...
def log1p_(input: Tensor) -> Tensor: ...
def log2_(input: Tensor) -> Tensor: ...
def log_(input: Tensor) -> Tensor: ...
def logit_(input: Tensor, eps: _float | None = None) -> Tensor: ...
def lstsq(input: Tensor, *args: Any) -> NoReturn: ...
def matrix_rank(input: Tensor, *args: Any) -> NoReturn: ...
def nan_to_num_(
    input: Tensor, nan: _float = 0.0, posinf: _float | None = None, neginf: _float | None = None
) -> Tensor: ...
def neg_(input: Tensor) -> Tensor: ...
def negative_(input: Tensor) -> Tensor: ...
def permute_copy(input: Tensor, *args: Any) -> Any: ...
def rad2deg_(input: Tensor) -> Tensor: ...
def reciprocal_(input: Tensor) -> Tensor: ...
def relu_(input: Tensor) -> Tensor: ...
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor: ...
def round_(input: Tensor, *, decimals: _int = 0) -> Tensor: ...
def rsqrt_(input: Tensor) -> Tensor: ...
def select_copy(input: Tensor, *args: Any) -> Any: ...
def sigmoid_(input: Tensor) -> Tensor: ...
def sin_(input: Tensor) -> Tensor: ...
def sinc_(input: Tensor) -> Tensor: ...
def sinh_(input: Tensor) -> Tensor: ...
def slice_copy(input: Tensor, *args: Any) -> Any: ...
def solve(input: Tensor, *args: Any) -> NoReturn: ...
def split_copy(input: Tensor, *args: Any) -> Any: ...
def split_with_sizes_copy(input: Tensor, *args: Any) -> Any: ...
def sqrt_(input: Tensor) -> Tensor: ...
def square_(input: Tensor) -> Tensor: ...
def squeeze_copy(input: Tensor, *args: Any) -> Any: ...
def symeig(input: Tensor, *args: Any) -> NoReturn: ...
def t_copy(input: Tensor, *args: Any) -> Any: ...
def tan_(input: Tensor) -> Tensor: ...
def tanh_(input: Tensor) -> Tensor: ...
def transpose_copy(input: Tensor, *args: Any) -> Any: ...
def trunc_(input: Tensor) -> Tensor: ...
def unbind_copy(input: Tensor, *args: Any) -> Any: ...
def unfold_copy(input: Tensor, *args: Any) -> Any: ...
def unsqueeze_copy(input: Tensor, *args: Any) -> Any: ...
def view_copy(input: Tensor, *args: Any) -> Any: ...
def xlogy_(input: Tensor, other: Number | Tensor) -> Tensor: ...
def zero_(input: Tensor) -> Tensor: ...

bool = _is_bool
AcceleratorError = _is_AcceleratorError
get_default_dtype = _is_get_default_dtype
absolute = _is_absolute
arccos = _is_arccos
arccosh = _is_arccosh
arcsin = _is_arcsin
arcsinh = _is_arcsinh
arctan = _is_arctan
arctan2 = _is_arctan2
arctanh = _is_arctanh
batch_norm = _is_batch_norm
clip = _is_clip
concat = _is_concat
concatenate = _is_concatenate
ctc_loss = _is_ctc_loss
divide = _is_divide
fix = _is_fix
ger = _is_ger
greater = _is_greater
greater_equal = _is_greater_equal
hinge_embedding_loss = _is_hinge_embedding_loss
instance_norm = _is_instance_norm
less = _is_less
less_equal = _is_less_equal
moveaxis = _is_moveaxis
multiply = _is_multiply
negative = _is_negative
not_equal = _is_not_equal
row_stack = _is_row_stack
subtract = _is_subtract
swapdims = _is_swapdims
trapz = _is_trapz
true_divide = _is_true_divide
