# SPDX-License-Identifier: Apache-2.0
"""Where threads may run is the user's business: the runtime keeps its own workers off the caller's processor, and
takes back nothing that anybody sets for them.
"""

import os

import placed
import pytest
from conftest import TREE, run_python

# Prepares a model and names the threads: those that were here before (foreign ones among them), the workers that a
# run brings, and the runtime's watch.
PROGRAM = """
import json, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import placed

foreign = threading.Thread(target=threading.Event().wait, daemon=True)
foreign.start()
import collage
executor = collage.load(sys.argv[2])
x = np.ones((64, 256), "float32")

def threads():
    return {int(task) for task in os.listdir("/proc/self/task")}

def masks(of):
    return {task: sorted(os.sched_getaffinity(task)) for task in of if os.path.exists(f"/proc/self/task/{task}")}

def run(times=30):
    for _ in range(times):
        placed.run(executor, x)

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

before = threads()
all_of_them = sorted(os.sched_getaffinity(0))
until(lambda: run() or threads() - before)
run(300)
new = threads() - before
"""


@pytest.fixture(scope="module")
def model(collage_library, tmp_path_factory):
    """A model whose loops run on two threads."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor: nobody can be moved")
    import numpy as np
    import tvm
    from tvm import relay

    weight = relay.const(np.ones((512, 256), "float32"))
    dense = relay.exp(relay.nn.dense(relay.var("x", shape=(64, 256)), weight))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(dense))
    return placed.export_to(tmp_path_factory.mktemp("affinity") / "model.so", module, threads=2)


def told(program, model):
    return run_python(PROGRAM + program, TREE / "tests", model)


def test_only_workers_are_moved_and_they_are_given_back_what_they_had(model):
    report = told(
        """
busy = masks(before)
until(lambda: all(mask == all_of_them for mask in masks(threads()).values()))
print(json.dumps({"all": all_of_them, "foreign": list(busy.values()), "new": len(new)}))
""",
        model,
    )
    assert report["new"] >= 1
    assert all(mask == report["all"] for mask in report["foreign"])


@pytest.mark.parametrize("which", [0, 1])
def test_what_the_user_sets_for_all_threads_stays(model, which):
    """One processor of two, whichever it is: it may be the very one that the worker was left with."""
    report = told(
        f"""
only, other = all_of_them[{which}], all_of_them[1 - {which}]
for round in range(2):
    os.sched_setaffinity(0, {{other}})  # so that the worker is left with `only`
    run(300)
    for task in threads():
        os.sched_setaffinity(task, {{only}})
    run(300)
    here = masks(threads())
    time.sleep(1.2)
    after = masks(threads())
    run(300)
    print(json.dumps([here, after, masks(threads()), only]))
    for task in threads():
        os.sched_setaffinity(task, all_of_them)
""",
        model,
    )
    *seen, only = report
    for masks in seen:
        assert all(mask == [only] for mask in masks.values()), masks


def test_what_the_user_sets_for_a_worker_stays(model):
    """Each worker by itself, to each of the processors, while the caller goes on."""
    report = told(
        """
os.sched_setaffinity(0, {all_of_them[0]})  # the caller stays where it is, and workers keep off
run(300)
wrong = []
for task in new:
    if not os.path.exists(f"/proc/self/task/{task}"):
        continue
    os.sched_setaffinity(task, {all_of_them[0]})
    for where in all_of_them[1], all_of_them[0]:
        os.sched_setaffinity(0, {where})
        run(300)
    time.sleep(1.2)
    run(300)
    if os.sched_getaffinity(task) != {all_of_them[0]}:
        wrong.append([task, sorted(os.sched_getaffinity(task))])
print(json.dumps(wrong))
""",
        model,
    )
    assert report == []


def test_a_child_does_not_move_its_parents_threads(model):
    report = told(
        """
until(lambda: all(mask == all_of_them for mask in masks(threads()).values()))
for task in new & threads():
    os.sched_setaffinity(task, {all_of_them[0]})
kept = masks(new & threads())
child = os.fork()
if child == 0:
    # oneTBB has no threads here; a loop of one thread's share goes through the arena all the same.
    import tvm
    os.environ["COLLAGE_NUM_THREADS"] = "1"
    for cpu in all_of_them * 3:
        os.sched_setaffinity(0, {cpu})
        tvm.get_global_func("collage.runtime.SetNumThreads")(1)
        placed.run(executor, x)
        time.sleep(0.01)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps([list(kept.values()), list(masks(kept).values())]))
""",
        model,
    )
    assert report[0] == report[1]
