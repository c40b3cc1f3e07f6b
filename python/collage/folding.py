# SPDX-License-Identifier: Apache-2.0
"""Constant folding in Go for TVM's front ends, while they read a model.

A front end folds what it has made so far after each operator, and asks for types of expressions again and again. TVM
compiles a kernel for each constant, and infers all types anew. Within ``here`` constants are evaluated by libcollage
(pass/fold), which remembers what it has seen, and a type is inferred from those of an operator's inputs. What is left
goes to TVM's functions, so that the module computes the same.
"""

import contextlib
import functools
import importlib
import threading

import tvm
from tvm import relay
from tvm.relay.frontend import common

from . import library

_fold_constant, _infer_value = common.fold_constant, common.infer_value
_infer_type, _set_span = common.infer_type, common.set_span

_turn = threading.RLock()  # the functions are replaced for the whole process, by one reader at a time


class Folder:
    """Replacements of functions of ``tvm.relay.frontend.common``, for one model."""

    def __init__(self):
        library.load()
        self._fold = tvm.get_global_func("collage.fold_expressions")()

    def close(self):
        """Let go what was folded."""
        self._fold()

    def fold_constant(self, node, mod=None):
        folded, left = self._fold(node)
        if int(left):
            folded = _fold_constant(folded, mod)
            self._fold(folded, True)
        return folded

    def infer_value(self, input_val, params, mod=None):
        folded = self._fold(input_val)[0]
        if isinstance(folded, relay.Constant):
            return folded.data
        return _infer_value(input_val, params, mod)

    def set_span(self, sym, span):
        """set_span, and the type at once: it makes new expressions, and no type is ever inferred through many."""
        spanned = _set_span(sym, span)
        with contextlib.suppress(tvm.TVMError):  # whoever asks for the type will hear why there is none
            self.infer_type(spanned.astuple() if isinstance(spanned, relay.expr.TupleWrapper) else spanned)
        return spanned

    @staticmethod
    def infer_type(node, mod=None):
        if mod is not None or isinstance(node, relay.Function):
            return _infer_type(node, mod)
        if node._checked_type_ is None:
            relay.transform.InferTypeLocal(node)
        return node


@contextlib.contextmanager
def here(front_end):
    """While ``tvm.relay.frontend.<front_end>`` reads a model, its constants are folded in Go."""
    module = importlib.import_module(f"tvm.relay.frontend.{front_end}")
    folder = Folder()
    ours = {_fold_constant: folder.fold_constant, _infer_value: folder.infer_value}
    if front_end == "onnx":
        # It asks for the types of whole expressions, where PyTorch's front end has a way of its own, and makes its
        # table of operators anew for each node.
        ours |= {_infer_type: folder.infer_type, _set_span: folder.set_span}
        ours[module._get_convert_map] = functools.cache(module._get_convert_map)
    with _turn:
        replaced = [
            (place, name, function)
            for place in (common, module)
            for name, function in vars(place).items()
            if isinstance(function, type(_fold_constant)) and function in ours
        ]
        try:
            for place, name, function in replaced:
                setattr(place, name, ours[function])
            yield
        finally:
            for place, name, function in replaced:
                setattr(place, name, function)
            folder.close()


def laid_out(array, layout, wanted):
    """An array in another layout, as a ``tvm.nd.NDArray``: what layout_transform gives."""
    library.load()
    call = relay.layout_transform(relay.const(array), layout, wanted)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(call))
    for fold in (tvm.get_global_func("collage.transform.FoldConstant")(), relay.transform.FoldConstant()):
        body = fold(module)["main"].body
        if isinstance(body, relay.Constant):
            return body.data
    raise ValueError(f"{layout} cannot be laid out as {wanted}")
