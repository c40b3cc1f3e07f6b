// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libcollage: what a program that holds TVM calls, once, after it has loaded the library.
#ifndef COLLAGE_ENTRY_H_
#define COLLAGE_ENTRY_H_

// Registers everything under collage.* with the TVM of this process. libtvm_path is the libtvm that is loaded
// (NULL or "": whatever the process has); python_executable is the interpreter that measuring workers run
// under (NULL or "": none given). 0: done; else collage_last_error says why not. A second call does nothing.
int collage_init(const char* libtvm_path, const char* python_executable);

// Why this thread's last collage_init failed; NULL where it did not. Valid until the thread's next call.
const char* collage_last_error(void);

// For the program's exit, before the interpreter goes: from here on nothing is given back to TVM or Python.
void collage_shutdown(void);

#endif  // COLLAGE_ENTRY_H_
