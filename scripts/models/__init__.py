# SPDX-License-Identifier: Apache-2.0
"""Networks as PyTorch's users write them, with seeded weights, as ONNX files; ``python -m models`` in scripts/.

``table`` names them; ``vision`` and ``sequences`` have those that no package has ready, small enough to be read in a
minute. Weights are random: what a network computes is of no use, how it is made is what counts.
"""
