// SPDX-License-Identifier: Apache-2.0
//
// Regions on padded batches of sequences, run for tokens alone (AtTokens). That is right only where masks
// hide padding, and nothing else, which is looked at in each call.
#ifndef COLLAGE_DNNL_RAGGED_H_
#define COLLAGE_DNNL_RAGGED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "dnnl_kept_plans.h"
#include "dnnl_made_constants.h"
#include "dnnl_plan.h"
#include "dnnl_program.h"
#include "native/ragged.h"
#include "region_constants.h"

namespace collage::onednn {

// The plans of a region, at some sizes, for the numbers of tokens that come.
class RaggedPlans {
 public:
  using Plans = KeptPlans<Compiled>;

  // program and constants outlive it, and so do made, which has what plans make of constants, and plans, where
  // those of all sizes of a region are: of which it has one, sizes says.
  RaggedPlans(const Program& program, const RegionConstants& constants, MadeConstants* made, Plans* plans,
              Plans::Sizes sizes);

  // Has the plan for these inputs; nullptr where they must be computed with their padding, or have none.
  // Pointers are good until the next call.
  Compiled* Choose(const std::vector<void*>& inputs);

 private:
  // A mask as an attention reads it.
  struct Hiding {
    size_t output;  // of masks_
    View view;
    MaskForm form;
  };
  std::unique_ptr<Plan> PlanOf(const Program& program);
  bool MasksHidePadding(const std::vector<void*>& inputs);
  bool HidesPadding(const Hiding& mask, const void* data) const;

  const Program& program_;
  const RegionConstants& constants_;
  MadeConstants* const made_;
  const size_t valid_;  // which input
  const std::shared_ptr<native::RaggedRows> tokens_;
  // What masks are made by, and where they are then.
  Compiled masks_;
  std::vector<std::vector<char>> mask_bytes_;
  std::vector<void*> mask_data_;
  std::vector<Hiding> hiding_;
  Plans* const plans_;
  // The sizes, and a place for the number of tokens.
  Plans::Sizes key_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_RAGGED_H_
