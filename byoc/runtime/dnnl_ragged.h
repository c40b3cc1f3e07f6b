// SPDX-License-Identifier: Apache-2.0
//
// Regions on padded batches of sequences, run for tokens alone (AtTokens). That is right only where masks
// hide padding, which is looked at in each call. What they do beside it, as a bias by distance, they do to
// tokens, where no padding is between these.
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

  // program and constants outlive it, and so do made, which has what plans make of constants, and plans,
  // where those of all sizes of a region are: of which it has one, sizes says.
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
  // What a mask does.
  enum class Effect {
    kHides,         // padding is hidden, and nothing is done to tokens
    kHidesAndMore,  // and something is
    kOther,         // padding is not hidden, and no more is made of it than of tokens
    kUnknown,
  };
  std::unique_ptr<Plan> PlanOf(const Program& program);
  // Which of hiding_ a mask of an attention is.
  size_t HidingOf(const Op& op, size_t mask) const;
  // Whether padding is hidden from all attention; finds effects_.
  bool MasksHidePadding(const std::vector<void*>& inputs);
  bool Hides(const Hiding& mask, const void* data, bool* alone) const;
  bool IsOther(const Hiding& mask, const void* data) const;

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
  std::vector<Effect> effects_;  // of each of hiding_, in this call
  Plans* const plans_;
  const Plans::Sizes sizes_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_RAGGED_H_
