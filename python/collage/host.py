# SPDX-License-Identifier: Apache-2.0
"""The process that holds TVM's compiler for the command line: ``python -m collage.host ARGS``.

Go decides, and calls back for what only Python has: reading a model (TVM's front ends) and building one
(relay.build), and finding out where TVM and another engine differ. These are registered here as packed
functions, JSON in, module and JSON out; errors are Python exceptions, which Go shows as one line. Modules named
in COLLAGE_REGISTER (separated by commas) are imported before: they register the user's own backends.
"""

import json
import logging
import os
import sys

import tvm

from . import difference, export, frontends, library, registration, tvm_threads


def load_model(spec_json):
    """collage.host.load_model: what frontends.load takes, by name, as JSON -> [IRModule, info JSON].

    With "ones", names of inputs that are 1 everywhere when another engine is asked about the model.
    """
    spec = json.loads(spec_json)
    given = (spec.get(name) for name in ("params", "input_shapes", "format", "input_values", "dynamic"))
    model = frontends.load(spec["model"], *given)
    info = model.info()
    info["question"] = model.question(spec.get("seed") or 0, spec.get("ones") or ())
    info["parameter_bytes"] = frontends.parameter_bytes(model.module)
    return [model.module, json.dumps(info)]


def first_difference(spec_json):
    """collage.host.first_difference: what load_model takes, and "seed" -> what difference.first gives, as JSON."""
    spec = json.loads(spec_json)
    given = spec.get("input_shapes"), spec.get("input_values"), spec.get("seed") or 0, spec.get("format") or "onnx"
    return json.dumps(difference.first(spec["model"], *given))


def build(module, options_json):
    """collage.host.build: build a module and write it to options["out"]; returns what it wrote, as JSON."""
    options = json.loads(options_json)
    settings = (module, options.get("target"), options.get("opt_level"), options.get("disabled_passes"))
    if options.get("on_machine"):
        factory = export.build_for_machine(*settings, options.get("tuning_log"), options.get("tried"))
    else:
        factory = export.build(*settings, tuning_log=options.get("tuning_log"))
    size = export.write(factory, options["out"], options.get("plugins") or [], options.get("threads") or 0)
    return json.dumps({"path": options["out"], "bytes": size})


def register():
    """Register the packed functions; a second time replaces them by themselves."""
    tvm.register_func("collage.host.load_model", load_model, override=True)
    tvm.register_func("collage.host.build", build, override=True)
    tvm.register_func("collage.host.first_difference", first_difference, override=True)


def main(arguments):
    """Run the command line in this process; returns its exit code."""
    try:
        library.load()
    except library.LibraryError as error:
        print(f"collage: error: {error}", file=sys.stderr)
        return 2
    register()
    if names := [name for name in os.environ.get("COLLAGE_REGISTER", "").split(",") if name.strip()]:
        try:
            registration.import_named(names)
        except Exception as error:
            print(f"collage: error: COLLAGE_REGISTER={','.join(names)}: {error}", file=sys.stderr)
            return 2
    # TVM's advice to tune, or to lay out otherwise, is not an event of this program.
    for name in ("autotvm", "strategy"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        # Workers and peers are Go's to start, from the environment as it was.
        with tvm_threads.sleeping():
            return int(tvm.get_global_func("collage.Main")(*arguments))
    except KeyboardInterrupt:
        print("collage: error: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
