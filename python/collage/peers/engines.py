# SPDX-License-Identifier: Apache-2.0
"""Each engine as one class: load a network, bind inputs, run, give the outputs.

``load(files, threads)`` gets the paths of what ``Tvm.prepare`` wrote: {"model", "params", "format",
"input_shapes", "onnx", "program", "executable", "pt2" (the network as PyTorch exported it, or None), ...}.
``bind(inputs)`` takes {name: array}, in the model's order; ``run()`` is what is timed, without copies in or
out as far as the engine allows; ``outputs()`` are numpy arrays. All work in float32 on exactly ``threads``
threads, one call at a time, otherwise as the engine comes.
"""

import os
import time

import numpy as np


class Tvm:
    """Plain TVM, untuned: relay.build with its own thread pool. Also reads the model for the others."""

    def load(self, files, threads):
        from .. import export

        self.model = self._read(files)
        self._create(export.build(self.model.module, disabled_passes=files.get("disabled_passes")))
        import tvm

        return f"TVM {tvm.__version__}, untuned"

    @staticmethod
    def _read(files):
        from .. import frontends

        return frontends.load(files["model"], files.get("params"), files.get("input_shapes"), files.get("format"))

    def _create(self, factory):
        import tvm
        from tvm.contrib import graph_executor

        self.executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))

    def prepare(self, files):
        """Write inputs, ONNX model and program for the others; returns the names of the inputs."""
        from . import onnx_file, program
        from .program import UnsupportedError

        inputs = self._random(files.get("seed") or 0)
        np.savez(files["inputs"], **inputs)
        told = {"inputs": list(inputs)}
        try:
            plain = program.read(self.model.module)
            plain.save(files["program"])
            if self.model.format == "onnx":
                onnx_file.fix_shapes(files["model"], files["onnx"], self.model.inputs)
            else:
                onnx_file.write(plain, files["onnx"])
        except UnsupportedError as error:
            told["unsupported"] = str(error)
            if self.model.format == "onnx":
                onnx_file.fix_shapes(files["model"], files["onnx"], self.model.inputs)
        return told

    def write(self, files):
        """Write the network as the ONNX model ``files["onnx"]``; UnsupportedError where that cannot be said."""
        from . import onnx_file, program

        onnx_file.write(program.read(self._read(files).module), files["onnx"])

    def _random(self, seed):
        from .. import seeded

        return seeded.inputs(seed, self.model.inputs)

    def bind(self, inputs):
        self.executor.set_input(**inputs)
        self.run = self.executor.module["run"]

    def outputs(self):
        return [self.executor.get_output(i).numpy() for i in range(self.executor.get_num_outputs())]


class Collage(Tvm):
    """What collage compile wrote."""

    def load(self, files, threads):
        from .. import region

        self.executor = region.load_executor(files["executable"])
        return os.path.basename(files["executable"])


class TvmCollage(Tvm):
    """TVM's own CollagePartition, with oneDNN; see prototype."""

    def load(self, files, threads):
        from . import prototype

        self.model = self._read(files)
        self.machine, told = prototype.machine(self.model, files, threads)
        return told

    def bind(self, inputs):
        self.machine.set_input("main", **inputs)
        self._result = None

        def run():
            self._result = self.machine.run()

        self.run = run

    def outputs(self):
        result = self._result
        return [result.numpy()] if hasattr(result, "numpy") else [one.numpy() for one in result]


class OnnxRuntime:
    """ONNX Runtime's CPU provider, sequential, all graph optimisations (its defaults)."""

    def load(self, files, threads):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(files["onnx"], options, providers=["CPUExecutionProvider"])
        return f"ONNX Runtime {ort.__version__}"

    def bind(self, inputs):
        import onnxruntime as ort

        self.binding = self.session.io_binding()
        for name, array in inputs.items():
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)
        # Outputs that the engine made itself are bound for good: it need not make them anew.
        self.session.run_with_iobinding(self.binding)
        for output, value in zip(self.session.get_outputs(), self.binding.get_outputs(), strict=True):
            self.binding.bind_ortvalue_output(output.name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return self.binding.copy_outputs_to_cpu()


class OnnxRuntimeInt8(OnnxRuntime):
    """ONNX Runtime with its own static quantisation: QDQ, weights per channel, ranges by the least and the greatest of
    what the very inputs give that it is then run on.
    """

    def load(self, files, threads):
        from onnxruntime import quantization

        class Reader(quantization.CalibrationDataReader):
            def __init__(self):
                self.left = [_inputs(files)]

            def get_next(self):
                return self.left.pop() if self.left else None

        narrow = f"{files['onnx']}.int8.onnx"
        quantization.quantize_static(
            files["onnx"], narrow, Reader(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
            use_external_data_format=os.path.getsize(files["onnx"]) > 1 << 30,
        )  # fmt: skip
        return f"{super().load({**files, 'onnx': narrow}, threads)}, static int8"


class OpenVino:
    """OpenVINO's CPU plug-in for latency, told to keep float32: by itself it takes bfloat16 where the
    processor has it.
    """

    precision = "f32"

    def load(self, files, threads):
        import openvino

        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
        }
        if self.precision:
            settings["INFERENCE_PRECISION_HINT"] = self.precision
        self.compiled = openvino.Core().compile_model(self._model(files), "CPU", settings)
        return f"OpenVINO {openvino.__version__.split('-')[0]}"

    def _model(self, files):
        return files["onnx"]

    def bind(self, inputs):
        import openvino

        self.request = self.compiled.create_infer_request()
        self.bound = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        for name, array in self.bound.items():
            self.request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run(self):
        self.request.start_async()
        self.request.wait()

    def outputs(self):
        return [self.request.get_output_tensor(i).data.copy() for i in range(len(self.compiled.outputs))]


class OpenVinoAsItComes(OpenVino):
    """OpenVINO's CPU plug-in for latency, in the type that it chooses."""

    precision = None


class OpenVinoInt8(OpenVino):
    """OpenVINO with a model that NNCF has quantised, on the very inputs that it is then run on."""

    def _model(self, files):
        os.environ.setdefault("CI", "true")  # or it reports to the network
        import nncf
        import openvino

        self.by = f"NNCF {nncf.__version__}"
        return nncf.quantize(openvino.Core().read_model(files["onnx"]), nncf.Dataset([_inputs(files)]), subset_size=1)

    def load(self, files, threads):
        return f"{super().load(files, threads)}, int8 by {self.by}"


class Torch:
    """PyTorch as it is, without gradients."""

    without_gradients = "inference_mode"

    def load(self, files, threads):
        import pickle

        import torch

        from . import torch_module

        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        if files.get("pt2"):
            self.names, self.module = None, torch.export.load(files["pt2"]).module()
        else:
            with open(files["program"], "rb") as file:
                program = pickle.load(file)
            self.names, self.module = list(program.inputs), torch_module.build(program)
        return f"PyTorch {torch.__version__.partition('+')[0]}"

    def bind(self, inputs):
        import torch

        # An exported program's inputs have names of its own, in the order of the ONNX file that was written of it.
        names = inputs if self.names is None else self.names
        values = [torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in names]
        without_gradients = getattr(torch, self.without_gradients)

        def run():
            with without_gradients():
                self.result = self.module(*values)

        self.run = run

    def outputs(self):
        from torch.utils import _pytree

        return [value.numpy() for value in _pytree.tree_leaves(self.result) if hasattr(value, "numpy")]


class TorchBf16(Torch):
    """PyTorch that computes in bfloat16 what it thinks fit for that (autocast)."""

    def load(self, files, threads):
        import torch

        told = super().load(files, threads)
        module = self.module

        def cast(*values):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return module(*values)

        self.module = cast
        return f"{told} autocast to bfloat16"

    def outputs(self):
        from torch.utils import _pytree

        values = [value for value in _pytree.tree_leaves(self.result) if hasattr(value, "numpy")]
        return [(value.float() if value.is_floating_point() else value).numpy() for value in values]


class TorchCompile(Torch):
    """torch.compile (Inductor) with frozen weights."""

    without_gradients = "no_grad"  # what freezing asks for

    def load(self, files, threads):
        # What it compiles goes when the run ends, and it starts no processes of its own that stay.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.path.dirname(files["program"]), "inductor"))
        import torch
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
        torch._inductor.config.freezing = True
        torch._inductor.config.cpp.threads = threads
        told = super().load(files, threads)
        self.module = torch.compile(self.module)
        return f"{told} torch.compile"


def _inputs(files):
    """What the network is run on, {name: array}."""
    with np.load(files["inputs"]) as archive:
        return dict(archive)


ENGINES = {
    "tvm": Tvm,
    "collage": Collage,
    "tvm-collage": TvmCollage,
    "onnxruntime": OnnxRuntime,
    "onnxruntime-int8": OnnxRuntimeInt8,
    "openvino": OpenVino,
    "openvino-default": OpenVinoAsItComes,
    "openvino-int8": OpenVinoInt8,
    "torch": Torch,
    "torch-bf16": TorchBf16,
    "torch-compile": TorchCompile,
}


def sample(run, seconds, least):
    """Milliseconds of each of as many calls as take ``seconds``, at least ``least``, after one that is not
    timed.
    """
    run()
    samples = []
    clock = time.perf_counter
    started = clock()
    while len(samples) < least or clock() - started < seconds:
        before = clock()
        run()
        samples.append(1000.0 * (clock() - before))
    return samples
