# SPDX-License-Identifier: Apache-2.0
"""Backends, costs and options for a program, drawn from its seed, and what a plan must keep.

Nothing is measured: costs are drawn from a hash of the seed and the candidate's key. They are given to the
placement twice, by a function and as a store file that is complete, so that both ways are gone.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field

import numpy as np
import placed
import tvm

TAKEN = "2026-01-01T00:00:00Z"
NEVER = "2126-01-01T00:00:00Z"


class Broken(AssertionError):  # noqa: N818
    """Something that must hold for every program does not."""


def must(holds, what):
    if not holds:
        raise Broken(what)


@dataclass
class Setting:
    """How a program is placed."""

    seed: int
    backends: list
    only: str = ""
    regime: str = "flat"
    overhead: float | None = 0.0
    normalised: bool = True
    exhaustive: bool = False
    exact: bool = False
    rules: dict = field(default_factory=dict)

    def configuration(self, **options):
        """The JSON that collage.partition takes."""
        import collage

        given = {"backends": self.backends, "threads": placed.THREADS, "samples": 1, "exact": self.exact, **options}
        if self.only:
            given["only"] = self.only
            given.pop("exhaustive", None)
        told = json.loads(collage.transform.configuration(**given, **({} if self.only else self.rules)))
        if self.overhead is not None and not self.only:
            told["overhead_ms"] = self.overhead
        return json.dumps(told)

    def cost(self, key):
        """What a candidate costs in milliseconds, by its key; infinity where it cannot be used."""
        digest = hashlib.blake2b(
            f"{self.seed}\0{key['structure']}\0{key['backend']}\0{key.get('composite', '')}".encode(),
            digest_size=16,
        ).digest()
        one, two = (int.from_bytes(digest[i : i + 8], "little") / 2**64 for i in (0, 8))
        own = key["backend"] == "tvm"
        if (two < 0.05 and not own) or two < 0.01:
            return math.inf
        if self.regime == "few":  # ties
            return 0.25 * (1 + int(one * 3))
        if self.regime == "nothing":
            return 0.0 if one < 0.3 else one
        ms = round(math.exp(one * 4 - 2), 7)
        if self.regime == "libraries" and own:
            ms *= 64
        if self.regime == "tvm" and not own:
            ms *= 2
        if self.regime == "favourite" and key["backend"] != self.backends[-1]:
            ms *= 64
        return round(ms, 7)


REGIMES = ("flat", "libraries", "libraries", "favourite", "favourite", "tvm", "few", "nothing")


def setting(seed, usable):
    """The setting of a seed. usable: the backends beside TVM that can be used."""
    random = np.random.default_rng([11, seed])
    chosen = [name for name in usable if random.random() < 0.45] or [usable[int(random.integers(len(usable)))]]
    random.shuffle(chosen)
    drawn = Setting(seed, ["tvm", *chosen])
    if random.random() < 0.2:
        drawn.only = chosen[0]
        drawn.backends = ["tvm", chosen[0]]
    drawn.regime = REGIMES[int(random.integers(len(REGIMES)))]
    drawn.overhead = (0.0, None, 0.125)[int(random.integers(3))]
    drawn.normalised = bool(random.random() < 0.8)
    drawn.exhaustive = bool(random.random() < 0.5)
    drawn.exact = bool(np.random.default_rng([17, seed]).random() < 0.2)
    return drawn


def with_rules(setting, plan):
    """Now and then some pins and prohibitions, which need names that the plan has."""
    random = np.random.default_rng([13, setting.seed])
    if setting.only or random.random() > 0.25:
        return {}
    candidates = [
        (region, one, node) for region in plan["regions"] or [] for one in region["candidates"] for node in one["nodes"]
    ]
    functions = {function["name"] for function in plan["module"]["functions"]}
    nodes = [at for at in candidates if "(" not in at[2]["operator"]] if functions == {"main"} else []
    if not nodes:
        return {}
    rules = {}
    for _ in range(int(random.integers(1, 3))):
        region, one, node = nodes[int(random.integers(len(nodes)))]
        what = f"%{node['index']}" if random.random() < 0.5 else node["operator"]
        backend = setting.backends[int(random.integers(len(setting.backends)))]
        if "kernel" in one and random.random() < 0.5:
            backend = f"{one.get('backend', region['backend'])}.{one['kernel']}"
        rules.setdefault("pin" if random.random() < 0.5 else "forbid", []).append(f"{what}={backend}")
    return rules


def regions_of(plan):
    """{(function, node): (backend, kernel)}."""
    return {
        (region["function"], node["index"]): (one.get("backend", region["backend"]), one.get("kernel", ""))
        for region in plan["regions"] or []
        for one in region["candidates"]
        for node in one["nodes"]
    }


def kept(plan, rules):
    """Hold a plan against its rules."""
    backends = regions_of(plan)
    operators = {
        (region["function"], node["index"]): node["operator"]
        for region in plan["regions"] or []
        for one in region["candidates"]
        for node in one["nodes"]
    }
    for kind, texts in rules.items():
        for text in texts:
            what, _, wanted = text.rpartition("=")
            backend, _, kernel = wanted.partition(".")
            for place, operator in operators.items():
                if what in (operator, f"%{place[1]}"):
                    at, by = backends[place]
                    must(
                        (at == backend and kernel in ("", by)) == (kind == "pin"),
                        f"{kind} {text}: %{place[1]} is on {backends[place]}",
                    )


def exactly(plan):
    """Nothing that a plan placed associates its sums otherwise."""
    for region in plan["regions"] or []:
        for one in region["candidates"]:
            must(not one.get("reassociates"), f"exact has {one.get('composite')}")


def write_store(path, setting, keys):
    """A store that has a cost under each of the keys."""
    with open(path, "w", encoding="utf-8") as file:
        for text in sorted(keys):
            record = {"collage_cost": 1, "key": json.loads(text), "origin": "measured", "taken": TAKEN}
            ms = setting.cost(record["key"])
            if math.isinf(ms):
                record["failure"] = {"phase": "check", "kind": "wrong-result", "detail": "drawn"}
                record["expires"] = NEVER
            else:
                record["samples_ms"] = [ms]
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


@dataclass
class Placed:
    """A program as it was placed."""

    program: object
    setting: Setting
    plain: object
    hybrid: object
    plan: dict


def place(program, setting, folder):
    """Place a program and hold the plan to all that is promised. Raises Broken."""
    import collage

    # By what parts take alone: of networks that are run nobody knows beforehand which is the fastest.
    ask, verify = (tvm.get_global_func(f"collage.{name}") for name in ("place", "plan.verify"))
    module = program.module
    if setting.normalised:
        module = collage.transform.Normalise()(module)
    if setting.only:
        once, again = (ask(module, setting.configuration()) for _ in range(2))
        same_text(once[1], again[1], "placing all on one backend twice")
        replayed(module, once)
        alone = json.loads(str(once[1]))
        if setting.exact:
            exactly(alone)
        return Placed(program, setting, module, once[0], alone)

    keys = set()

    def give(text):
        keys.add(str(text))
        return setting.cost(json.loads(text))

    lazily = ask(module, setting.configuration(), give)
    chosen = ask(module, setting.configuration(exhaustive=True), give)
    total(lazily[1], chosen[1])
    setting.rules = with_rules(setting, json.loads(str(chosen[1])))
    if setting.rules:
        try:
            chosen = ask(module, setting.configuration(exhaustive=True), give)
        except (ValueError, tvm.TVMError) as error:
            expected = isinstance(error, ValueError) and any(
                w in str(error) for w in ("cannot be kept", "contradicts", "ruled out by")
            )
            must(expected, f"rules {setting.rules}: {error}")
            setting.rules = {}
    plan = json.loads(str(chosen[1]))
    proven(plan, json.loads(str(verify(str(chosen[1])))))
    kept(plan, setting.rules)
    if setting.exact:
        exactly(plan)

    store = folder / f"{setting.seed}.jsonl"
    write_store(store, setting, keys)
    before = store.read_bytes()
    one = setting.configuration(exhaustive=True, store=str(store))
    first, second = ask(module, one), ask(module, one)
    must(store.read_bytes() == before, "something was measured")
    store.unlink()
    same_text(first[1], second[1], "placing twice by the store")
    if setting.overhead is not None:  # else it is none for costs that are given
        must(
            tvm.ir.structural_equal(first[0], chosen[0]),
            "costs from the store place it otherwise than the same costs given",
        )
        must(regions_of(json.loads(str(first[1]))) == regions_of(plan), "the regions of the two plans differ")
    proven(json.loads(str(first[1])), json.loads(str(verify(str(first[1])))))
    replayed(module, first)
    return Placed(program, setting, module, first[0], json.loads(str(first[1])))


def proven(plan, proof):
    """Nothing is cheaper. Prices alone prove it where no candidate has several exits; where one has, a search may have
    had to close what prices leave open, and then the plan says so.
    """
    estimate = plan["estimate"]
    must(estimate["gap_ms"] == 0, f"the search left a gap: {estimate}")
    must(
        estimate["optimal"] or has_several_exits(plan),
        f"no search was needed, and the prices prove nothing: {estimate}",
    )
    must(0 <= proof["gap_ms"] <= (0 if estimate["optimal"] else 0.01 * proof["ms"]), f"the proof leaves a gap: {proof}")


def has_several_exits(plan):
    """Whether a candidate of a plan falls into several subtrees of the post-dominator tree."""
    parents = {}
    for region in plan["regions"]:
        for candidate in region["candidates"]:
            parents |= {(region["function"], n["index"]): n["post_dominator"] for n in candidate["nodes"]}
    sets = [
        (region["function"], {n["index"] for n in candidate["nodes"]})
        for region in plan["regions"]
        for candidate in region["candidates"]
    ]
    sets += [(one["function"], set(one["nodes"])) for one in plan["candidates"]["rejected"]]
    return any(len([v for v in nodes if parents.get((name, v)) not in nodes]) > 1 for name, nodes in sets)


def same_text(one, two, what):
    must(str(one) == str(two), f"{what} gives two plans")


def total(lazily, everything):
    """Both end at one cost, where both had the same candidates: TVM proposes further ones by what was
    learnt."""
    plans = [json.loads(str(text)) for text in (lazily, everything)]
    if len({plan["candidates"]["proposed"] for plan in plans}) > 1:
        return
    one, two = (plan["estimate"]["total_ms"] for plan in plans)
    must(
        math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-6),
        f"measuring lazily ends at {one} ms, measuring everything at {two} ms",
    )


def replayed(module, result):
    import collage

    again = collage.transform.Replay(str(result[1]), verify=False)(module)
    must(tvm.ir.structural_equal(again, result[0]), "replaying the plan gives another module")
