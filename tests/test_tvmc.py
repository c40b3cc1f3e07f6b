# SPDX-License-Identifier: Apache-2.0
"""Collage as a target of TVM's own driver: compiled by tvmc, run by a tvmc that knows nothing of it."""

import subprocess
import sys
import tarfile

import numpy as np
import pytest
from collage import frontends
from conftest import SAMPLES, environment
from test_end_to_end import small_onnx


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder, for the user's cost store."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("options", ["", " -only=dnnl", " -backends=tvm+dnnl"])
def test_tvmc_compiles_and_runs(collage_library, tmp_path, cache, options):
    small_onnx(tmp_path / "small.onnx")
    x = np.random.default_rng(20).standard_normal((1, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    target = f"collage -samples={SAMPLES}{options}, llvm"
    compile_ = ["compile", "--target", target, "--input-shapes", "x:[1,3,16,16]", "--opt-level", "3"]
    for arguments, module, extra in (
        ([*compile_, "-o", "model.tar", "small.onnx"], "collage.tvmc", {}),
        (
            ["run", "--inputs", "x.npz", "--outputs", "y.npz", "model.tar"],
            "tvm.driver.tvmc",
            {"PYTHONPATH": ""},
        ),
    ):
        result = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment(XDG_CACHE_HOME=cache, **extra),
        )
        assert result.returncode == 0, result.stderr
    if "only" in options:
        with tarfile.open(tmp_path / "model.tar") as tar:
            assert b"libcollage_dnnl.so" in tar.extractfile("mod.so").read()
    from tvm import relay

    model = frontends.load(tmp_path / "small.onnx", input_shapes={"x": (1, 3, 16, 16)})
    expected = relay.create_executor("graph", model.module).evaluate()(x).numpy()
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["output_0"], expected, rtol=1e-4, atol=1e-6)
