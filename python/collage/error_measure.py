# SPDX-License-Identifier: Apache-2.0
"""A measure of errors of the user's own: a Python function that says how far outputs are off.

In: FILE.py:FUNCTION, and what a network gives on some samples beside what plain TVM gives on the same. Out: the error.

    def lost(ours, right):
        return 1 - accuracy(ours, labels) / accuracy(right, labels)

``ours`` and ``right`` are lists, one item for each sample: the list of the network's outputs, numpy arrays. A function
that needs a third argument gets the inputs, too: a dictionary of arrays for each sample. It gives a number that is not
negative, 0 where nothing is lost, and is the same for the same outputs. Other processes call it. Of its file they run
what the function needs: the statements at the top that give the names that it uses, and those that these need. A
script whose function it is does not begin anew in them.
"""

import ast
import functools
import inspect
import math
import symtable
import sys
import traceback
from pathlib import Path

from . import errors


class MeasureError(errors.InputError):
    """A measure of the user's own gives no error; the text says which, why and where."""


def named(function):
    """FILE.py:FUNCTION of a function; raises ValueError where other processes cannot find it by that."""
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    if not file or not file.endswith(".py") or not Path(file).is_file() or not name.isidentifier():
        raise errors.OptionError(
            f"error_measure: other processes call it, and cannot find {name}: give a function that is defined with def "
            "at the top of a file, or FILE.py:FUNCTION",
            option="error_measure",
        )
    return f"{Path(file).resolve()}:{name}"


def error(file, function, got, expected, inputs):
    """What the function gives. Raises MeasureError."""
    called = f"{Path(file).name}:{function}"
    try:
        measure = _function(file, function)
        value = float(measure(*(got, expected, inputs)[: _takes(measure)]))
    except Exception as failed:
        lines = [frame.lineno for frame in traceback.extract_tb(failed.__traceback__) if frame.filename == file]
        if isinstance(failed, SyntaxError) and failed.filename == file:
            lines = [failed.lineno]
        where = f", line {lines[-1]}" if lines else ""
        text = str(failed).strip().splitlines() or [""]
        raise MeasureError(f"{called}: {type(failed).__name__}: {text[-1]}{where}") from failed
    if not (math.isfinite(value) and value >= 0):
        raise MeasureError(f"{called} gives {value}; an error is a finite number that is not negative")
    return value


def _takes(measure):
    """How many of outputs, right outputs and inputs a function asks for: a third argument with a default is its own."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(measure).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return 3
    return max(2, sum(one.kind in positional and one.default is one.empty for one in parameters))


@functools.lru_cache(maxsize=1)
def _function(file, name):
    source = Path(file).read_text(encoding="utf-8")
    tree = ast.parse(source, file)
    tree.body = _needed(tree.body, symtable.symtable(source, file, "exec"), name)
    names = {"__name__": Path(file).stem, "__file__": file}
    folder = str(Path(file).parent)
    sys.path.insert(0, folder)  # modules beside it
    try:
        exec(compile(tree, file, "exec"), names)
    finally:
        sys.path.remove(folder)
    return names[name]


def _needed(statements, table, name):
    """Those statements of a module that give a name, or a name that such a statement reads."""
    needed, asked, waiting = set(), set(), [name]
    while waiting:
        name = waiting.pop()
        asked.add(name)
        for number, statement in enumerate(statements):
            if number not in needed and not asked.isdisjoint(_gives(statement)):
                needed.add(number)
                waiting += _reads(statement, table) - asked
    return [statements[number] for number in sorted(needed)]


def _gives(statement):
    """The names that stand for something else after a statement."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in statement.names}
    if isinstance(statement, ast.If) and "__name__" in _loaded([statement.test]):
        return set()  # what a script does when it is run
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {node.id for node in stored}


def _reads(statement, table):
    """The module's names that a statement reads, or a function that it defines reads when it is called."""
    if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return _loaded([statement])
    outside = [*statement.decorator_list]
    if isinstance(statement, ast.ClassDef):
        outside += [*statement.bases, *statement.keywords]
    else:
        outside.append(statement.args)
    names = _loaded(outside)
    inside = [child for child in table.get_children() if child.get_name() == statement.name]
    while inside:
        scope = inside.pop()
        names |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        inside += scope.get_children()
    return names


def _loaded(nodes):
    every = (node for one in nodes for node in ast.walk(one))
    return {node.id for node in every if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
