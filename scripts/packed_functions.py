# SPDX-License-Identifier: Apache-2.0
"""Writes docs/packed-functions.md: every packed function collage.* with what the code says of it.

Of Go the constants that hold such names, with their comments; of C++ the registrations, with the comments in front; of
Python what is registered, with its docstring. tests/test_packed_functions.py holds the page against TVM's registry.
"""

import ast
import re
import textwrap
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
PAGE = TREE / "docs" / "packed-functions.md"
WIDTH = 120

HEAD = """# Packed functions

What Collage registers with TVM, for callers from any language that TVM has: `tvm.get_global_func(name)` in Python,
`TVMFuncGetGlobal` in C, `bridge.Global` in Go. `scripts/packed_functions.py` writes this page from the comments in the
code, whose words it uses: a Config, as JSON, is an object with the options of `docs/options.md` by their names; a plan,
as JSON, is the text of a plan file; modules are `IRModule`s unless it says otherwise. An error is TVM's last error, in
Python an exception (`docs/python.md`). Functions of Go and Python may be called from any thread.
"""

PARTS = {
    "Go": "libcollage registers these when it is loaded (`collage.library.load()`, or `collage_init` of the library).",
    "Python": "The package registers these where it is the host; Go calls them. They are no interface, and may change.",
    "C++": "The runtime plug-ins register these when they are loaded, with an executable or by itself.",
}


def _sources(pattern, *folders):
    for folder in folders:
        for path in sorted((TREE / folder).rglob(pattern)):
            if not path.name.endswith("_test.go") and "peers" not in path.parts:
                yield path


def _comment(lines, at):
    """The comment lines that end right in front of line ``at``, as one text."""
    begin = at
    while begin > 0 and lines[begin - 1].strip().startswith("//"):
        begin -= 1
    return " ".join(line.strip().removeprefix("//").strip() for line in lines[begin:at])


_CONSTANT = re.compile(r'^\s*(?:const )?(\w+)\s*= "(collage\.[\w.]+)"$')


def go():
    """{name: what it does} of Go's constants; those of functions that Python registers are left out."""
    found = {}
    for path in _sources("*.go", "bridge", "byoc", "pass", "cmd"):
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            match = _CONSTANT.match(line)
            if match is None or not re.search(r"Function$|Pass$|Table|Accepts$", match[1]):
                continue
            constant, name = match.groups()
            said = _comment(lines, at) or _comment(lines, at - 1)
            said = re.sub(
                rf"^{constant} (is )?(the packed function (behind [\w.]+ \(Python\): it|that) )?", "", said
            ).strip()
            found[name] = said
        for match in re.finditer(r"^//\t(collage\.bridge\.\w+)(\([^)]*\)(?: -> \w+)?) +(.*)$", path.read_text(), re.M):
            found[match[1]] = f"`{match[1]}{match[2]}` {match[3]}"
    for name in python():
        found.pop(name, None)
    return found


def python():
    """{name: docstring} of what Python registers."""
    found = {}
    docstrings, registered = {}, []
    for path in _sources("*.py", "python/collage"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                docstrings[path.stem, node.name] = ast.get_docstring(node) or ""
                for decorator in node.decorator_list:
                    if name := _registers(decorator):
                        found[name] = docstrings[path.stem, node.name]
            if isinstance(node, ast.Call) and len(node.args) == 2 and (name := _registers(node)):
                function = node.args[1]
                owner = function.value.id if isinstance(function, ast.Attribute) else path.stem
                registered.append((name, owner, getattr(function, "attr", getattr(function, "id", ""))))
    for name, owner, function in registered:
        found[name] = docstrings[owner, function]
    return {name: re.sub(rf"^{re.escape(name)}: ", "", " ".join(said.split())) for name, said in found.items()}


def _registers(node):
    """The collage.* name that a call of register_func registers."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_func"):
        return None
    name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
    return name if name.startswith("collage.") else None


def cpp():
    """{name: what it does} of the registrations in the runtime plug-ins."""
    found = {}
    for path in _sources("*.cc", "byoc/runtime"):
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if match := re.match(r'TVM_REGISTER_GLOBAL\("(collage\.[\w.]+)"\)', line):
                found.setdefault(match[1], _comment(lines, at))
    return found


def _wrapped(name, said):
    said = said[:1].upper() + said[1:] + ("" if said.endswith(".") else ".")
    return textwrap.fill(
        f"- `{name}`: {said}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def page():
    """The whole page."""
    parts = [HEAD]
    for (title, lead), functions in zip(PARTS.items(), (go(), python(), cpp()), strict=True):
        parts.append(f"## {title}\n\n{lead}\n")
        parts.append("\n".join(_wrapped(name, functions[name]) for name in sorted(functions)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
