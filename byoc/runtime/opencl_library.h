// SPDX-License-Identifier: Apache-2.0
//
// OpenCL in this process: its loader, which finds the drivers.
#ifndef COLLAGE_OPENCL_LIBRARY_H_
#define COLLAGE_OPENCL_LIBRARY_H_

#include "optional_library.h"

namespace collage {
namespace opencl {

// The loader, opened. Throws std::runtime_error with what was tried and what to do.
OptionalLibrary Loader();

}  // namespace opencl
}  // namespace collage

#endif  // COLLAGE_OPENCL_LIBRARY_H_
