// SPDX-License-Identifier: Apache-2.0
//
// The functions of cuda_interface/cuda.h: those of the driver's library, which is opened when it is needed.
#include "cuda_driver.h"

#include <cuda.h>

#include <stdexcept>
#include <string_view>

#include "optional_library.h"

namespace collage {
namespace cuda {
namespace {

struct Driver {
  Driver()
      : library({"CUDA's driver",
                 "the driver of your NVIDIA card, which has libcuda.so.1 in it",
                 "COLLAGE_CUDA_DRIVER",
                 {},
                 {},
                 {"libcuda.so.1", "libcuda.so"}}) {
#define COLLAGE_GET(name, parameters, arguments) library.Get(#name, &name);
    COLLAGE_CUDA_DRIVER(COLLAGE_GET)
#undef COLLAGE_GET
    const CUresult status = cuInit(0);
    if (status != CUDA_SUCCESS) {
      const char* said = nullptr;
      cuGetErrorName(status, &said);
      throw std::runtime_error("CUDA's driver (" + library.path() + ") does not work here: " +
                               (said != nullptr ? said : "error " + std::to_string(status)));
    }
  }

  static const Driver& Get() {
    static const Driver* const driver = new Driver;  // tried again where that throws
    return *driver;
  }

  OptionalLibrary library;
#define COLLAGE_MEMBER(name, parameters, arguments) CUresult(*name) parameters;
  COLLAGE_CUDA_DRIVER(COLLAGE_MEMBER)
#undef COLLAGE_MEMBER
};

}  // namespace

const std::string& OpenDriver() { return Driver::Get().library.path(); }

}  // namespace cuda
}  // namespace collage

extern "C" {
#define COLLAGE_FORWARD(name, parameters, arguments)                                   \
  CUresult name parameters {                                                           \
    constexpr bool gives_back = std::string_view(#name) == "cuModuleUnload";           \
    try {                                                                              \
      const CUresult status = collage::cuda::Driver::Get().name arguments;             \
      return gives_back && status != CUDA_SUCCESS ? CUDA_ERROR_DEINITIALIZED : status; \
    } catch (const std::exception&) {                                                  \
      return CUDA_ERROR_NOT_INITIALIZED;                                               \
    }                                                                                  \
  }
COLLAGE_CUDA_DRIVER(COLLAGE_FORWARD)
#undef COLLAGE_FORWARD
}
