# SPDX-License-Identifier: Apache-2.0
"""Writes a network with a residual sum as Relay text, residual.relay."""

from pathlib import Path

import tvm
from tvm import relay

x, y = relay.var("x", shape=(64, 1024)), relay.var("y", shape=(64, 1024))
network = tvm.IRModule.from_expr(relay.tanh(relay.nn.relu(relay.add(relay.exp(x), y))))
Path("residual.relay").write_text(network.astext())
