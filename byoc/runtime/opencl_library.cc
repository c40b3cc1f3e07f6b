// SPDX-License-Identifier: Apache-2.0
//
// Where OpenCL is. TVM's functions of the same names as OpenCL's open a library when the first of them is
// called, under the names that a developer's package gives it; they are compiled to come here instead
// (CMakeLists.txt), since a machine that only runs models has the loader under its version's name.
#include "opencl_library.h"

#include <stdexcept>

#include "optional_library.h"

namespace collage {
namespace opencl {

OptionalLibrary Loader() {
  return OptionalLibrary(
      {"OpenCL",
       "on Debian: apt-get install ocl-icd-libopencl1 and your device's driver, or pocl-opencl-icd",
       "COLLAGE_OPENCL_LIBRARY",
       {},
       {},
       {"libOpenCL.so.1", "libOpenCL.so"}});
}

}  // namespace opencl
}  // namespace collage

// In the place of dlopen; whatever the name is. nullptr where there is no OpenCL, of which TVM makes an
// error.
extern "C" __attribute__((visibility("hidden"))) void* collage_open_opencl(const char*, int) noexcept {
  try {
    const collage::OptionalLibrary loader = collage::opencl::Loader();
    return dlopen(loader.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  } catch (const std::exception&) {
    return nullptr;
  }
}
