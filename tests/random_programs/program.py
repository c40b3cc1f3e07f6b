# SPDX-License-Identifier: Apache-2.0
"""A random program: ``generate(seed)`` gives the same one each time."""

from dataclasses import dataclass, field

import numpy as np
from tvm import relay

from . import elementwise, idioms, layers, movement, norms, quantised, reductions, scopes, selections
from .pool import MAKERS, Pool

FAMILIES = (elementwise, idioms, layers, movement, norms, quantised, reductions, selections)


@dataclass
class Program:
    """A typed module and inputs of main, in the order of its parameters."""

    seed: int
    module: object
    inputs: list
    made: list = field(default_factory=list)

    @property
    def scoped(self):
        return scopes.scoped(self.module)


# Which programs have bytes in them: those of seeds that leave this rest by the first of the two.
BYTES = (20, 13)


def names(of_bytes=False):
    """What programs are made of, in alphabetical order; of_bytes: what only those with bytes in them are made of."""
    return sorted(name for name, (_, weight) in MAKERS.items() if of_bytes == (weight == 0))


def generate(seed):
    """The program of a seed. Programs of successive seeds go through all makers one by one, those with bytes in them
    through the makers of bytes; the rest is chance."""
    way = scopes.WAYS[seed // 20 % len(scopes.WAYS)] if seed % 20 == 11 else None
    pool = Pool([7, seed], empty=seed % 16 == 5, scoped=bool(way))
    if seed % 29 == 3:
        pool.dtype = "float64"
    for _ in range(pool.integer(1, 3)):
        pool.input(low=-2.0, high=2.0)
    if pool.empty:
        pool.input([0 if pool.chance(0.5) else 3, 0, 4][: pool.integer(1, 3)])
    known, weights = names(), [MAKERS[name][1] for name in names()]
    first = known[seed % len(known)]
    if seed % BYTES[0] == BYTES[1]:
        own = names(of_bytes=True)
        first = own[seed // BYTES[0] % len(own)]
        known, weights = known + own, weights + [sum(weights) / 8] * len(own)
    weights = np.array(weights)
    steps = pool.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 12, 20))
    at = pool.integer(0, steps)
    for i in range(steps):
        name = first if i == steps // 2 else known[int(pool.random.choice(len(known), p=weights / weights.sum()))]
        MAKERS[name][0](pool, name)
        if way and i == at:
            scopes.add(pool, way)
        if len(pool.made) >= 40:
            break
    if way and at >= steps:
        scopes.add(pool, way)
    return Program(seed, finished(pool), [array for _, array in pool.parameters], list(pool.made))


def finished(pool):
    """Main: what nobody reads is a result, and now and then something else, too."""
    exits = unread(pool)
    if pool.chance(0.25):
        exits.append(pool.choice(pool.values))  # maybe a parameter, a constant, or an exit once more
    if len(exits) > 6:
        exits = joined(pool, exits)
    pool.random.shuffle(exits)
    body = exits[0].expr if len(exits) == 1 and pool.chance(0.8) else relay.Tuple([v.expr for v in exits])
    return scopes.typed(relay.Function([var for var, _ in pool.parameters], body))


def unread(pool):
    """The values that no other is made of; one at least."""
    read = set()
    everything = relay.Tuple([v.expr for v in pool.values])

    def visit(node):
        if isinstance(node, relay.Call):
            children = node.args
        elif isinstance(node, relay.Tuple):
            children = () if node.same_as(everything) else node.fields
        elif isinstance(node, relay.TupleGetItem):
            children = (node.tuple_value,)
        elif isinstance(node, relay.Let):
            children = (node.value, node.body)
        elif isinstance(node, relay.If):
            children = (node.cond, node.true_branch, node.false_branch)
        else:
            children = ()
        read.update(child.handle.value for child in children)

    relay.analysis.post_order_visit(everything, visit)
    exits = [v for v in pool.values if v.expr.handle.value not in read]
    exits = [v for v in exits if not isinstance(v.expr, relay.Var | relay.Constant)]
    return exits or pool.values[-1:]


def joined(pool, exits):
    """Fewer results: those of one type are added or joined."""
    kept = exits[:6]
    for value in exits[6:]:
        alike = [i for i, v in enumerate(kept) if v.shape == value.shape and v.dtype == value.dtype and v.floating]
        if alike:
            i = alike[0]
            kept[i] = pool.aside("add", relay.add, kept[i], value, low=-1e9, high=1e9, exact=False)
        else:
            kept.append(value)
    return kept
