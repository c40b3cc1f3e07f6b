# SPDX-License-Identifier: Apache-2.0
"""Cuts what one region needs out of the graph executor's JSON of many regions that were built together.

In: the graph (nodes, heads, attributes by entry; a node has as many entries as outputs), which heads are the
region's, and the names of the inputs that are constant. Out: two graphs of their own, one of what is computed
from constants alone (weights in the layout that a kernel wants), to be run once, and one of the rest, in
which the first one's results are inputs. That is what TVM's FoldConstant would have left, without a compiler
run for each constant.
"""

from itertools import accumulate

_NOP = "__nop"  # a reshape: its output is its input's storage


class Cut:
    """One region's graphs.

    ``once`` is None where nothing is computed from constants alone; its i-th output belongs into the input
    ``folded[i]`` of ``each``. ``inputs`` and ``once_inputs`` are the names of the two graphs' other inputs.
    """

    def __init__(self, each, inputs, once, once_inputs, folded):
        self.each, self.inputs = each, inputs
        self.once, self.once_inputs, self.folded = once, once_inputs, folded


class _Part:
    """A graph under construction."""

    def __init__(self, graph):
        self._graph = graph
        self._columns = {name: [] for name in graph["attrs"] if name != "storage_id"}
        self._storage = []
        self.nodes, self.rows = [], []
        self.entries = {}  # (node, output) of the whole graph -> the same here

    def add(self, node, entries, storage):
        """Add a node that has these entries of the whole graph, stored there."""
        row = self._graph["node_row_ptr"]
        number = len(self.nodes)
        self.nodes.append(node)
        self.rows.append(len(entries))
        for output, ((of, index), place) in enumerate(zip(entries, storage, strict=True)):
            self.entries[of, index] = (number, output)
            for name, column in self._columns.items():
                column.append(self._graph["attrs"][name][1][row[of] + index])
            self._storage.append(place)

    def place(self, entry):
        """Where an entry is stored."""
        node, output = self.entries[entry]
        return self._storage[sum(self.rows[:node]) + output]

    def graph(self, heads):
        """The finished graph."""
        dense = {}
        storage = [dense.setdefault(place, len(dense)) for place in self._storage]
        kinds = {name: self._graph["attrs"][name][0] for name in self._graph["attrs"]}
        attrs = {name: [kinds[name], column] for name, column in self._columns.items()}
        attrs["storage_id"] = [kinds["storage_id"], storage]
        return {
            "nodes": self.nodes,
            "arg_nodes": [number for number, node in enumerate(self.nodes) if node["op"] == "null"],
            "heads": [[*self.entries[head], 0] for head in heads],
            "attrs": attrs,
            "node_row_ptr": [0, *accumulate(self.rows)],
        }


def cut(graph, heads, constant):
    """The part of ``graph`` that computes ``heads`` (numbers of its heads, in the order that is wanted).

    ``constant(name)`` says whether an input keeps its value.
    """
    nodes, row = graph["nodes"], graph["node_row_ptr"]
    wanted = [tuple(graph["heads"][head][:2]) for head in heads]
    needed = set()
    stack = [node for node, _ in wanted]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(entry[0] for entry in nodes[node]["inputs"])
    fixed = {}
    for number in sorted(needed):
        node = nodes[number]
        fixed[number] = (
            constant(node["name"]) if node["op"] == "null" else all(fixed[entry[0]] for entry in node["inputs"])
        )

    once, each = _Part(graph), _Part(graph)
    folded = []

    def outputs(number):
        return [(number, index) for index in range(row[number + 1] - row[number])]

    def take(part, number):
        """The node's own input, or what ``once`` computes, as an input of ``part``."""
        node = nodes[number]
        if node["op"] == "null" and (number, 0) not in part.entries:
            part.add({"op": "null", "name": node["name"], "inputs": []}, [(number, 0)], [("in", number)])

    def take_entry(entry):
        number = entry[0]
        if entry in each.entries:
            return
        if nodes[number]["op"] == "null":
            take(each, number)
        elif fixed[number]:
            name = f"folded{len(folded)}"
            folded.append(entry)
            each.add({"op": "null", "name": name, "inputs": []}, [entry], [("folded", entry)])

    def operate(part, number, storage):
        node = nodes[number]
        inputs = [[*part.entries[tuple(entry[:2])], 0] for entry in node["inputs"]]
        part.add({**node, "inputs": inputs}, outputs(number), storage)

    for number in sorted(needed):
        node = nodes[number]
        sources = [tuple(entry[:2]) for entry in node["inputs"]]
        if node["op"] == "null":
            continue
        nop = node["attrs"].get("func_name") == _NOP
        if fixed[number]:
            for source in sources:
                take(once, source[0])
            # Each result has a place of its own: all of them are taken when the graph has run.
            own = [("once", *entry) for entry in outputs(number)]
            operate(once, number, [once.place(sources[0])] if nop else own)
            continue
        for source in sources:
            take_entry(source)
        planned = [("planned", graph["attrs"]["storage_id"][1][row[number] + i]) for _, i in outputs(number)]
        operate(each, number, [each.place(sources[0])] if nop else planned)
    for head in wanted:
        take_entry(head)

    def names(part):
        return [node["name"] for node in part.nodes if node["op"] == "null" and node["name"] in own_names]

    own_names = {nodes[number]["name"] for number in needed if nodes[number]["op"] == "null"}
    return Cut(
        each.graph(wanted),
        names(each),
        once.graph(folded) if folded else None,
        names(once),
        [f"folded{index}" for index in range(len(folded))],
    )
