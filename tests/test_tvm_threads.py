# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for threads of TVM's own pool that look for work.

They do so a number of times, giving their processor away each time, and do not hear before that they are to
end: on a busy machine that takes minutes. Here the number is so high that it does on an idle one, and who
waits for such a thread is stopped by the time limit.
"""

import pytest
import tvm
from collage import export
from conftest import PACKAGE, run_python
from tvm import relay

LOOKS = str(2**31 - 1)
BUSY = {"TVM_THREAD_POOL_SPIN_COUNT": LOOKS, "TVM_NUM_THREADS": "2"}

PROFILE = """
import json, os, sys
import numpy as np
from collage import library, profile
library.load_plugin(library.plugin_path("runtime"))
found = profile.profile(sys.argv[1], {"x": np.ones((4, 32), "float32")}, rounds=2)
print(json.dumps([found["names"], os.environ.get("TVM_THREAD_POOL_SPIN_COUNT")]), flush=True)
"""

# A command for whose work TVM makes a pool: what it folds runs there.
HOST = """
import json, os
import numpy as np
import tvm
from collage import host
from tvm import relay

def work(*arguments):
    x = relay.const(np.ones((64, 512), "float32"))
    module = tvm.IRModule.from_expr(relay.Function([], relay.nn.relu(relay.add(x, x))))
    return int(not isinstance(relay.transform.FoldConstant()(module)["main"].body, relay.Constant))

host.library.load()
tvm.register_func("collage.Main", work, override=True)
code = host.main([])
print(json.dumps([code, os.environ.get("TVM_THREAD_POOL_SPIN_COUNT")]), flush=True)
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """An exported model whose loops run on oneTBB's threads."""
    x = relay.var("x", shape=(4, 32), dtype="float32")
    path = tmp_path_factory.mktemp("network") / "network.so"
    factory = export.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    export.write(factory, path, [PACKAGE / "lib" / "libcollage_runtime.so"], 2)
    return path


def test_a_network_is_profiled(network):
    (name,), looks = run_python(PROFILE, network, timeout=100, **BUSY)
    assert "relu" in name
    assert looks == LOOKS, "what is started later has the environment as it was"


def test_a_command_ends(collage_library):
    assert run_python(HOST, timeout=100, **BUSY) == [0, LOOKS]
