// SPDX-License-Identifier: Apache-2.0
//
// What a model's library imports (regions, weights), as an object file for the linker.
#ifndef COLLAGE_IMPORTS_OBJECT_H_
#define COLLAGE_IMPORTS_OBJECT_H_

#include <tvm/runtime/module.h>

#include <cstddef>
#include <string>

namespace collage {

// The modules begin at a multiple of so many bytes in memory: regions read their weights in place.
constexpr size_t kImportsAlignment = 64;

// Writes the object file `path` with one symbol, __tvm_dev_mblob: what `root` and its imports are, in the
// form that TVM's loader reads (LoadModuleFromLibrary). Modules whose code the linker gets in objects of
// their own are one place in it, as they are one library later. Weights go from where they are to the file,
// once; TVM's own way keeps them four times in memory and has LLVM write them.
//
// Throws tvm::Error where the file cannot be written (the text has the system's reason), where a module
// cannot be saved, and where the library would import itself through another module. What was written by then
// stays.
void WriteImports(const tvm::runtime::Module& root, const std::string& path);

}  // namespace collage

#endif  // COLLAGE_IMPORTS_OBJECT_H_
