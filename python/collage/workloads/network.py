# SPDX-License-Identifier: Apache-2.0
"""Write a network down as Relay, with parameters whose values follow from their names.

In: calls of the operators a network is made of. Out: an IRModule whose ``main`` takes the inputs and then the
parameters, and a dictionary of parameter arrays.

A parameter's values are drawn from a generator seeded by SHA-256 of its name, so they do not depend on the
order of construction, on the machine or on the front end that asks for them.
"""

import hashlib
import math

import numpy as np
import tvm
from tvm import relay


def generator(name):
    """A random generator that is the same wherever ``name`` is the same."""
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest[:16], "little")))


class Network:
    """A network being written: its inputs, its parameters and the operators in terms of them.

    Parameter names are those a PyTorch module of the same structure would use (``layer1.0.conv1.weight``).
    Weights are scaled by the number of values that enter one output (He et al. 2015), times ``gain``, so
    that activations stay finite through networks that have no normalisation.
    """

    def __init__(self, name):
        self.name = name
        self._inputs = []
        self._params = {}

    def input(self, name, shape, dtype="float32"):
        """Declare an input of ``main``."""
        var = relay.var(name, shape=shape, dtype=dtype)
        self._inputs.append(var)
        return var

    def parameter(self, name, shape, mean=0.0, std=1.0, low=None):
        """Declare a float32 parameter: normal around ``mean`` with ``std``, not below ``low`` where that is
        given.
        """
        if name in self._params:
            raise ValueError(f"parameter {name} of {self.name} is declared twice")
        var = relay.var(name, shape=shape, dtype="float32")
        self._params[name] = (var, tuple(shape), mean, std, low)
        return var

    def weight(self, name, shape, fan_in, gain=2.0):
        """Declare a weight; ``gain`` is by how much it multiplies the mean square (2 in front of a ReLU)."""
        return self.parameter(name, shape, std=math.sqrt(gain / fan_in))

    # Operators with parameters. `name` is the module's, so that parameters get `<name>.weight` and
    # `<name>.bias`.

    def conv(
        self,
        x,
        name,
        channels_in,
        channels_out,
        kernel,
        stride=1,
        padding=0,
        groups=1,
        bias=False,
        gain=2.0,
        rank=2,
    ):
        """A convolution of ``rank`` 2 (NCHW) or 3 (NCDHW), with bias_add where ``bias``; kernel and padding are one
        number for all axes, or one for each.
        """
        operator = {2: relay.nn.conv2d, 3: relay.nn.conv3d}[rank]
        window, around = ((n,) * rank if isinstance(n, int) else tuple(n) for n in (kernel, padding))
        shape = (channels_out, channels_in // groups, *window)
        weight = self.weight(f"{name}.weight", shape, channels_in // groups * math.prod(window), gain)
        out = operator(
            x,
            weight,
            strides=(stride,) * rank,
            padding=around,
            groups=groups,
            channels=channels_out,
            kernel_size=window,
        )
        if bias:
            out = relay.nn.bias_add(out, self.parameter(f"{name}.bias", (channels_out,), std=0.05))
        return out

    def batch_norm(self, x, name, channels):
        """Inference-time batch normalisation over axis 1."""
        return relay.nn.batch_norm(
            x,
            self.parameter(f"{name}.weight", (channels,), mean=1.0, std=0.1),
            self.parameter(f"{name}.bias", (channels,), std=0.05),
            self.parameter(f"{name}.running_mean", (channels,), std=0.1),
            self.parameter(f"{name}.running_var", (channels,), mean=1.0, std=0.1, low=0.5),
        )[0]

    def conv_norm(self, x, name, channels_in, channels_out, kernel, stride=1, groups=1, gain=2.0):
        """A convolution (NCHW) that keeps the extents but for its stride, and batch normalisation."""
        x = self.conv(x, f"{name}.0", channels_in, channels_out, kernel, stride, kernel // 2, groups, gain=gain)
        return self.batch_norm(x, f"{name}.1", channels_out)

    def excited(self, x, name, channels, squeezed, inner, outer):
        """Squeeze-and-excitation (Hu et al. 2018): each channel times a number that depends on the means of all
        channels, through ``squeezed`` values. inner and outer: the activations of its two layers.
        """
        mean = relay.nn.adaptive_avg_pool2d(x, output_size=(1, 1))
        inside = inner(self.conv(mean, f"{name}.fc1", channels, squeezed, 1, bias=True))
        return relay.multiply(x, outer(self.conv(inside, f"{name}.fc2", squeezed, channels, 1, bias=True, gain=1.0)))

    def dense(self, x, name, units_in, units_out, gain=1.0, bias=True):
        """A dense layer on [rows, units_in], with an add of the bias where ``bias``."""
        out = relay.nn.dense(x, self.weight(f"{name}.weight", (units_out, units_in), units_in, gain), units=units_out)
        if bias:
            out = relay.add(out, self.parameter(f"{name}.bias", (units_out,), std=0.05))
        return out

    def finish(self, output):
        """The typed module with ``output`` as result of ``main``, and its parameters as {name: numpy
        array}.
        """
        variables = self._inputs + [entry[0] for entry in self._params.values()]
        module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, output)))
        values = {}
        for name, (_, shape, mean, std, low) in self._params.items():
            array = generator(name).standard_normal(shape, dtype=np.float32)
            array *= np.float32(std)
            array += np.float32(mean)
            if low is not None:
                np.maximum(array, np.float32(low), out=array)
            values[name] = array
        return module, values


def count_operators(module):
    """How often each primitive operator is called in ``main``, as {operator name: calls}."""
    counts = {}

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name] = counts.get(expr.op.name, 0) + 1

    relay.analysis.post_order_visit(module["main"], visit)
    return counts
