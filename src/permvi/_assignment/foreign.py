"""The host solver as a foreign function of XLA, which compiled programmes on a CPU call by name.

A callback of JAX is a pointer inside the programme, so that JAX cannot keep such a programme on
disk. A foreign function has a name instead, and a process that loads the programme need only have
registered it. It is a Python function behind the C interface of XLA (``xla/ffi/api/c_api.h`` in the
folder that ``jax.ffi.include_dir()`` names), which gets the arrays themselves and no copies.
"""

import ctypes
import functools
import threading
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

import jax
import numpy as np

from permvi._assignment import host

# The version of the interface that the structures below are of. XLA refuses a function of another
# major version, or of a later minor one.
_MAJOR, _MINOR = 0, 1
_METADATA = 1
_INTERNAL_ERROR = 13
_DTYPES = {1: "|b1", 4: "=i4", 11: "=f4", 12: "=f8"}


class _Extension(Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))


class _Version(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("major", c_int),
        ("minor", c_int),
    )


class _Metadata(Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(Structure):
    _fields_ = (("base", _Extension), ("metadata", POINTER(_Metadata)))


class _Buffer(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )


class _Buffers(Structure):
    """The arguments or the results of a call."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("buffers", POINTER(POINTER(_Buffer))),
    )


class _ErrorArguments(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("message", c_char_p),
        ("code", c_int),
    )


class _Api(Structure):
    """The beginning of the table of functions of XLA."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", _Version),
        ("internal", c_void_p),
        ("create_error", ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))),
    )


class _Call(Structure):
    """The beginning of what XLA hands to a function."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", POINTER(_MetadataExtension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("arguments", _Buffers),
        ("results", _Buffers),
    )


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Call))


def target(*, maximize: bool, solver: str) -> str:
    """Register the host solver, if it is not yet, and return the name that programmes call it by.

    Its arguments are scores and perhaps a mask, (..., n, m) of equally many dimensions, and its
    result the permutations (..., n), as of `host.solve`. XLA refuses a name that it has for another
    function, so threads take turns.
    """
    with _one_registers:
        return _registered(maximize=maximize, solver=solver)


@functools.cache
def _registered(*, maximize: bool, solver: str) -> str:
    def solve(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        return host.solve(scores, mask, maximize=maximize, solver=solver)[0]

    name = f"permvi_assignment_{solver}_{'max' if maximize else 'min'}"
    _handlers.append(_handler(solve))
    capsule = jax.ffi.pycapsule(ctypes.cast(_handlers[-1], c_void_p).value)
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return name


_one_registers = threading.Lock()
# Programmes may call them as long as the process lives.
_handlers: list[Any] = []


def _handler(function: Callable[..., np.ndarray]) -> Any:
    """Return a C function that fills the one result with what a function of arrays returns."""

    def handle(pointer: Any) -> int | None:
        call = pointer.contents
        if call.extension and call.extension.contents.base.type == _METADATA:
            version = call.extension.contents.metadata.contents.version
            version.major, version.minor = _MAJOR, _MINOR
            return None
        try:
            result = function(*map(_array, _contents(call.arguments)))
            _array(*_contents(call.results))[...] = result
        except BaseException as error:
            message = f"{type(error).__name__}: {error}".encode()
            made = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message, _INTERNAL_ERROR)
            return call.api.contents.create_error(made)
        return None

    return _Handler(handle)


def _contents(buffers: _Buffers) -> list[_Buffer]:
    return [buffers.buffers[k].contents for k in range(buffers.size)]


class _Memory:
    """Memory that NumPy reads and writes in place."""

    def __init__(self, buffer: _Buffer, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (buffer.data, False),
            "shape": shape,
            "typestr": np.dtype(_DTYPES[buffer.dtype]).str,
            "version": 3,
        }


def _array(buffer: _Buffer) -> np.ndarray:
    shape = tuple(buffer.dims[: buffer.rank])
    if 0 in shape:
        # It may have no address.
        return np.empty(shape, _DTYPES[buffer.dtype])
    return np.asarray(_Memory(buffer, shape))
