"""Vectors of numbers in compiled kernels, for loops that the compiler does not vectorise well.

It has to prove that rows do not overlap, and where it cannot, numbers go one by one. Vectors need no proof. They are as
long as the widest registers of the processor.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as typed_intrinsic
from numba.extending import models, register_model

intrinsic: Any = typed_intrinsic  # what it makes takes the arguments of the function, less the first

_VECTOR = 64 if get_host_cpu_features().get("avx512f") else 32  # bytes
_LINE = np.uint64(64)  # bytes of a line of the cache
_FUSED = ("contract", "nsz")


class _Vector(types.Type):
    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.lanes = _VECTOR * 8 // dtype.bitwidth
        super().__init__(name=f"vector({dtype}, {self.lanes})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: _Vector) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(dmm.lookup(fe_type.dtype).get_value_type(), fe_type.lanes))


def _address(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """Address of the vector that begins at a place of a flat contiguous array."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    vector = context.get_value_type(_Vector(array_type.dtype))
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


@intrinsic
def lanes(_typing: Any, array: Any) -> Any:
    """Return how many numbers of an array a vector has; a constant, unlike the array's own `itemsize`."""

    def generate(_context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return ir.Constant(ir.IntType(64), _Vector(array.dtype).lanes)

    return types.uint64(array), generate


@intrinsic
def load(_typing: Any, array: Any, at: Any) -> Any:
    """Return numbers of a flat contiguous array from place ``at`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=array.dtype.bitwidth // 8)

    return _Vector(array.dtype)(array, types.uint64), generate


@intrinsic
def store(_typing: Any, vector: Any, array: Any, at: Any) -> Any:
    """Put numbers into a flat contiguous array from place ``at`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1], *arguments[1:])
        builder.store(arguments[0], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, array, types.uint64), generate


@intrinsic
def load_pairs(_typing: Any, array: Any, at: Any) -> Any:
    """Return first and second numbers of the pairs from place ``at`` on."""
    vector = _Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size = array.dtype.bitwidth // 8
        more = builder.add(arguments[1], ir.Constant(ir.IntType(64), vector.lanes))
        halves = [
            builder.load(_address(context, builder, signature.args[0], arguments[0], place), align=size)
            for place in (arguments[1], more)
        ]
        parts = [builder.shuffle_vector(*halves, _chosen(range(part, 2 * vector.lanes, 2))) for part in (0, 1)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(vector, 2)(array, types.uint64), generate


@intrinsic
def zipped(_typing: Any, a: Any, b: Any) -> Any:
    """Return the numbers of two vectors in turn, in two vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        turn = _in_turn(a.lanes)
        halves = [builder.shuffle_vector(*arguments, _chosen(half)) for half in (turn[: a.lanes], turn[a.lanes :])]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(a, 2)(a, b), generate


def _in_turn(count: int) -> list[int]:
    """Lanes of two vectors in turn."""
    return [lane for pair in zip(range(count), range(count, 2 * count), strict=True) for lane in pair]


def _chosen(places: Iterable[int]) -> Any:
    """Which lanes of two vectors a shuffle takes."""
    listed = list(places)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(listed)), listed)


@intrinsic
def spread(_typing: Any, number: Any) -> Any:
    """Return a vector of one number."""
    vector = _Vector(number)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        empty = ir.Constant(context.get_value_type(vector), ir.Undefined)
        alone = builder.insert_element(empty, arguments[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(alone, alone, _chosen([0] * vector.lanes))

    return vector(number), generate


@intrinsic
def fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return ``a b + c``."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        factor, other, more = arguments
        return builder.fadd(builder.fmul(factor, other, flags=_FUSED), more, flags=_FUSED)

    return a(a, b, c), generate


@intrinsic
def plus(_typing: Any, a: Any, b: Any) -> Any:
    """Return ``a + b``."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return a(a, b), generate


@intrinsic
def minus(_typing: Any, a: Any, b: Any) -> Any:
    """Return ``a - b``."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return a(a, b), generate


@njit(cache=True, nogil=True)
def lined_up(count: Any, dtype: Any) -> Any:
    """Return zeros that begin with a line of the cache: vectors that cross lines are slow."""
    zeros = np.zeros(count + _LINE, dtype)
    skipped = (_LINE - np.uint64(zeros.ctypes.data) % _LINE) // np.uint64(zeros.itemsize)
    return zeros[skipped : skipped + count]
