# SPDX-License-Identifier: Apache-2.0
"""What an exported model needs of the machine that runs it: processor features, libraries, plug-ins.

In: a built model and its plug-ins. Out: the text that byoc/runtime/needs.h describes and checks, as a module of
the model and as an ELF note, which says the same before the file is loaded.
"""

from dataclasses import dataclass

import tvm

from . import library

LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")

# An ELF note of the owner "Collage": the sizes of the name and of the text, a type, both texts.
_NOTE = """\
    .section {section}, "a", %note
    .balign 4
    .long 8, end - begin, 1
    .asciz "Collage"
begin:
    .ascii "{text}"
end:
    .balign 4
    .section .note.GNU-stack, "", %progbits
"""


@dataclass(frozen=True)
class Needs:
    """``features`` are the processor's, as LLVM calls them; ``plugins`` the lines about plug-ins; ``level`` is the
    best of LEVELS that the features include, or None.
    """

    features: tuple
    plugins: str
    level: str | None

    def text(self):
        """What byoc/runtime/needs.h reads."""
        features = "".join(f"feature {feature}\n" for feature in self.features)
        return f"collage-needs 1\n{features}{self.plugins}"

    def note(self):
        """Assembler source of the note."""
        return note(".note.collage", self.text())

    def loader_options(self):
        """Linker options for a model without plug-ins, in which nobody reads the text: the C library of a processor
        below ``level`` does not open it.
        """
        return [f"-Wl,-z,{self.level}"] if self.level else []


def note(section, text):
    """Assembler source of an ELF note of ours in a section."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return _NOTE.format(section=section, text=escaped)


def _features(target):
    """Those of a target's features that code for another processor may lack, in the runtime's order."""
    known = tvm.get_global_func("collage.runtime.KnownProcessorFeatures", allow_missing=True)
    if known is None or target.kind.name != "llvm":
        return ()
    had = {str(feature) for feature in tvm.target.codegen.llvm_get_cpu_features(target)}
    return tuple(name for name in known().split() if name in had)


def of(factory, plugins=()):
    """The Needs of a built model that is linked with ``plugins``."""
    if runtime := library.plugin_path("runtime"):
        library.load_plugin(runtime)
    targets = [factory.target] if isinstance(factory.target, tvm.target.Target) else factory.target
    features = dict.fromkeys(feature for target in targets for feature in _features(target))
    levels = (
        level
        for level in LEVELS
        if features and set(_features(tvm.target.Target(f"llvm -mcpu={level}"))) <= features.keys()
    )
    lines = []
    if ask := tvm.get_global_func("collage.runtime.NeedsOfPlugin", allow_missing=True):
        names = (str(plugin).rpartition("/")[2] for plugin in plugins)
        lines = [ask(name.removeprefix("libcollage_").removesuffix(".so")) for name in names]
    return Needs(tuple(features), "".join(lines), next(levels, None))
