# SPDX-License-Identifier: Apache-2.0
"""Random programs on random backends at random costs: results are plain TVM's, plans are proven and can be
replayed.

`python -m random_programs --seed N --shrink`, in tests/, does one again and makes it smaller.
"""

import json
import subprocess
from pathlib import Path

import numpy as np
import placed
import pytest
import tvm
from conftest import PACKAGE, environment, run_python
from random_programs import __main__ as single
from random_programs import blocks, movement, placing, program, running, scopes, shrink
from random_programs.pool import MAKERS, Value
from tvm import relay

# 300 programs in each run of the tests, 10,000 in the long ones.
SHORT = [range(a, a + 25) for a in range(0, 300, 25)]
LONG = [range(a, min(a + 250, 10_000)) for a in range(300, 10_000, 250)]


def name(seeds):
    return f"{seeds.start}-{seeds.stop - 1}"


def backends():
    """All backends that are registered, usable or not, but for TVM."""
    told = subprocess.run(
        [str(PACKAGE / "bin" / "collage"), "backends", "--json"],
        capture_output=True, text=True, timeout=120, env=environment(),
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return [b["name"] for b in json.loads(told.stdout)["backends"] if not b["takes_anything"]]


def test_every_operator_of_every_pattern_is_made(collage_library):
    import collage

    collage.library.load()
    ask = tvm.get_global_func("collage.backend.operators")
    missing = {backend: sorted({str(op) for op in ask(backend)} - set(MAKERS)) for backend in backends()}
    assert not any(missing.values()), f"the generator never makes {missing}"
    assert sum(len(ask(backend)) for backend in missing) > 300


def test_a_maker_makes_what_it_is_called():
    """What is said to be made stands in the program: each maker, under seeds that have it in their middle."""
    known = program.names()
    for at in range(0, len(known), 3):
        made = program.generate(at)
        for seed in range(at + len(known), at + 20 * len(known), len(known)):
            if known[at] in made.made:
                break
            made = program.generate(seed)
        assert known[at] in made.made
        if known[at] in tvm.ir.Op.list_op_names():
            assert known[at] in {
                call.op.name for call in shrink.operators(made.module) if isinstance(call.op, tvm.ir.Op)
            }


def test_programs_with_bytes_have_what_networks_that_come_quantised_have():
    divisor, rest = program.BYTES
    made = [program.generate(seed) for seed in range(rest, 60 * divisor, divisor)]
    for wanted in program.names(of_bytes=True):
        assert sum(wanted in one.made for one in made) > 20
    followed = {"nn.dense": 0, "nn.conv2d": 0}
    for one in made:
        for call in shrink.operators(one.module):
            if isinstance(call.op, tvm.ir.Op) and call.op.name in followed:
                weight = call.args[1]
                followed[call.op.name] += isinstance(weight, relay.Call) and weight.op.name == "qnn.dequantize"
    assert min(followed.values()) > 3, followed


@pytest.mark.parametrize("shape", [(0,), (9, 0), (3, 0, 4)], ids=str)
def test_a_tensor_without_elements_has_another_shape(shape):
    value = Value(relay.var("x", shape=shape), shape, "float32", 0.0, 1.0, False)
    for build, before in ((relay.reshape, False), (relay.reverse_reshape, True)):
        wanted = movement.new_shape(None, value, before)
        assert wanted != shape
        made = scopes.typed(relay.Function([value.expr], build(value.expr, wanted)))
        assert tuple(made["main"].body.checked_type.shape) == wanted


AGAIN = """
import json, sys, zlib
import tvm
from random_programs import program
found = [program.generate(seed) for seed in (5, 11, 31, 51)]
hashes = [tvm.ir.structural_hash(p.module, True) for p in found]
print(json.dumps([[h, zlib.crc32(b"".join(map(bytes, p.inputs)))] for h, p in zip(hashes, found)]))
"""


def test_a_seed_is_a_program():
    """The same in every process."""
    folder = Path(__file__).parent
    one, two = (run_python(AGAIN, PYTHONPATH=f"{PACKAGE.parent}:{folder}", PYTHONHASHSEED=seed) for seed in (1, 2))
    assert one == two
    assert len({tuple(each) for each in one}) == len(one)


def checked(seeds, folder):
    usable = placed.usable()
    if not usable:
        pytest.skip("no backend beside TVM can be used here")
    report = blocks.run(seeds, usable, folder)
    if report.failures:
        pytest.fail(explained(report, usable), pytrace=False)
    assert report.programs == len(seeds)
    assert report.hybrid > 0.4 * len(seeds)
    # Few may need the look at how far plain TVM itself moves.
    assert len(report.moved) <= 0.06 * len(seeds)
    # Of each one is known in some thousand.
    assert len(report.wrong_in_tvm) <= 1, report.wrong_in_tvm
    assert len(report.not_in_tvm) <= 1, report.not_in_tvm
    assert len(report.only_together) <= 1, report.only_together


def explained(report, usable):
    """What failed, and the first failure made smaller."""
    lines = [f"seed {seed}: {what}" for seed, what in report.failures]
    seed, what = report.failures[0]
    one, setting = program.generate(seed), placing.setting(seed, usable)
    if single.attempt(one, setting):
        small = shrink.shrunk(one, lambda p: single.kind(single.attempt(p, setting)) == single.kind(what), tries=60)
        lines += [f"seed {seed} is, made smaller:", str(small.module), single.attempt(small, setting)]
    lines.append(f"(cd tests && ../.venv/bin/python -m random_programs --seed {seed} --shrink)")
    return "\n".join(lines)


@pytest.mark.heavy
@pytest.mark.parametrize("seeds", SHORT, ids=name)
def test_programs(collage_library, seeds, tmp_path):
    checked(seeds, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seeds", LONG, ids=name)
def test_many_programs(collage_library, seeds, tmp_path):
    checked(seeds, tmp_path)


def test_what_plain_tvm_cannot_build_is_no_failure(collage_library, tmp_path, monkeypatch):
    """TVM divides by the extents of tensors without elements that are concatenated; it is counted."""
    x = relay.var("x", shape=(0, 0, 4))
    module = scopes.typed(relay.Function([x], relay.asinh(relay.concatenate([x, x], 0))))
    one = program.Program(7, module, [np.zeros((0, 0, 4), "float32")])
    monkeypatch.setattr(program, "generate", lambda seed: one)
    report = blocks.run([7], placed.usable(), tmp_path)
    assert (report.not_in_tvm, report.failures) == ([7], [])


def hybrid_program(tmp_path):
    """A program that is placed on two backends by cost."""
    usable = placed.usable()
    if not usable:
        pytest.skip("no backend beside TVM can be used here")
    for seed in range(200):
        setting = placing.setting(seed, usable)
        if setting.only:
            continue
        done = placing.place(program.generate(seed), setting, tmp_path)
        if not done.program.scoped and len({r["backend"] for r in done.plan["regions"] or []}) > 1:
            return done
    raise AssertionError("no program is placed on two backends")


def test_the_checks_can_fail(collage_library, tmp_path):
    """A wrong tail, a wrong cost and a swapped region are seen."""
    done = hybrid_program(tmp_path)
    wanted = [np.linspace(-1, 1, 17, dtype="float32"), np.arange(5, dtype="int32")]
    for result, change in ((0, 1e-3), (1, 1)):
        got = [array.copy() for array in wanted]
        assert running.excess(got, wanted) == ""
        got[result][-1] += change
        assert "differs in 1 of" in running.excess(got, wanted)
    infinite = [np.full(3, np.inf, "float32")]
    assert "not finite" in running.excess(infinite, infinite)

    verify = tvm.get_global_func("collage.plan.verify")
    verify(json.dumps(done.plan))
    dearer = json.loads(json.dumps(done.plan))
    for entry in (dearer["regions"][0], dearer["regions"][0]["candidates"][0]):
        entry["estimate_ms"] += 1
    dearer["estimate"]["total_ms"] += 1
    with pytest.raises(ValueError, match="plan"):
        verify(json.dumps(dearer))

    swapped = json.loads(json.dumps(done.plan))
    own = next(r for r in swapped["regions"] if r["backend"] == "tvm")
    other = next(r for r in swapped["regions"] if r["backend"] != "tvm")
    own["candidates"], other["candidates"] = other["candidates"], own["candidates"]
    with pytest.raises((placing.Broken, ValueError)):
        placing.replayed(done.plain, (done.hybrid, json.dumps(swapped)))


def test_a_wrong_region_is_found_and_made_smaller(collage_library, tmp_path, monkeypatch):
    """Where hybrids compute something else than they should, the program comes back with little but that."""
    done = hybrid_program(tmp_path)
    right = running.execute

    def wrong(modules, inputs, times=1, full=False):
        outputs, again = right(modules, inputs, times, full)
        if times > 1:  # plain TVM's, then the hybrids'
            hybrids = outputs[len(outputs) // 2 :]
            for array in (array for one in hybrids for array in one if array.dtype == "float32" and array.size):
                array.flat[-1] += 1.0
        return outputs, again

    monkeypatch.setattr(running, "execute", wrong)
    what = single.attempt(done.program, done.setting)
    assert "differs" in what
    small = shrink.shrunk(done.program, lambda p: "differs" in single.attempt(p, done.setting), tries=40)
    assert len(shrink.operators(small.module)) <= len(shrink.operators(done.program.module))
    assert "differs" in single.attempt(small, done.setting)
