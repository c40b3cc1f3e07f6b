# SPDX-License-Identifier: Apache-2.0
"""collage.parameters writes and reads what TVM's own functions do."""

import numpy as np
import pytest
import tvm
from collage import parameters
from tvm import relay

pytestmark = pytest.mark.fast


def _some():
    random = np.random.default_rng(5)
    values = {
        "wide": random.standard_normal((3, 1 << 19), "float32"),
        "p0": np.arange(-5, 5, dtype="int8"),
        "scalar": np.float64(2.5).reshape(()),
        "none": np.zeros((4, 0, 2), "float32"),
        "truth": np.array([True, False, True]),
        "größe": np.arange(6, dtype="int64").reshape(1, 2, 3),
        "half": np.array([1.5, -2], "float16"),
        "byte": np.array([[255, 0]], "uint8"),
    }
    arrays = {name: tvm.nd.array(value) for name, value in values.items()}
    arrays["brain"] = tvm.nd.empty((2,), "bfloat16").copyfrom(np.array([16256, 16384], "uint16"))
    return arrays


def _same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].shape, got[name].dtype) == (array.shape, array.dtype), name
        np.testing.assert_array_equal(got[name].numpy(), array.numpy(), err_msg=name)


def test_what_is_written_is_what_tvm_writes(tmp_path):
    arrays = _some()
    path = tmp_path / "some.params"
    parameters.write(arrays, path)
    assert path.read_bytes() == bytes(relay.save_param_dict(arrays))
    file, size = parameters.opened(arrays)
    assert file.read() == path.read_bytes()
    assert size == path.stat().st_size
    del arrays["none"]  # TVM does not read an array without elements
    parameters.write(arrays, path)
    _same(dict(relay.load_param_dict(path.read_bytes())), arrays)


def test_what_tvm_writes_is_read(tmp_path):
    arrays = _some()
    path = tmp_path / "some.params"
    path.write_bytes(relay.save_param_dict(arrays))
    got = parameters.read(path)
    path.unlink()
    _same(got, arrays)
    parameters.write({}, path)
    assert parameters.read(path) == {}


def test_uncommon_types_are_left_to_tvm(tmp_path):
    arrays = {"lanes": tvm.nd.empty((2,), "float32x4")}
    path = tmp_path / "some.params"
    parameters.write(arrays, path)
    assert path.read_bytes() == bytes(relay.save_param_dict(arrays))
    got = parameters.read(path)["lanes"]
    assert (got.shape, got.dtype) == ((2,), "float32x4")


def test_what_holds_no_arrays_says_so(tmp_path):
    path = tmp_path / "some.params"
    parameters.write(_some(), path)
    whole = path.read_bytes()
    for content in (b"", b"weights", whole[:100], whole[:-1], whole[:8] + whole[16:]):
        path.write_bytes(content)
        with pytest.raises(tvm.TVMError, match="does not hold weights as TVM saves them"):
            parameters.read(path)
