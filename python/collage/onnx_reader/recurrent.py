# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as TVM's converters do not know them: tensors that begin with the batch (layout 1), one direction
that is the backward one, sequences of differing lengths, what goes into activations clipped, one gate for input and
forgetting.
"""

import numpy as np
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from . import control_flow
from .table import const, converter, dtype_of, given, outputs, rows_as_in, shape_of, sizes_of, static, text

# How many activations a layer has in each direction, and how many parts its matrices.
_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _written_out(name):
    """The converter of a recurrent layer: TVM's, which writes it out step by step, with what it lacks around it, or
    ours, which does so for layers that TVM's would read wrong.

    byoc/recurrent (Go) knows the steps of TVM's again, for engines that have the layer as one operator.
    """
    theirs = getattr(importer, name).get_converter(14)

    @converter(name, since=7)
    def convert(inputs, attrs, params):
        by_batch = bool(attrs.pop("layout", 0))
        if by_batch:  # The sequence and the states begin with the batch.
            for i in (0, 5, 6):
                if given(inputs, i) is not None:
                    inputs[i] = _op.transpose(inputs[i], (1, 0, 2))
        direction = text(attrs, "direction", "forward")
        open_sizes = None in sizes_of(inputs[0])[:2]
        lengths = _lengths(inputs)
        if lengths is not None or open_sizes or attrs.get("clip") or attrs.get("input_forget"):
            results = _layer(name, inputs, attrs, direction, lengths)[: outputs(attrs)]
        else:
            if direction == "reverse":
                inputs[0] = _op.reverse(inputs[0], 0)
            if len(inputs) > 4:
                inputs[4] = None
            # The fields themselves: a projection of the tuple for each would have all of it written out for each.
            results = list(theirs(inputs, attrs, params).astuple().fields)[: outputs(attrs)]
            if direction == "reverse":
                results[0] = _op.reverse(results[0], 0)
        if by_batch:
            orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
            results = [_op.transpose(one, order) for one, order in zip(results, orders, strict=False)]
        return results[0] if len(results) == 1 else relay.TupleWrapper(relay.Tuple(results), len(results))


def _lengths(inputs):
    """How long the sequences are; None where all go on to the end. Raises ValueError for impossible ones."""
    lengths, steps = given(inputs, 4), sizes_of(inputs[0])[0]
    if lengths is None or steps is None:
        return lengths
    try:
        known = static(lengths, "how long its sequences are (sequence_lens)").flatten()
    except ValueError:
        return lengths
    if (known < 0).any() or (known > steps).any():
        raise ValueError(f"its sequences end after {', '.join(str(n) for n in known)} of {steps} steps (sequence_lens)")
    return None if (known == steps).all() else const(known)


def _layer(name, inputs, attrs, direction, lengths):
    """All states of a layer [steps, directions, batch, hidden], the last ones, and an LSTM's last cells."""
    x, back = inputs[0], inputs[2]
    steps, batch = sizes_of(x)[:2]
    size = shape_of(inputs[1])[2]
    batch, several = (-1, 1) if batch is None else (batch, batch)
    directions, hidden = shape_of(back)[0], shape_of(back)[2]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    if len(ways) != directions:
        raise ValueError(f"its direction is {direction} and its weights are for {directions}")
    functions = getattr(importer, name)._get_activations(attrs, _ACTIVATIONS[name], directions, name)
    kind, gates, flat = dtype_of(x), _GATES[name], _op.reshape(x, (-1, size))
    nothing = const(np.zeros((several, hidden)), kind)
    ends = None if lengths is None else _op.reshape(lengths, (batch, 1))
    there = [None if ends is None else _goes_on(ends, t) for t in range(steps or 0)]
    found = []
    for k, backwards in enumerate(ways):

        def of(index, shape, k=k):
            """What an input has for this direction; None where it is left out."""
            value = given(inputs, index)
            if value is None:
                return None
            return _op.reshape(_op.strided_slice(value, [k], [k + 1], axes=[0]), shape)

        ahead = _op.nn.dense(flat, of(1, (gates * hidden, size)))
        bias = of(3, (2, gates * hidden))
        biases = [None, None]
        if bias is not None:
            biases = [_op.reshape(one, (gates * hidden,)) for one in _op.split(bias, 2)]
            ahead = _op.nn.bias_add(ahead, biases[0])
        ahead = rows_as_in(ahead, x, gates * hidden)
        cell = _Cell(
            name, of(2, (gates * hidden, hidden)), biases[1], of(7, (3, 1, hidden)),
            functions[k * _ACTIVATIONS[name] : (k + 1) * _ACTIVATIONS[name]], attrs, kind,
        )  # fmt: skip
        initial = of(5, (batch, hidden)), of(6, (batch, hidden))
        state = [nothing if one is None else one for one in initial][: 2 if name == "LSTM" else 1]
        if steps is None:
            seen, state = _in_a_loop(cell, ahead, state, backwards, ends, nothing)
        else:
            seen, state = _one_by_one(cell, ahead, state, backwards, there, nothing)
        if ends is not None:  # Of a sequence without steps ONNX Runtime gives nothing, not the state before.
            begun = there[0] if there else _goes_on(ends, 0)
            state = [_op.where(begun, one, nothing) for one in state]
        found.append((seen, *state))
    return [_op.stack(one, 1 if i == 0 else 0) for i, one in enumerate(zip(*found, strict=True))]


def _one_by_one(cell, ahead, state, backwards, there, nothing):
    """What a direction gives at each step, [steps, batch, hidden], and its last states, written out; ``there`` says for
    each step which sequences have it.
    """
    steps, batch, width = sizes_of(ahead)
    batch = -1 if batch is None else batch
    each, seen = _op.split(ahead, steps), [None] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        seen[t], state = _step(cell, _op.reshape(each[t], (batch, width)), state, there[t], nothing)
    return _op.stack(seen, 0), state


def _in_a_loop(cell, ahead, state, backwards, ends, nothing):
    """_one_by_one where how many steps there are is known only when the network runs: TVM's virtual machine loops.
    ``ends`` is how long the sequences are, [batch, 1].

    What is computed before the loop is handed from round to round: in its body TVM would compute it in each.
    """
    hidden = sizes_of(nothing)[1]
    whole = control_flow.variable("ahead", sizes_of(ahead), dtype_of(ahead))
    number = control_flow.variable("number", (), "int64")
    steps = control_flow.variable("steps", (), "int64")
    held = [control_flow.variable("state", (sizes_of(ahead)[1], hidden), dtype_of(one)) for one in state]
    seen = control_flow.variable("seen", (None, *sizes_of(held[0])), dtype_of(ahead))
    until = [] if ends is None else [control_flow.variable("ends", sizes_of(ends), dtype_of(ends))]
    t = steps - const(1, "int64") - number if backwards else number
    there = _goes_on(until[0], t) if until else None
    now, after = _step(cell, _op.take(whole, t, axis=0), held, there, nothing)
    now = _op.expand_dims(now, axis=0)
    grown = _op.concatenate([now, seen] if backwards else [seen, now], axis=0)
    loop, variables = relay.Var("loop"), [whole, steps, *until, number, seen, *held]
    again = relay.Call(loop, [whole, steps, *until, number + const(1, "int64"), grown, *after])
    body = relay.If(_op.less(number, steps), again, relay.Tuple([seen, *held]))
    count = _op.take(_op.shape_of(ahead, "int64"), const(0, "int64"))
    nothing_yet = _op.strided_slice(ahead, [0, 0], [0, hidden], strides=[1, 1], axes=[0, 2])
    if sizes_of(ahead)[1] is None:
        several = _op.concatenate(
            [_op.strided_slice(_op.shape_of(ahead, "int64"), [1], [2]), const([hidden], "int64")], 0
        )
        state = [_op.broadcast_to(one, several) if one is nothing else one for one in state]
    ended = relay.Call(
        relay.Let(loop, relay.Function(variables, body), loop),
        [ahead, count, *([] if ends is None else [ends]), const(0, "int64"), nothing_yet, *state],
    )
    return relay.TupleGetItem(ended, 0), [relay.TupleGetItem(ended, 1 + i) for i in range(len(state))]


def _step(cell, ahead, state, there, nothing):
    """What a layer gives at a step, [batch, hidden], and its states behind it; ``there`` says which sequences have the
    step, None that all do.
    """
    after = cell.step(ahead, *state)
    if there is None:
        return after[0], after
    # Where a sequence has ended its state stays, and what the layer gives is nothing.
    kept = [_op.where(there, new, old) for new, old in zip(after, state, strict=True)]
    return _op.where(there, after[0], nothing), kept


def _goes_on(ends, t):
    """Which sequences have a step ``t``, [batch, 1]."""
    kind = dtype_of(ends)
    return _op.greater(ends, _op.cast(t, kind) if isinstance(t, relay.Expr) else const(t, kind))


class _Cell:
    """A step of a layer in one direction, as ONNX has it."""

    def __init__(self, name, back, bias, peepholes, functions, attrs, kind):
        self.step = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[name]
        self.back, self.bias, self.functions = back, bias, functions
        self.peepholes = peepholes if peepholes is None else [_op.squeeze(p, [0]) for p in _op.split(peepholes, 3)]
        self.clip, self.one_gate = float(attrs.get("clip", 0)), bool(attrs.get("input_forget", 0))
        self.linear, self.one = bool(attrs.get("linear_before_reset", 0)), const(1, kind)

    def _of(self, function, value):
        """An activation; what goes into it is clipped where the layer clips."""
        return self.functions[function](_op.clip(value, -self.clip, self.clip) if self.clip else value)

    def _behind(self, state):
        """What the state before adds to all gates."""
        product = _op.nn.dense(state, self.back)
        return product if self.bias is None else _op.nn.bias_add(product, self.bias)

    def _rnn(self, ahead, state):
        return [self._of(0, ahead + self._behind(state))]

    def _gru(self, ahead, state):
        update, reset, new = _op.split(ahead, 3, axis=1)
        if self.linear:
            behind_update, behind_reset, behind = _op.split(self._behind(state), 3, axis=1)
            update, reset = self._of(0, update + behind_update), self._of(0, reset + behind_reset)
            new = self._of(1, new + reset * behind)
        else:
            matrices = _op.split(self.back, 3)
            biases = [None] * 3 if self.bias is None else _op.split(self.bias, 3)

            def behind(which, value):
                product = _op.nn.dense(value, matrices[which])
                return product if biases[which] is None else _op.nn.bias_add(product, biases[which])

            update, reset = self._of(0, update + behind(0, state)), self._of(0, reset + behind(1, state))
            new = self._of(1, new + behind(2, reset * state))
        return [(self.one - update) * new + update * state]

    def _lstm(self, ahead, state, cell):
        taken, given_out, kept, new = _op.split(ahead + self._behind(state), 4, axis=1)
        if self.peepholes:
            taken, kept = taken + self.peepholes[0] * cell, kept + self.peepholes[2] * cell
        taken = self._of(0, taken)
        kept = self.one - taken if self.one_gate else self._of(0, kept)
        cell = kept * cell + taken * self._of(1, new)
        if self.peepholes:
            given_out = given_out + self.peepholes[1] * cell
        return [self._of(0, given_out) * self.functions[2](cell), cell]


for each in ("RNN", "GRU", "LSTM"):
    _written_out(each)
