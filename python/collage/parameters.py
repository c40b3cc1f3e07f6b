# SPDX-License-Identifier: Apache-2.0
"""Weights in the format of TVM's ``save_param_dict``, written and read at the speed of memory.

In: arrays by name, or a file. Out: the same bytes as TVM's and the same arrays. TVM's own functions go through
streams that grow and copy several times; of 346 MB they write 3 s and read 2 s.

The format (src/runtime/file_utils.cc, include/tvm/runtime/ndarray.h of TVM 0.19), little endian:

    uint64 magic, uint64 0, uint64 number, number x (uint64 length, name), uint64 number, number x array
    array: uint64 magic, uint64 0, int32 device type, int32 device, int32 dimensions, uint8 type code, uint8 bits,
           uint16 lanes, dimensions x int64, int64 bytes, the bytes
"""

import ctypes
import io
import math
import struct
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relay

_LIST, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_COUNT, _HEAD, _ARRAY_HEAD = struct.Struct("<Q"), struct.Struct("<QQ"), struct.Struct("<QQiiiBBH")
_BITS = (1, 8, 16, 32, 64)

# How kinds of numbers are called, by TVM's codes of them.
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


def write(params: Mapping[str, Any], path: str | Path) -> None:
    """Write arrays, {name: NDArray}, to a file, in the format of TVM's ``save_param_dict``."""
    with open(path, "wb") as file:
        file.writelines(_pieces(params))


def opened(params: Mapping[str, Any]) -> tuple[io.BufferedReader, int]:
    """What ``write`` would write as a file that can be read, and how many bytes it has. No weight is copied for it: the
    arrays must stay as they are until it was read.
    """
    pieces = list(_pieces(params))
    return io.BufferedReader(_Pieces(pieces, params), 1 << 20), sum(map(len, pieces))


class _Pieces(io.RawIOBase):
    """A file that consists of pieces, views of what ``owner`` has."""

    def __init__(self, pieces, owner):
        self._pieces, self._owner = deque(memoryview(piece) for piece in pieces), owner

    def readable(self):
        return True

    def readinto(self, into):
        while self._pieces and not self._pieces[0]:
            self._pieces.popleft()
        if not self._pieces:
            return 0
        first = self._pieces[0]
        count = min(len(into), len(first))
        into[:count] = first[:count]
        self._pieces[0] = first[count:]
        return count


def _pieces(params):
    """What a file with these arrays holds, as bytes and views of the arrays."""
    if not all(_plain(array) for array in params.values()):
        yield relay.save_param_dict(params)
        return
    arrays = [(str(name), array) for name, array in tvm.runtime.convert(params).items()]  # in the order of TVM's
    yield _HEAD.pack(_LIST, 0) + _COUNT.pack(len(arrays))
    for name, _ in arrays:
        encoded = name.encode()
        yield _COUNT.pack(len(encoded)) + encoded
    yield _COUNT.pack(len(arrays))
    for _, array in arrays:
        shape, dtype = array.shape, tvm.DataType(array.dtype)
        size = _size(shape, dtype.bits)
        head = _ARRAY_HEAD.pack(_ARRAY, 0, tvm.cpu().device_type, 0, len(shape), dtype.type_code, dtype.bits, 1)
        yield head + struct.pack(f"<{len(shape) + 1}q", *shape, size)
        if size:
            yield memoryview((ctypes.c_ubyte * size).from_address(_address(array))).cast("B")


def _plain(array):
    """Whether an array lies in the host's memory as it would in a file."""
    dtype, whole = tvm.DataType(array.dtype), not array.handle.contents.strides
    common = dtype.type_code in _KINDS and dtype.bits in _BITS and dtype.lanes == 1
    return common and whole and array.device == tvm.cpu()


def _size(shape, bits):
    """The bytes of an array whose elements have so many bits, truth values one."""
    return math.prod(shape) * ((bits + 7) // 8)


def _address(array):
    return array.handle.contents.data + array.handle.contents.byte_offset


def read(path: str | Path) -> dict[str, tvm.nd.NDArray]:
    """The arrays of a file that ``write`` or TVM has written. A file of anything else raises tvm.TVMError."""
    try:
        arrays = _arrays(np.memmap(path, "uint8", "r"))
    except (ValueError, struct.error) as error:  # an empty file is no map
        raise tvm.TVMError(f"{path} does not hold weights as TVM saves them, or not whole: {error}") from error
    return dict(relay.load_param_dict(Path(path).read_bytes())) if arrays is None else arrays


def _arrays(content):
    """{name: NDArray} of what a file holds, an array of bytes; None where one of them is not _plain."""
    at = 0

    def take(form):
        nonlocal at
        values = form.unpack_from(content, at)
        at += form.size
        return values

    if take(_HEAD)[0] != _LIST:
        raise ValueError("it begins otherwise")
    names = []
    for _ in range(take(_COUNT)[0]):
        (length,) = take(_COUNT)
        names.append(bytes(content[at : at + length]).decode())
        at += length
    if take(_COUNT)[0] != len(names):
        raise ValueError("there are not as many arrays as names")
    arrays = {}
    for name in names:
        magic, _, _, _, dimensions, code, bits, lanes = take(_ARRAY_HEAD)
        if magic != _ARRAY or dimensions < 0:
            raise ValueError(f"{name} is no array")
        if code not in _KINDS or bits not in _BITS or lanes != 1:
            return None
        *shape, size = take(struct.Struct(f"<{dimensions + 1}q"))
        if min(shape, default=0) < 0 or size != _size(shape, bits) or at + size > len(content):
            raise ValueError(f"{name} has another size, or ends before it")
        arrays[name] = tvm.nd.empty(shape, "bool" if bits == 1 else f"{_KINDS[code]}{bits}")
        if size:
            ctypes.memmove(_address(arrays[name]), content.ctypes.data + at, size)
        at += size
    return arrays
