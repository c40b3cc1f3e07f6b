// SPDX-License-Identifier: Apache-2.0
#include "dnnl_ragged.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_layout.h"
#include "dnnl_packed_program.h"

namespace collage::onednn {
namespace {

// What is added to the scores of keys, or stands in their place, so that their weights are nothing beside
// those of others: frameworks write -10000, or the least float there is.
constexpr float kUnseen = -9000;

// What is added to scores beside that, at most, and at least where a token sees itself: padding stays unseen.
constexpr float kMuch = 1000;

// Plans are made for numbers of tokens that so many divide: so few rows cost less than a plan of their own.
constexpr int64_t kStep = 8;

// The operations that make masks which hide padding, with these as outputs.
Program MasksOf(const Program& program) {
  Program masks = program;
  std::set<int> needed;
  for (const Op& op : program.ops) {
    if (!IsPackedAttention(program, op)) continue;
    for (size_t m = 0; m < op.masks.size(); ++m) {
      if (!op.masks[m].triangle) needed.insert(op.in[3 + m]);
    }
  }
  masks.outputs.assign(needed.begin(), needed.end());
  masks.ops.clear();
  masks.of.clear();
  masks.strips.clear();
  masks.packed = {};
  for (size_t i = program.ops.size(); i-- > 0;) {
    const Op& op = program.ops[i];
    const auto makes = [&](int value) { return needed.count(value) > 0; };
    if (!makes(op.out) && std::none_of(op.more.begin(), op.more.end(), makes)) continue;
    masks.ops.insert(masks.ops.begin(), op);
    if (!program.of.empty()) masks.of.insert(masks.of.begin(), program.of[i]);
    needed.insert(op.in.begin(), op.in.end());
    for (const PostOp& post : op.post) {
      if (post.operand >= 0) needed.insert(post.operand);
    }
  }
  return masks;
}

// Whether look(sequence, query, key, place) holds wherever a mask has a number, which lies at that place.
// What is the same for all of an axis is looked at once; where each_sequence is set, not what is the same for
// all of these.
template <typename Look>
bool Everywhere(const View& view, bool each_sequence, const Look& look) {
  Dims dims = view.dims;
  const Dims& steps = view.strides;
  for (const size_t axis : {0, 1, 2, 3}) {
    if (steps[axis] == 0 && (axis > 0 || !each_sequence)) dims[axis] = 1;
  }
  for (int64_t n = 0; n < dims[0]; ++n) {
    for (int64_t row = 0; row < dims[1] * dims[2] * dims[3]; ++row) {
      const int64_t query = row % dims[3], head = row / dims[3];
      const int64_t first = view.offset + n * steps[0] + head / dims[2] * steps[1] +
                            head % dims[2] * steps[2] + query * steps[3];
      for (int64_t key = 0; key < dims[4]; ++key) {
        if (!look(n, query, key, first + key * steps[4])) return false;
      }
    }
  }
  return true;
}

bool SameView(const View& a, const View& b) {
  return a.dims == b.dims && a.strides == b.strides && a.offset == b.offset;
}

}  // namespace

RaggedPlans::RaggedPlans(const Program& program, const RegionConstants& constants, MadeConstants* made,
                         Plans* plans, Plans::Sizes sizes)
    : program_(program),
      constants_(constants),
      made_(made),
      valid_(std::find(program.inputs.begin(), program.inputs.end(), program.packed.valid) -
             program.inputs.begin()),
      tokens_(std::make_shared<native::RaggedRows>(ValidDims(program)[0], ValidDims(program)[1])),
      plans_(plans),
      sizes_(std::move(sizes)) {
  masks_.program = MasksOf(program_);
  masks_.plan = PlanOf(masks_.program);
  for (const int value : masks_.program.outputs) {
    const ValueType& type = program_.values[value];
    mask_bytes_.emplace_back(RowMajor(type.dims, type.dtype).get_size());
  }
  for (std::vector<char>& bytes : mask_bytes_) mask_data_.push_back(bytes.data());
  for (const Op& op : program_.ops) {
    if (!IsPackedAttention(program_, op)) continue;
    for (size_t m = 0; m < op.masks.size(); ++m) {
      if (op.masks[m].triangle || HidingOf(op, m) < hiding_.size()) continue;
      const std::vector<int>& outputs = masks_.program.outputs;
      const size_t output = std::find(outputs.begin(), outputs.end(), op.in[3 + m]) - outputs.begin();
      hiding_.push_back({output, op.views[4 + m], op.masks[m]});
    }
  }
  effects_.resize(hiding_.size());
}

size_t RaggedPlans::HidingOf(const Op& op, size_t mask) const {
  const View& view = op.views[4 + mask];
  const MaskForm& form = op.masks[mask];
  const auto is = [&](const Hiding& one) {
    return masks_.program.outputs[one.output] == op.in[3 + mask] && SameView(one.view, view) &&
           one.form.chooses == form.chooses && one.form.keeps == form.keeps && one.form.fill == form.fill;
  };
  return std::find_if(hiding_.begin(), hiding_.end(), is) - hiding_.begin();
}

Compiled* RaggedPlans::Choose(const std::vector<void*>& inputs) {
  tokens_->Set(static_cast<const uint8_t*>(inputs[valid_]));
  const int64_t padded = PaddedRows(program_);
  const int64_t rows = std::max<int64_t>(1, (tokens_->tokens() + kStep - 1) / kStep) * kStep;
  if (rows >= padded || !MasksHidePadding(inputs)) return nullptr;
  Plans::Sizes key = sizes_;
  key.push_back(rows);
  for (const Effect effect : effects_) key.push_back(effect == Effect::kHides ? 0 : 1);
  // One that was made before these sizes were forgotten, and came again, reads where tokens were then.
  Compiled* const known = plans_->Find(key);
  if (known != nullptr && known->program.tokens == tokens_) return known;
  return plans_->Add(key, [&](Compiled* made) {
    made->program = AtTokens(program_, rows, tokens_, [this](const Op& op, size_t mask) {
      return effects_[HidingOf(op, mask)] != Effect::kHides;
    });
    CheckProgram(made->program);
    made->plan = PlanOf(made->program);
    constants_.Forget();
  });
}

std::unique_ptr<Plan> RaggedPlans::PlanOf(const Program& program) {
  std::vector<tvm::runtime::NDArray> tensors;
  for (size_t i = 0; i < constants_.size(); ++i) tensors.push_back(constants_.Tensor(i));
  return Compiler(program, tensors, made_).Compile();
}

bool RaggedPlans::MasksHidePadding(const std::vector<void*>& inputs) {
  masks_.plan->Run(inputs, mask_data_);
  bool known = true;
  for (size_t i = 0; i < hiding_.size(); ++i) {
    const void* const data = mask_data_[hiding_[i].output];
    bool alone = true;
    if (Hides(hiding_[i], data, &alone)) {
      effects_[i] = alone ? Effect::kHides : Effect::kHidesAndMore;
    } else {
      effects_[i] = IsOther(hiding_[i], data) ? Effect::kOther : Effect::kUnknown;
    }
    known =
        known && effects_[i] != Effect::kUnknown && (effects_[i] == Effect::kHides || tokens_->together());
  }
  if (!known) return false;
  return std::all_of(program_.ops.begin(), program_.ops.end(), [this](const Op& op) {
    if (!IsPackedAttention(program_, op)) return true;
    for (size_t m = 0; m < op.masks.size(); ++m) {
      if (!op.masks[m].triangle && effects_[HidingOf(op, m)] != Effect::kOther) return true;
    }
    return false;
  });
}

// Whether what tokens see of padding is hidden by a mask, while each sees itself; alone says whether nothing
// is done to what they see of tokens.
bool RaggedPlans::Hides(const Hiding& mask, const void* data, bool* alone) const {
  const MaskForm& form = mask.form;
  if (form.chooses && !(form.fill <= kUnseen)) return false;
  const auto* const added = static_cast<const float*>(data);
  const auto* const chosen = static_cast<const uint8_t*>(data);
  const bool of_each = mask.view.strides[3] != 0;  // query
  return Everywhere(mask.view, true, [&](int64_t n, int64_t query, int64_t key, int64_t at) {
    const int32_t* const place = tokens_->place().data() + n * tokens_->length();
    // What padding sees does not matter.
    if (of_each && place[query] == native::RaggedRows::kPadding) return true;
    if (place[key] == native::RaggedRows::kPadding) {
      return form.chooses ? (chosen[at] != 0) != form.keeps : added[at] <= kUnseen;
    }
    if (form.chooses ? (chosen[at] != 0) == form.keeps : added[at] == 0) return true;
    *alone = false;
    return (of_each && key != query) || (!form.chooses && added[at] >= -kMuch);
  });
}

// Whether a mask lets every place see itself, and adds to no score what might bring padding back.
bool RaggedPlans::IsOther(const Hiding& mask, const void* data) const {
  const MaskForm& form = mask.form;
  if (form.chooses && !(form.fill <= kUnseen)) return false;  // it might stand in the place of what hides
  const auto* const added = static_cast<const float*>(data);
  const auto* const chosen = static_cast<const uint8_t*>(data);
  const bool of_each = mask.view.strides[3] != 0;  // query
  return Everywhere(mask.view, false, [&](int64_t, int64_t query, int64_t key, int64_t at) {
    const bool itself = !of_each || key == query;
    if (form.chooses) return !itself || (chosen[at] != 0) == form.keeps;
    return added[at] <= kMuch && (!itself || added[at] >= -kMuch);
  });
}

}  // namespace collage::onednn
