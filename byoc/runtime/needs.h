// SPDX-License-Identifier: Apache-2.0
//
// What an exported model needs of the machine that runs it, and whether it is here.
//
// python/collage/needs.py writes it as a text when a model is exported. The text stands in the model's
// library twice: as an ELF note (section .note.collage), which `collage run` reads from the file, and in the
// runtime module "collage_needs", which TVM reads when it has opened the library and before it calls anything
// in it. So a model that does not fit is refused before an instruction of it runs. The lines, in any order:
//
//	collage-needs 1
//	feature <name>                        a processor's feature, as LLVM calls it
//	library <plug-in> <version> <title>   what the plug-in stands on; this version or a later one
//	program <plug-in> <number>            the form of programs that the plug-in must know; this or a later
// one
#ifndef COLLAGE_NEEDS_H_
#define COLLAGE_NEEDS_H_

#include <string>

#include "collage_runtime.h"

namespace collage {

// What a plug-in stands on and can read.
struct Plugin {
  // The library that does its work, as people call it: "oneDNN".
  const char* title;
  // Gives a text with the library's version in it, opening the library for it. May throw.
  std::string (*library_version)();
  // The newest form of programs that the plug-in reads; 0 where it has none of its own.
  int program_form;
};

// Makes a plug-in known by the name that stands in its file's: libcollage_<name>.so.
COLLAGE_EXPORT void RegisterPlugin(const std::string& name, const Plugin& plugin);

// The lines "library" and "program" that a model needs which was compiled for the plug-ins of this process;
// "" for a plug-in that is not known.
std::string NeedsOfPlugin(const std::string& name);

// Throws an error of TVM's with one line that names what is missing and what to do; does nothing where all is
// here.
void CheckNeeds(const std::string& needs);

}  // namespace collage

#endif  // COLLAGE_NEEDS_H_
