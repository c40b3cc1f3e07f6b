// SPDX-License-Identifier: Apache-2.0
//
// What engines make of constants, held once by all who make the same: the copies of a model in a process, and
// models that have weights in common.
#ifndef COLLAGE_SHARED_CONSTANTS_H_
#define COLLAGE_SHARED_CONSTANTS_H_

#include <cstddef>
#include <memory>

#include "collage_runtime.h"

namespace collage {

// Memory with the bytes of `made`: `made` itself, or that of somebody who made the same before and holds it
// still. Found by a checksum of samples and then compared byte by byte. From now on nobody may write to it.
// What is small is not worth the search and is given back as it is.
COLLAGE_EXPORT std::shared_ptr<void> Shared(std::shared_ptr<void> made, size_t bytes);

// How many bytes are held now by those whom Shared gave them to, each piece counted once.
COLLAGE_EXPORT size_t SharedBytes();

}  // namespace collage

#endif  // COLLAGE_SHARED_CONSTANTS_H_
