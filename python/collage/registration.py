# SPDX-License-Identifier: Apache-2.0
"""Register a backend from Python: a library of kernels, an engine, or what TVM has a pattern table for.

    @collage.backend(name="mylib", patterns=[("relu", is_op("nn.relu")(wildcard()))])
    def mylib(region):  # a collage.program.Program -> C statements, or a tvm.runtime.Module
        return "".join(f"my_relu({p.arguments[0]}, {p.results[0]});" for p in region.parts)

    collage.backend_from_tvm("coreml")  # pattern table and relay.ext.coreml of the TVM in this process

What is wrong with a registration is said at once, with the field's name. docs/add-a-backend.md is the
tutorial.
"""

import dataclasses
import hashlib
import importlib
import inspect
import json
import re
import sys

import tvm
from tvm.relay.dataflow_pattern import DFPattern

from . import errors, library, program, workerside

_KINDS = ("operator", "graph")
_registered = {}


@dataclasses.dataclass
class Probe:
    """What a backend's probe found: whether its library can be used here, which it is, and if not, why and
    what to do. ``version`` and ``features`` (what of the machine it uses) are part of the keys of stored
    costs.
    """

    usable: bool = True
    library: str = ""
    version: str = ""
    path: str = ""
    features: tuple = ()
    reason: str = ""
    remedy: str = ""


class RegistrationError(errors.InputError):
    """A field of a registration makes no sense: ``option`` is its name, ``backend`` the backend's."""


def backend(name, **fields):
    """Decorate the function that makes a backend's regions executable; ``fields`` are register_backend's.

    The function takes a region (``collage.program.Program``) and gives a ``tvm.runtime.Module`` with a
    function named ``region.symbol``, or a text: C statements that compute the region, in which each tensor is
    a pointer named like its ``str()``. It must stand at the top of a module or script: measuring workers
    import it.
    """
    if not isinstance(name, str):
        raise errors.CallError('collage.backend takes the backend\'s name: @collage.backend(name="mylib", ...)')

    def register(emit):
        register_backend(name, emit=emit, **fields)
        return emit

    return register


def register_backend(
    name,
    *,
    emit=None,
    kind="operator",
    patterns=(),
    rules=None,
    propose=None,
    compiler=None,
    description=None,
    probe=None,
    cost=None,
    border=None,
    pack=None,
    prelude="",
    libraries=(),
    bare=False,
    merges_regions=None,
    imports=(),
    override=False,
):
    """Make a backend known under ``name``, so that ``backends=["tvm", name]`` may place operators on it.

    emit: see ``backend``; None where TVM has relay.ext.<compiler> already. kind: "operator" (a kernel per
    pattern) or "graph" (an engine for a region; neighbouring candidates become one region, unless
    merges_regions says otherwise). patterns: a list of (name, tvm.relay.dataflow_pattern) or (name, pattern,
    predicate of the matched expression), most specific first, or the name of one of TVM's pattern tables.
    rules: {"operators": names, "style": "NoFusion", "TVMFusion" or "ArbitraryFusion", "max_depth": n}
    generates candidates; without a style regions for an engine. propose: a function of a dictionary (nodes
    with index, operator, inputs and type; what was learnt) that gives lists of node indices to run as one.
    compiler: the regions' Compiler attribute (default: name). probe: a function that gives a Probe, a
    version, or True or False. cost: a function of a region that gives milliseconds instead of measuring, or
    None to measure. border: a function of (shape, dtype) that gives the milliseconds it takes to bring a
    tensor to the backend, and away from it. pack: a function of (operator, argument, array) that gives the
    form in which a constant is stored. prelude: C that stands before the statements, as text or pathlib.Path.
    libraries: shared libraries, each with a SONAME, that exported models are linked with. bare: patterns'
    operators stand in the region without a Composite function around them. imports: modules that workers import
    first. override: replaces a backend of this name that was registered before.

    Raises RegistrationError (a ValueError) that names the field.
    """
    if workerside.active():
        return
    told = dict(locals())
    fields = _check(told)
    library.load()
    _install(fields)
    description_json = json.dumps(_description(fields))
    objects = [pattern for _, pattern, _ in fields["patterns"]]
    try:
        tvm.get_global_func("collage.backend.register")(description_json, objects, _answers(fields), bool(override))
    except BaseException as error:
        _forget(fields)
        if isinstance(error, ValueError):
            raise RegistrationError(str(error).splitlines()[0], backend=name) from None
        raise
    _registered[fields["name"]] = fields


def backend_from_tvm(name, *, table=None, bare=False, probe=None, imports=(), override=False, **fields):
    """Make a backend of what the TVM in this process has: the pattern table ``name``
    (tvm.relay.op.contrib.register_pattern_table) and the code generator relay.ext.<name>.

    Other arguments are register_backend's. The modules that the table's predicates stand in are imported by
    the measuring workers; a code generator that is registered elsewhere in Python needs ``imports``. Raises
    RegistrationError where the table or the code generator is missing.
    """
    if workerside.active():
        return
    compiler = fields.pop("compiler", name)
    patterns = table if table is not None else _pattern_table(name, name)
    predicates = [entry[2] for entry in patterns if len(entry) > 2 and callable(entry[2])]
    modules = dict.fromkeys(
        predicate.__module__ for predicate in predicates if not predicate.__module__.startswith(("tvm.", "__main__"))
    )
    register_backend(
        name,
        compiler=compiler,
        patterns=patterns,
        probe=probe,
        bare=bare,
        imports=[*imports, *modules],
        override=override,
        description=fields.pop("description", f"TVM's code generator for {name}"),
        **fields,
    )


def _fault(name, field, text):
    return RegistrationError(f"backend {name!r}: {field}: {text}", backend=name, option=field)


def _pattern_table(name, table):
    found = tvm.relay.op.contrib.get_pattern_table(table)
    if found is None:
        raise _fault(
            name,
            "patterns",
            f"TVM has no pattern table {table!r} in this process; import the module that registers it "
            "(tvm.relay.op.contrib.register_pattern_table)",
        )
    return found


def _check(told):
    """The fields in their final form; raises RegistrationError."""
    fields = dict(told)
    name = fields["name"]
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise _fault(name, "name", "is lower case letters, digits, '-' and '_', a letter first")
    if fields["kind"] not in _KINDS:
        raise _fault(name, "kind", f'{fields["kind"]!r} is neither "operator" nor "graph"')
    if fields["merges_regions"] is None:
        fields["merges_regions"] = fields["kind"] == "graph"
    fields["compiler"] = fields["compiler"] or name.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", fields["compiler"]):
        raise _fault(name, "compiler", f"{fields['compiler']!r} cannot be part of a symbol's name")
    for field in ("emit", "probe", "cost", "border", "pack", "propose"):
        if fields[field] is not None and not callable(fields[field]):
            raise _fault(name, field, f"is a {type(fields[field]).__name__} and not a function")
    fields["patterns"] = _check_patterns(name, fields["compiler"], fields["patterns"])
    if not fields["patterns"] and not fields["rules"] and not fields["propose"]:
        raise _fault(name, "patterns", "there are none, nor rules, nor propose: it could take nothing")
    if fields["rules"] is not None:
        _check_rules(name, fields["rules"])
    for path in fields["libraries"]:
        if not library.Path(path).is_file():
            raise _fault(name, "libraries", f"there is no file {path}")
    fields["libraries"] = [str(library.Path(path).resolve()) for path in fields["libraries"]]
    if isinstance(fields["prelude"], library.Path) and not fields["prelude"].is_file():
        raise _fault(name, "prelude", f"there is no file {fields['prelude']}")
    fields["imports"] = [fields["imports"]] if isinstance(fields["imports"], str) else list(fields["imports"])
    for field in ("emit", "pack"):
        try:
            workerside.reference(fields[field])
        except ValueError as error:
            raise _fault(name, field, str(error)) from None
    if fields["emit"] is not None and not inspect.signature(fields["emit"]).parameters:
        raise _fault(name, "emit", "takes no argument; it is called with the region")
    return fields


def _check_patterns(name, compiler, patterns):
    if isinstance(patterns, str):
        patterns = _pattern_table(name, patterns)
    if isinstance(patterns, DFPattern) or not isinstance(patterns, (list, tuple)):
        raise _fault(name, "patterns", "is a list of (name, pattern) or (name, pattern, predicate)")
    checked = []
    for place, entry in enumerate(patterns):
        field = f"patterns[{place}]"
        if not isinstance(entry, (list, tuple)) or len(entry) not in (2, 3):
            raise _fault(name, field, "is (name, pattern) or (name, pattern, predicate)")
        label, pattern, predicate = (*entry, None)[:3]
        if not isinstance(label, str) or not re.fullmatch(r"[A-Za-z_][\w.]*", label):
            raise _fault(name, field, f"the name {label!r} is not letters, digits, '_' and points")
        if not isinstance(pattern, DFPattern):
            raise _fault(name, field, f"a {type(pattern).__name__} is no pattern of tvm.relay.dataflow_pattern")
        if predicate is not None and not callable(predicate):
            raise _fault(name, field, f"the predicate is a {type(predicate).__name__} and not a function")
        checked.append((label if "." in label else f"{compiler}.{label}", pattern, predicate))
    return checked


def _check_rules(name, rules):
    unknown = set(rules) - {"operators", "style", "max_depth"}
    if unknown:
        raise _fault(name, "rules", f"{sorted(unknown)[0]!r} is none of operators, style and max_depth")
    for operator in rules.get("operators") or ():
        try:
            tvm.ir.Op.get(operator)
        except tvm.TVMError:
            raise _fault(name, "rules", f"TVM has no operator {operator!r}") from None


def _install(fields):
    """Register relay.ext.<compiler>, or see that it is there."""
    name, compiler = fields["name"], fields["compiler"]
    present = tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True) is not None
    mine = any(other["compiler"] == compiler and other["emit"] for other in _registered.values())
    if fields["emit"] is None:
        if not present:
            raise _fault(
                name,
                "emit",
                f"is missing, and the TVM in this process has no code generator relay.ext.{compiler}; pass a "
                "function that makes a region executable, or import what registers the code generator",
            )
        return
    if present and not mine:
        raise _fault(
            name,
            "compiler",
            f"the TVM in this process has relay.ext.{compiler} already; choose another compiler=, or leave emit out "
            "(collage.backend_from_tvm)",
        )
    if present and not fields["override"]:
        return  # the registry refuses the name
    tvm.register_func(
        f"relay.ext.{compiler}",
        workerside.code_generator(name, compiler, fields["emit"], fields["pack"], fields["prelude"]),
        override=True,
    )


def _forget(fields):
    """Take back what _install did where the registry refused."""
    before = next((o for o in _registered.values() if o["compiler"] == fields["compiler"]), None)
    if fields["emit"] is None or (before and not fields["override"]):
        return
    if before and before["emit"]:
        tvm.register_func(
            f"relay.ext.{before['compiler']}",
            workerside.code_generator(
                before["name"], before["compiler"], before["emit"], before["pack"], before["prelude"]
            ),
            override=True,
        )
    else:
        tvm._ffi.registry.remove_global_func(f"relay.ext.{fields['compiler']}")


def _description(fields):
    where = getattr(fields["emit"], "__module__", None)
    return {
        "name": fields["name"],
        "description": fields["description"]
        or f"registered from Python{f' ({where})' if where and where != '__main__' else ''}",
        "kind": fields["kind"],
        "compiler": fields["compiler"],
        "merges_regions": bool(fields["merges_regions"]),
        "composites": [label for label, _, _ in fields["patterns"]],
        "bare": bool(fields["bare"]),
        "rules": fields["rules"],
        "has": [what for what in ("probe", "cost", "border", "propose") if fields[what] is not None],
        "libraries": fields["libraries"],
        "source": _source(fields),
        "worker": workerside.setup(fields),
    }


def _source(fields):
    """A digest of the files in which the functions stand that make regions executable, and of the prelude; "" where
    there are none.
    """
    functions = [workerside.reference(fields[field]) for field in ("emit", "pack") if fields[field] is not None]
    if not functions:
        return ""
    prelude = fields["prelude"]
    texts = [prelude.read_bytes() if isinstance(prelude, library.Path) else prelude.encode()]
    for function in functions:
        texts += [function["name"].encode(), library.Path(function["path"]).read_bytes()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def _answers(fields):
    """The packed function that Go asks."""

    def accept(place, expression):
        predicate = fields["patterns"][int(place)][2]
        return predicate is None or bool(predicate(expression))

    def probe():
        found = fields["probe"]()
        if isinstance(found, bool):
            found = Probe(usable=found, reason="" if found else "its probe says no")
        elif isinstance(found, str):
            found = Probe(version=found)
        if not isinstance(found, Probe):
            raise _fault(fields["name"], "probe", f"gave a {type(found).__name__} and not a collage.Probe")
        found = dataclasses.asdict(found)
        found["library"] = found["library"] or fields["name"]
        return json.dumps(found)

    def cost(function, constants):
        names = [str(name) for name in constants]
        region = program.Program(tvm.ir.load_json(str(function)), fields["compiler"], names)
        milliseconds = fields["cost"](region)
        return None if milliseconds is None else float(milliseconds)

    def border(shape, dtype):
        return json.dumps([float(ms) for ms in fields["border"](tuple(int(d) for d in shape), str(dtype))])

    def propose(question):
        groups = fields["propose"](json.loads(str(question))) or []
        return json.dumps([[int(node) for node in group] for group in groups])

    table = {"accept": accept, "probe": probe, "cost": cost, "border": border, "propose": propose}
    return tvm.runtime.convert(lambda what, *arguments: table[str(what)](*arguments))


def import_named(names):
    """Import modules that register backends, from the working directory too; for the command line."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        importlib.import_module(name.strip())
