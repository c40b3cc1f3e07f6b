// SPDX-License-Identifier: Apache-2.0
#ifndef COLLAGE_CUDA_DRIVER_H_
#define COLLAGE_CUDA_DRIVER_H_

#include <string>

namespace collage {
namespace cuda {

// Where the driver's library was found, once it is open and initialised. Throws std::runtime_error where it
// is not there, or does not work, which it says in its words.
const std::string& OpenDriver();

}  // namespace cuda
}  // namespace collage

#endif  // COLLAGE_CUDA_DRIVER_H_
