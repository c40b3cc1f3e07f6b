# SPDX-License-Identifier: Apache-2.0
"""The engines that ``collage bench all`` runs beside Collage, each in a process of its own.

``python -m collage.peers NAME`` serves one engine over its pipes (``__main__``), driven by
cmd/internal/bench. The engine ``tvm`` is always there: it reads the model, writes it as ONNX and as plain
operators for the others (``program``, ``onnx_file``), makes the inputs, and its outputs are the reference.
Engines are in ``engines``, PyTorch's module in ``torch_module``, TVM's own CollagePartition in ``prototype``.
"""
