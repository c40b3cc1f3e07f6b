# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/how-placement-works.md from the plan that stands beside them, docs/placement/plan.json.

    python scripts/placement_pictures.py network model.onnx    # the network that the plan is of
    python scripts/placement_pictures.py draw PLAN FOLDER       # candidates.svg, prices.svg and regions.svg

The page says how the plan was made; tests/test_placement_page.py holds pictures and page against it.
"""

import argparse
import json
import sys
from html import escape
from pathlib import Path

# Backends in the order of their columns, each with its colour and a pale one.
COLOURS = {"tvm": ("#b45309", "#fdf0dc"), "dnnl": ("#1d4ed8", "#e3ebfd"), "native": ("#047857", "#dcf5ea")}
ROW, LANE, TEXT = 34, 56, 13
# The operator whose candidates prices.svg shows.
SHOWN = 7


def network(path):
    """Two convolutions with a way around the second, a pool, a dense layer, a softmax; weights by chance."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {
        "w1": (64, 3, 3, 3), "b1": (64,), "w2": (64, 64, 3, 3), "b2": (64,), "w3": (1000, 64), "b3": (1000,),
    }  # fmt: skip
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], **same),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], **same),
        helper.make_node("Add", ["c2", "r1"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["classes"]),
    ]
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 16).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 56, 56])
    classes = helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 1000])
    graph = helper.make_graph(nodes, "small", [image], [classes], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


class Placed:
    """A plan's operators in their order, and its candidates, those that were chosen first."""

    def __init__(self, plan):
        self.plan = plan
        self.nodes = {}
        self.candidates = []
        for region in plan["regions"]:
            for candidate in region["candidates"]:
                self.nodes.update({node["index"]: node for node in candidate["nodes"]})
                indices = [node["index"] for node in candidate["nodes"]]
                self.candidates.append({**candidate, "nodes": indices, "chosen": True, "region": region["id"]})
        self.candidates += [{**rejected, "chosen": False} for rejected in plan["candidates"]["rejected"]]
        self.row = {index: row for row, index in enumerate(sorted(self.nodes))}

    def prices(self, candidate):
        """What the candidate's nodes cost by the prices that prove the bound, in milliseconds."""
        return sum(self.nodes[index]["price_ms"] for index in candidate["nodes"])

    def covering(self, index):
        """The candidates that cover a node, those first that miss its prices by the least."""
        found = [candidate for candidate in self.candidates if index in candidate["nodes"]]
        return sorted(found, key=lambda one: (one["estimate_ms"] - self.prices(one), one["backend"], one["nodes"]))


def milliseconds(value):
    """Four digits behind the point, less of larger numbers."""
    return f"{value:.4f}" if value < 1 else f"{value:.3f}" if value < 10 else f"{value:.2f}"


def text(x, y, words, anchor="start", fill="#1f2937", size=TEXT, weight="normal"):
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )


def bar(x, y, width, height, fill, stroke, thick=1.5):
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{thick}"/>'
    )


def picture(title, width, height, parts):
    """An SVG with a light ground of its own, so that it can be read where the page is dark."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def operators(placed, top, prices):
    """The column of operators; with what each costs by its price."""
    parts = []
    for index, row in placed.row.items():
        y = top + row * ROW
        if row % 2:
            parts.append(f'<rect x="0" y="{y}" width="100%" height="{ROW}" fill="#f3f4f6"/>')
        parts.append(text(14, y + 22, f"%{index} {placed.nodes[index]['operator'].removeprefix('nn.')}"))
        if prices:
            parts.append(text(238, y + 22, f"{placed.nodes[index]['price_ms']:.4f}", "end", weight="bold"))
    return parts


def lanes(candidates, row):
    """Bars beside each other where they would overlap: (candidate, lane), and how many lanes there are."""
    ends, found = [], []
    order = sorted(candidates, key=lambda one: (row[one["nodes"][0]], -len(one["nodes"]), one["estimate_ms"]))
    for candidate in order:
        first, last = row[candidate["nodes"][0]], row[candidate["nodes"][-1]]
        lane = next((at for at, end in enumerate(ends) if end < first), len(ends))
        ends[lane:] = [last, *ends[lane + 1 :]]
        found.append((candidate, lane))
    return found, len(ends)


def candidates(placed):
    """Who could take what: a bar for each candidate over the rows of its operators, with its cost."""
    top, x = 62, 262
    parts = operators(placed, top, prices=True)
    parts += [text(14, 48, "operator", weight="bold"), text(238, 48, "price", "end", weight="bold")]
    for backend, (dark, pale) in COLOURS.items():
        found, count = lanes([one for one in placed.candidates if one["backend"] == backend], placed.row)
        parts.append(text(x + 4, 48, backend, fill=dark, weight="bold"))
        for candidate, lane in found:
            first, last = placed.row[candidate["nodes"][0]], placed.row[candidate["nodes"][-1]]
            height = (last - first + 1) * ROW - 6
            at = (x + lane * LANE, top + first * ROW + 3)
            parts.append(bar(*at, LANE - 6, height, dark if candidate["chosen"] else pale, dark))
            ink = "#ffffff" if candidate["chosen"] else "#1f2937"
            cost = milliseconds(candidate["estimate_ms"])
            parts.append(text(at[0] + (LANE - 6) // 2, f"{at[1] + height / 2 + 4:g}", cost, "middle", ink, 12))
        x += count * LANE + 14
    title = "Candidates and their costs in milliseconds; those that were placed are filled"
    parts.insert(0, text(14, 24, title, size=15))
    return picture("Operators, prices, and the candidates of each backend", x, top + len(placed.row) * ROW + 12, parts)


def prices(placed, shown=SHOWN):
    """Why nothing beats it: what candidates cost beside what their operators are priced at."""
    found = placed.covering(shown)
    top, left, wide = 72, 330, 430
    most = max(candidate["estimate_ms"] for candidate in found)
    parts = [
        text(14, 24, f"What could take %{shown}, in milliseconds", size=15),
        text(14, 46, "bar: what the candidate costs; black line: the sum of its operators' prices", fill="#4b5563"),
    ]
    for row, candidate in enumerate(found):
        y, (dark, pale) = top + row * ROW, COLOURS[candidate["backend"]]
        names = " ".join(placed.nodes[index]["operator"].removeprefix("nn.") for index in candidate["nodes"])
        parts.append(text(14, y + 18, f"{candidate.get('kernel') or candidate['backend']}: {names}"))
        scale = wide / most
        fill = dark if candidate["chosen"] else pale
        parts.append(bar(left, y + 4, candidate["estimate_ms"] * scale, ROW - 14, fill, dark))
        at = left + placed.prices(candidate) * scale
        parts.append(f'<line x1="{at:g}" x2="{at:g}" y1="{y}" y2="{y + ROW - 6}" stroke="#111827" stroke-width="3"/>')
        behind = left + candidate["estimate_ms"] * scale + 8
        missed = candidate["estimate_ms"] - placed.prices(candidate)
        parts.append(text(f"{behind:g}", y + 18, f"{candidate['estimate_ms']:.4f}, {missed:.4f} above"))
    return picture("Costs and prices", left + wide + 170, top + len(found) * ROW + 8, parts)


def regions(placed):
    """What came of it: the network, what is computed as one, and which parts share a region."""
    top, x = 48, 70
    parts = [text(14, 24, "What was placed, and what it takes in place, in milliseconds", size=15)]
    of = {index: one for one in placed.candidates if one["chosen"] for index in one["nodes"]}
    middle = {index: top + row * ROW + ROW // 2 for index, row in placed.row.items()}
    for index, node in placed.nodes.items():
        for source in node.get("reads", []):
            if source not in placed.row:
                continue
            if placed.row[index] - placed.row[source] == 1:
                path = f"M{x + 90} {middle[source]}V{middle[index]}"
            else:
                path = f"M{x} {middle[source]}C{x - 70} {middle[source]} {x - 70} {middle[index]} {x} {middle[index]}"
            parts.append(f'<path d="{path}" fill="none" stroke="#6b7280" stroke-width="2"/>')
    for candidate in (one for one in placed.candidates if one["chosen"]):
        dark, _ = COLOURS[candidate["backend"]]
        first, last = placed.row[candidate["nodes"][0]], placed.row[candidate["nodes"][-1]]
        parts.append(bar(x, top + first * ROW + 3, 180, (last - first + 1) * ROW - 6, dark, dark))
        name = candidate.get("composite") or candidate["backend"]
        takes = candidate.get("believed_ms") or candidate["estimate_ms"]
        y = top + (first + last + 1) * ROW / 2 + 5
        parts.append(text(x + 220, f"{y:g}", f"{name}: {takes:.4f}", fill=dark))
    for index, y in middle.items():
        name = placed.nodes[index]["operator"].removeprefix("nn.")
        parts.append(text(x + 90, y + 5, f"%{index} {name}", "middle", "#ffffff"))
    for region in placed.plan["regions"]:
        rows = sorted(placed.row[i] for i, one in of.items() if one["region"] == region["id"])
        if region.get("symbol"):
            y, height = top + rows[0] * ROW, (rows[-1] - rows[0] + 1) * ROW
            line = f"M{x + 196} {y + 2}h8v{height - 4}h-8"
            parts.append(f'<path d="{line}" fill="none" stroke="#111827" stroke-width="3"/>')
            parts.append(text(x + 450, f"{y + height / 2 + 5:g}", f"one region: {region['backend']}", weight="bold"))
    return picture("Regions", 760, top + len(placed.row) * ROW + 12, parts)


def draw(plan, folder):
    """Writes the three pictures of a plan's file into a folder."""
    placed = Placed(json.loads(Path(plan).read_text(encoding="utf-8")))
    for drawn in (candidates, prices, regions):
        (Path(folder) / f"{drawn.__name__}.svg").write_text(drawn(placed), encoding="utf-8")


def main(arguments=None):
    parser = argparse.ArgumentParser(description="the pictures of docs/how-placement-works.md")
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("network", help="write the network of the example").add_argument("file")
    drawing = what.add_parser("draw", help="draw a plan")
    drawing.add_argument("plan")
    drawing.add_argument("folder")
    options = parser.parse_args(arguments)
    if options.what == "network":
        network(options.file)
    else:
        draw(options.plan, options.folder)


if __name__ == "__main__":
    sys.exit(main())
