# SPDX-License-Identifier: Apache-2.0
"""Random Relay programs, made from a seed, and what must hold for each of them.

``program.generate(seed)`` makes one (``pool`` is what makers draw from; the makers stand in families:
elementwise, movement, reductions, layers, norms, idioms, scopes). ``placing`` draws backends, costs and
options for it and holds the plan to what is promised. ``running`` builds several at once and compares them
with plain TVM. ``shrink`` makes one that fails smaller. ``python -m random_programs --seed N`` (in tests/)
does all of it for one seed.
"""
