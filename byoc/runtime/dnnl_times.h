// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a plan took, written for the search (pass/trace.Inside).
#ifndef COLLAGE_DNNL_TIMES_H_
#define COLLAGE_DNNL_TIMES_H_

#include <string>
#include <vector>

#include "dnnl_plan.h"
#include "dnnl_program.h"

namespace collage::onednn {

// milliseconds are those of the plan's steps, in order. Gives
//
//     {"groups": ["dnnl.conv2d_relu", "add"],
//      "steps": [{"ms": 0.5, "what": "conv jit:avx2", "of": [0, 1]},
//                {"ms": 0.1, "what": "reorder jit:uni", "of": [1], "reorder": true, "from": [0]}, ...]}
//
// "of" are the groups that a step does. A reorder has those that want its result in "of" and those whose
// result it changes in "from"; the one is absent at the end of the region, the other at its beginning.
std::string DescribeTimes(const Program& program, const std::vector<Step>& steps,
                          const std::vector<double>& milliseconds);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_TIMES_H_
