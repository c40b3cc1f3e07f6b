# SPDX-License-Identifier: Apache-2.0
"""Collage's passes as ``tvm.transform.Pass`` objects; made in Go, usable wherever TVM takes a pass."""

import json
import sys

import tvm

from . import library, target


def _list(backends):
    if isinstance(backends, str):
        backends = backends.split(",")
    return [name.strip() for name in backends if name.strip()]


def configuration(
    backends=None,
    target_string=None,
    store=None,
    threads=None,
    only=None,
    samples=None,
    opt_level=None,
    disabled_passes=None,
    retry_failures=None,
):
    """The options of CollagePartition as the JSON that Go reads; what is None is left out.

    A PassContext's ``collage.*`` options stand in for what is left out here.
    """
    options = {
        "backends": None if backends is None else _list(backends),
        "target": str(target_string) if target_string is not None else None,
        "store": None if store is None else str(store),
        "threads": threads,
        "only": only,
        "samples": samples,
        "opt_level": target.OPT_LEVEL if opt_level is None else opt_level,
        "disabled_passes": list(target.DISABLED_PASSES if disabled_passes is None else disabled_passes),
        "retry_failures": retry_failures,
        "python": sys.executable,
    }
    return json.dumps({key: value for key, value in options.items() if value is not None})


def CollagePartition(  # noqa: N802  (TVM's passes are named so)
    backends=None, target=None, store=None, threads=None, only=None, samples=None, opt_level=None,
    disabled_passes=None, retry_failures=None,
):  # fmt: skip
    """The pass that places a module's operators on backends by measured cost.

    backends: names, ["tvm", "dnnl"] by default. target: TVM's target string (default: this processor).
    store: the file of measured costs (default: the user's). threads: of the executable (default: as many as
    there are processors). only: a backend that gets all it can take, without measuring. samples: how many
    samples of each candidate. opt_level and disabled_passes: of the builds that are measured.

    The result is a ``tvm.transform.Pass``. Its module comes out with one function for each region of a
    backend other than TVM, attributes as PartitionGraph sets them; TVM's share stays in ``main``. Raises
    ValueError for options that make no sense, when the pass is made.
    """
    library.load()
    text = configuration(
        backends, target, store, threads, only, samples, opt_level, disabled_passes, retry_failures
    )
    return tvm.get_global_func("collage.transform.CollagePartition")(text)


def Normalise(disabled_passes=None):  # noqa: N802
    """The pass that brings a module into the form in which candidates are looked for.

    Types inferred, training-only operators removed, constants folded, scales folded into convolutions.
    """
    library.load()
    disabled = list(target.DISABLED_PASSES if disabled_passes is None else disabled_passes)
    return tvm.get_global_func("collage.transform.Normalise")(json.dumps({"disabled_passes": disabled}))
