# SPDX-License-Identifier: Apache-2.0
"""The tree as documents speak of it: its files, what its packages and modules declare, make's targets."""

import functools
import os
import re
from collections import defaultdict

from conftest import TREE

_LEFT_OUT = {"build", "dist", "__pycache__", "node_modules", "_skbuild"}
_SOURCES = (".go", ".py", ".cc", ".h", ".c", ".inc", ".sh", ".cmake", ".toml")


@functools.cache
def files():
    """All files of the tree but what builds make, as paths from its root."""
    found = []
    for folder, folders, names in os.walk(TREE):
        folders[:] = [n for n in folders if n not in _LEFT_OUT and (not n.startswith(".") or n == ".github")]
        found += [os.path.relpath(os.path.join(folder, name), TREE) for name in names]
    return sorted(found)


@functools.cache
def source(product_only=True):
    """The text of all sources, without the tests where only the product counts."""
    texts = []
    for name in files():
        is_test = name.startswith("tests/") or name.endswith("_test.go")
        if (name.endswith(_SOURCES) or name in ("Makefile", "CMakeLists.txt")) and not (product_only and is_test):
            texts.append((TREE / name).read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _glob(pattern):
    """A path with stars and {alternatives} as a regular expression that its end must match."""
    text = re.escape(pattern).replace(r"\*", "[^/]*")
    return re.compile(r"(.*/)?" + re.sub(r"\\{([^}]*)\\}", lambda m: f"({m.group(1).replace(',', '|')})", text))


def has_path(path):
    """Whether a file, a folder, or the beginning of a file's name ends with ``path``."""
    if path.endswith("/"):
        return (TREE / path).is_dir()
    wanted = _glob(path)
    folders = {os.path.dirname(name) for name in files()}
    stems = (os.path.splitext(name)[0] for name in files())
    return any(wanted.fullmatch(name) for group in (files(), folders, stems) for name in group)


_GO_NAME = re.compile(r"^(?:func (?:\(.*?\) )?|type |var |const )(\w+)", re.M)
_GO_GROUP = re.compile(r"^(?:type \w[^\n]*(?:struct|interface) \{|(?:const|var|type) \()\n(.*?)^[})]", re.M | re.S)
_GO_METHOD = re.compile(r"^func \(\w* ?\*?(\w+)(?:\[.*?\])?\) (\w+)", re.M)


@functools.cache
def go_packages():
    """{package name: names declared in the folders of that name}, fields and interface methods included."""
    declared = defaultdict(set)
    for name in files():
        if name.endswith(".go") and not name.endswith("_test.go"):
            text, package = (TREE / name).read_text(), os.path.basename(os.path.dirname(name))
            declared[package] |= set(_GO_NAME.findall(text))
            for group in _GO_GROUP.findall(text):
                declared[package] |= set(re.findall(r"^\t(\w+)", group, re.M))
    return dict(declared)


@functools.cache
def go_methods():
    """{type: its methods}, over all packages."""
    methods = defaultdict(set)
    for name in files():
        if name.endswith(".go"):
            for kind, method in _GO_METHOD.findall((TREE / name).read_text()):
                methods[kind].add(method)
    return dict(methods)


@functools.cache
def python_names(module):
    """What a module of the package ``collage`` declares at its top; None where there is no such module."""
    for file in (f"python/collage/{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")):
        if file in files():
            text = (TREE / file).read_text()
            return set(re.findall(r"^(?:def |class |)(\w+)(?:\(|:| = )", text, re.M))
    return None


@functools.cache
def make_targets():
    return set(re.findall(r"^([a-z][a-z-]*):", (TREE / "Makefile").read_text(), re.M))
