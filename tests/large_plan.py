# SPDX-License-Identifier: Apache-2.0
"""A plan of as many operators as one likes, for what must stay quick on large networks."""

OPERATORS = ("nn.conv2d", "add", "nn.relu", "nn.conv2d", "add")
COST = 0.25


def node(k, count):
    """The k-th operator of residual blocks of five; its node is k + 1, what the caller gives is node 0."""
    last_of_block = k % 5 == 4
    made = {
        "index": k + 1,
        "operator": OPERATORS[k % 5],
        "type": "Tensor[(1, 64, 56, 56), float32]",
        "span": f"layer{k // 250}/block{k // 5}",
        "post_dominator": -1 if k == count - 1 else k + 6 if last_of_block and k + 5 < count else k + 2,
        "price_ms": 0,
        "reads": [k - 4, k] if last_of_block and k > 5 else [k],
    }
    return made | ({"result": True} if k == count - 1 else {})


def large_plan(count):
    """A plan of `count` operators, half of it or so in regions of three on oneDNN; each has another candidate."""
    share = {
        name: {"name": name, "compiler": compiler, "library": library, "version": "1", "regions": 0, "operators": 0,
               "estimate_ms": 0}
        for name, compiler, library in (("tvm", "", "TVM"), ("dnnl", "dnnl", "oneDNN"))
    }  # fmt: skip
    regions, rejected, k = [], [], 0
    while k < count:
        several = k % 5 == 0 and k // 5 % 3 > 0 and k + 3 <= count
        backend, other, size = ("dnnl", "tvm", 3) if several else ("tvm", "dnnl", 1)
        nodes = [node(v, count) for v in range(k, k + size)]
        nodes[-1]["price_ms"] = COST
        candidate = {
            "key": f"k{size}",
            "estimate_ms": COST,
            "cost": {"origin": "given", "samples_ms": [COST]},
            "nodes": nodes,
        }
        region = {"id": len(regions), "function": "main", "backend": backend, "estimate_ms": COST}
        if several:
            region["symbol"], candidate["composite"] = (
                f"tvmgen_default_dnnl_main_{len(regions)}",
                "dnnl.conv2d_bias_relu",
            )
        regions.append(region | {"candidates": [candidate]})
        for n in nodes:
            one = {"function": "main", "backend": other, "nodes": [n["index"]], "key": "o", "estimate_ms": 2 * COST,
                   "origin": "measured", "low_ms": 2 * COST, "high_ms": 3 * COST,
                   "slack_ms": 2 * COST - n["price_ms"]}  # fmt: skip
            rejected.append(one | ({"composite": "dnnl.any"} if other == "dnnl" else {}))
        share[backend]["regions"] += 1
        share[backend]["operators"] += size
        share[backend]["estimate_ms"] += COST
        k += size
    total = COST * len(regions)
    return {
        "collage_plan": 3,
        "module": {
            "name": "large",
            "hash": "5e1f",
            "functions": [{"name": "main", "nodes": count + 1, "operators": count}],
        },
        "level": "operator",
        "environment": {"target": "llvm", "device": "a processor", "tvm": "0.19.0", "threads": 2, "options": "O3"},
        "backends": list(share.values()),
        "estimate": {"total_ms": total, "bound_ms": total, "gap_ms": 0, "optimal": True},
        "regions": regions,
        "candidates": {"proposed": len(regions) + len(rejected), "free": 0, "distinct": 4, "given": 2, "stored": 0,
                       "measured": 2, "bounded": 0, "failed": 0, "rejected": rejected},
    }  # fmt: skip
