# SPDX-License-Identifier: Apache-2.0
"""Pattern tables, both ways: those of TVM's external code generators for Go (two packed functions
``collage.host.*``), and those of Collage's backends for TVM's passes (``table_of``).
"""

import tvm

from . import library

_tables = {}


def _entries(compiler):
    # Looked up by its full name at each call, so that what replaces it (a test's table) is seen.
    table = tvm.relay.op.contrib.get_pattern_table(compiler)
    return None if table is None else [tuple(entry) for entry in table]


def pattern_table(compiler):
    """The table of a compiler as [name, pattern, name, pattern, ...]; None where there is none."""
    entries = _entries(str(compiler))
    if entries is None:
        return None
    _tables[str(compiler)] = entries
    return [part for entry in entries for part in entry[:2]]


def pattern_accepts(compiler, index, expression):
    """What the predicate of an entry of the table that was given last says; without one, True."""
    entry = _tables[str(compiler)][int(index)]
    return bool(entry[2](expression)) if len(entry) > 2 and entry[2] is not None else True


def register():
    """Register the two; the second time does nothing new."""
    tvm.register_func("collage.host.pattern_table", pattern_table, override=True)
    tvm.register_func("collage.host.pattern_accepts", pattern_accepts, override=True)


def table_of(backend, module):
    """The patterns of one of Collage's backends as a pattern table of TVM's, for ``module`` (typed): a list
    of (composite, pattern, predicate, bare). The predicates know the backend's limits and hold for
    expressions of this module, until the next call. bare: the backend expects the operator without a
    Composite function. Patterns that match nothing in the module are left out: TVM takes minutes to find out.

    For passes that look at the module as it is, as TVM's CollagePartition does. (MergeComposite changes it
    from pattern to pattern; the predicates do not know what comes out.)
    """
    library.load()
    parts = list(tvm.get_global_func("collage.backend.table")(module, backend))
    accepts = tvm.get_global_func("collage.backend.table_accepts")

    def predicate(place):
        return lambda expression: bool(accepts(place, expression))

    calls = []
    for function in module.functions.values():
        tvm.relay.analysis.post_order_visit(
            function, lambda node: calls.append(node) if isinstance(node, tvm.relay.Call) else None
        )
    table = []
    for at in range(0, len(parts), 3):
        holds = predicate(at // 3)
        if any(map(holds, calls)):
            table.append((str(parts[at]), parts[at + 1], holds, bool(int(parts[at + 2]))))
    return table
