# SPDX-License-Identifier: Apache-2.0
"""The large weights of an ONNX model, apart from its ModelProto: protobuf writes no more than 2 GB, and each form that
a model is given would have another copy of them.

In: a file, or a ModelProto with the folder that its weights' files are in. Out: arrays of TVM's, each of which is read
once, from where it is.
"""

import math
import os
from pathlib import Path

import numpy as np
import onnx
import tvm
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from .. import errors

# Weights of more bytes are kept apart.
_LARGE = 1 << 10

# Weights of more bytes in files of their own are not loaded before they are kept apart.
_LEFT_IN_FILES = 1 << 20

# Types of elements that TVM has tensors of; they stand in a file as in memory.
TYPES = {getattr(TensorProto, name) for name in ("FLOAT", "DOUBLE", "FLOAT16", "BOOL")}
TYPES |= {getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)}


def load(path, left_in_files=_LEFT_IN_FILES):
    """The model in a file, as onnx.load gives it, but for weights of more than ``left_in_files`` bytes in other files.

    Raises FileNotFoundError where such a file is missing, ValueError where it is too short; what onnx.load raises.
    """
    proto, folder = onnx.load(str(path), load_external_data=False), Path(path).parent
    # What is cast may be looked at (narrow).
    cast = {node.input[0] for node in proto.graph.node if node.op_type == "Cast"}
    later, now = [], []
    for one in proto.graph.initializer:
        left = external_data_helper.uses_external_data(one) and one.data_type in TYPES and one.name not in cast
        (later if left and _bytes(one) > left_in_files else now).append(one)
    for one in later:
        _mapped(one, folder)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(now)
    external_data_helper.load_external_data_for_model(proto, str(folder))
    proto.graph.initializer.extend(later)
    return proto


def taken(proto, folder=None):
    """Make inputs of a model's large weights; gives the model and {name: array}. ``folder`` is where the files are in
    which ``load`` left weights. The model that was given is used up.
    """
    graph = proto.graph
    given = {value.name for value in graph.input}
    large, small = {}, []
    for one in graph.initializer:
        if one.data_type in TYPES and _bytes(one) > _LARGE:
            large[one.name] = _array(one, folder)
            if one.name not in given:
                graph.input.append(helper.make_tensor_value_info(one.name, one.data_type, list(one.dims)))
        else:
            small.append(one)
    del graph.initializer[:]
    graph.initializer.extend(small)
    # What was taken out of a message stays in its memory.
    return (onnx.ModelProto.FromString(proto.SerializeToString()) if large else proto), large


def _bytes(tensor):
    """What a tensor takes, by its shape."""
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _array(tensor, folder):
    if not external_data_helper.uses_external_data(tensor):
        return tvm.nd.array(numpy_helper.to_array(tensor))
    values = _mapped(tensor, folder)
    return tvm.nd.empty(values.shape, str(values.dtype)).copyfrom(values)


def _mapped(tensor, folder):
    """A weight in its file, of which only what is looked at is read."""
    info = external_data_helper.ExternalDataInfo(tensor)
    location = os.path.normpath(info.location)
    if os.path.isabs(location) or location.split(os.sep)[0] == os.pardir:
        raise errors.ModelError(
            f"its weight {tensor.name} is said to be in {info.location}, outside of the model's folder"
        )
    path, offset = Path(folder, location), info.offset or 0
    if not path.is_file():
        raise FileNotFoundError(f"{path}, which its weight {tensor.name} is in")
    if path.stat().st_size < offset + _bytes(tensor):
        raise errors.ModelError(
            f"its weight {tensor.name} is said to be {_bytes(tensor)} bytes of {path}, from byte {offset} on; the file "
            f"ends at {path.stat().st_size}"
        )
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.memmap(path, kind, "r", offset, tuple(tensor.dims))
