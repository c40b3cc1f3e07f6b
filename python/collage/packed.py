# SPDX-License-Identifier: Apache-2.0
"""What a library imports, weights and regions, as an object file for the linker.

In: a module of TVM's that is exported. Out: an object with ``__tvm_dev_mblob``, by which TVM's loader finds what was
imported. ``byoc/runtime/imports_object.cc`` writes it (RATIONALE.md, "Why weights go past LLVM").
"""

from pathlib import Path

import tvm

from . import library


def imports(module, is_system_lib, prefix, folder):
    """Write what ``module`` imports into ``folder``; returns the object's name. For export_library, as its
    ``fpack_imports``. A library of the system's, whose modules are found in another way, raises ValueError; a file that
    cannot be written TVMError, with the system's reason in its text.
    """
    if is_system_lib or prefix:
        raise ValueError("a model for TVM's --system-lib cannot be written as a library of its own")
    library.load_plugin(library.plugin_path("runtime"))
    path = Path(folder) / "imports.o"
    tvm.get_global_func("collage.runtime.WriteImports")(module, str(path))
    return str(path)
