// SPDX-License-Identifier: Apache-2.0
//
// Groups of operators that are run strip by strip (native/strips.h). The code generator
// (byoc/dnnl/strips.go) says which operators form a group: depthwise convolutions and pools that read what is
// finished, and 1x1 convolutions, sums, products, concatenations and functions, which see one pixel at a time
// and may follow one another. Of what is computed inside, only what is read elsewhere is ever stored as a
// whole; a concatenation is a place in which its parts are computed. 1x1 convolutions whose kernel is
// "expansion" are computed ahead of the windows that read them, for the rows that these see.
//
// In: a range of operators of the program. Out: one step. Where this processor or the shapes do not allow it,
// the operators are compiled one by one, like all others.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/divide_up.h"
#include "native/gemm.h"
#include "native/strips.h"

namespace collage::onednn {
namespace {

constexpr int64_t kFloat = sizeof(float);
// What the values of one row may take: each thread has scratch memory for as much.
constexpr int64_t kMostBytes = 8 << 20;

// An operator that is what a post-operation is otherwise.
std::optional<Post> OwnPostOf(const Op& op) {
  PostOp post;
  post.kind = PostOp::Kind::kEltwise;
  post.algorithm = op.algorithm;
  post.alpha = op.alpha;
  post.beta = op.beta;
  return ElementwisePostOf(post);
}

// A buffer of the scratch: elements of a row, and what is made ahead in it, if that is so.
struct Local {
  Interval interval;
  int64_t row = 0;
  StripAhead ahead;
};

// The number of bytes that the values inside take for so many rows of results; gives the buffers their
// places.
int64_t Lay(std::vector<Local>& locals, int64_t rows) {
  std::vector<Interval*> all;
  for (Local& local : locals) {
    const int64_t lines = local.ahead.seen > 0 ? local.ahead.Rows(rows) : rows;
    local.interval.bytes = static_cast<size_t>(lines * local.row * kFloat);
    all.push_back(&local.interval);
  }
  return static_cast<int64_t>(PlanOffsets(all));
}

// What a group's step needs of the region around it.
struct Surroundings {
  std::function<bool(int value)> is_constant;
  // Whether somebody behind the group reads it.
  std::function<bool(int value)> is_read_behind;
  // A value that was made before, with its channels innermost.
  std::function<Tensor(int value)> channels_last;
  // The elements of a constant, in plain order.
  std::function<const float*(int value)> elements;
  std::function<Tensor(const Desc& desc)> make;
};

// Builds the step.
class StripBuilder {
 public:
  StripBuilder(const Program& program, Surroundings around, int first, int count)
      : program_(program),
        around_(std::move(around)),
        first_(first),
        last_(first + count - 1),
        step_(std::make_shared<Strips>()) {}

  // Whether all operators fit. It asks for no tensors.
  bool Fits() {
    if (last_ >= static_cast<int>(program_.ops.size()) || last_ < first_) return false;
    const Dims& image = dims(op(last_).out);  // nobody could read ahead of it what the last one makes
    if (image.size() != 4 || IsAhead(op(last_))) return false;
    step_->images = image[0];
    step_->height = image[2];
    step_->width = image[3];
    for (int i = first_; i <= last_; ++i) made_.insert(op(i).out);
    for (int i = first_; i <= last_; ++i) {
      if (!FitsOp(op(i))) return false;
    }
    PlaceResults();
    return ChooseStrips();
  }

  // Where Fits has said so.
  void Build() {
    tensors_.push_back({});  // the scratch, when its size is known
    for (int i = first_; i <= last_; ++i) Act(op(i));
    const int64_t elements = std::max<int64_t>(1, step_->scratch * step_->threads);
    tensors_[0] = around_.make(RowMajor({elements}, dnnl::memory::data_type::f32));
  }

  std::string what() const {
    std::ostringstream what;
    what << "strips " << products_ << " products " << windows_ << " windows " << step_->strips << " strips";
    if (!sources_.empty()) what << " " << sources_.size() << " ahead";
    return what.str();
  }
  std::shared_ptr<const Strips> step() const { return step_; }
  // What the step reads and writes, as Strips::Run has it.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // What is read behind the group, and where it lies.
  const std::map<int, Tensor>& results() const { return results_; }

 private:
  const Op& op(int index) const { return program_.ops[index]; }
  const ValueType& type(int value) const { return program_.values[value]; }
  const Dims& dims(int value) const { return type(value).dims; }
  bool Inside(int value) const { return made_.count(value) > 0; }

  static bool IsProduct(const Op& o) { return o.kind == "conv" && o.weight.dims.size() == 4; }
  static bool IsWindow(const Op& o) { return o.kind == "pool" || (o.kind == "conv" && !IsProduct(o)); }

  static bool IsAhead(const Op& o) { return o.kernel == "expansion"; }

  bool SameImage(int value) const {
    const Dims& d = dims(value);
    return type(value).dtype == dnnl::memory::data_type::f32 && d.size() == 4 && d[0] == step_->images &&
           d[2] == step_->height && d[3] == step_->width;
  }

  // Which argument of a product is one factor for each channel, of all images or of each; -1 for none.
  int FactorsOf(const Op& o) const {
    for (const int i : {0, 1}) {
      const Dims& one = dims(o.in[i]);
      if (dims(o.in[1 - i]) != dims(o.out) || one == dims(o.out) || one.size() != 4) continue;
      if (one[1] != dims(o.out)[1] || one[2] != 1 || one[3] != 1) continue;
      if (one[0] == 1 || one[0] == step_->images) return i;
    }
    return -1;
  }

  // A pool's result may first be multiplied by a number.
  static bool IsScaled(const Op& o) {
    return o.kind == "pool" && !o.post.empty() && o.post[0].kind == PostOp::Kind::kEltwise &&
           o.post[0].algorithm == dnnl::algorithm::eltwise_linear && o.post[0].beta == 0;
  }

  // What else is done to an operator's result.
  static std::vector<PostOp> Tail(const Op& o) {
    return {o.post.begin() + (IsScaled(o) ? 1 : 0), o.post.end()};
  }

  // What of an operator's result the windows of the group see; nothing is seen where it is read in any other
  // way, or by windows that go down the image in different steps.
  StripAhead AheadOf(const Op& o) const {
    StripAhead ahead;
    int64_t below = 0;  // from the first row that the results see without padding
    for (int i = first_; i <= last_; ++i) {
      const Op& reader = op(i);
      const auto operand = [&](const PostOp& post) { return post.operand == o.out; };
      if (std::any_of(reader.post.begin(), reader.post.end(), operand)) return {};
      if (std::find(reader.in.begin(), reader.in.end(), o.out) == reader.in.end()) continue;
      if (!IsWindow(reader) || reader.in[0] != o.out || dims(o.out).size() != 4) return {};
      const Window w = WindowOf(reader);
      if (ahead.seen > 0 && ahead.stride != w.stride_height) return {};
      ahead.stride = w.stride_height;
      ahead.top = ahead.seen > 0 ? std::max(ahead.top, w.pad_top) : w.pad_top;
      const int64_t bottom = (w.kernel_height - 1) * w.dilation_height + 1 - w.pad_top;
      below = ahead.seen > 0 ? std::max(below, bottom) : bottom;
      ahead.seen = std::max<int64_t>(1, ahead.top + below);
      ahead.height = w.height;
      ahead.width = w.width;
    }
    return ahead;
  }

  // Whether a product can be made ahead: of what is finished, for windows of this group and nobody else.
  bool FitsAhead(const Op& o) const {
    const Dims& out = dims(o.out);
    if (!IsProduct(o) || out.size() != 4 || out[0] != step_->images || around_.is_read_behind(o.out))
      return false;
    if (Inside(o.in[0]) || AheadOf(o).seen == 0) return false;
    const auto inside = [this](const PostOp& post) { return post.operand >= 0 && Inside(post.operand); };
    return std::none_of(o.post.begin(), o.post.end(), inside);
  }

  // The operator of the group that makes a value ahead; null for none.
  const Op* AheadMaker(int value) const {
    for (int i = first_; i <= last_; ++i) {
      if (op(i).out == value && IsAhead(op(i))) return &op(i);
    }
    return nullptr;
  }

  // Whether an operator can be run here.
  bool FitsOp(const Op& o) const {
    if (!o.perm.empty() || (IsAhead(o) ? !FitsAhead(o) : !SameImage(o.out))) return false;
    // Functions of one number, and the sum with one tensor, or the product.
    int others = o.kind == "binary" ? 1 : 0;
    for (const PostOp& post : Tail(o)) {
      const bool sum = post.kind == PostOp::Kind::kBinary && post.algorithm == dnnl::algorithm::binary_add &&
                       dims(post.operand) == dims(o.out);
      if (sum ? ++others > 1 : !ElementwisePostOf(post)) return false;
    }
    if (o.kind == "conv") {
      if (o.algorithm != dnnl::algorithm::convolution_direct || !around_.is_constant(o.in[1])) return false;
      if (o.bias && !around_.is_constant(o.in[2])) return false;
    }
    const auto all = [](const Dims& list, int64_t value) {
      return std::all_of(list.begin(), list.end(), [value](int64_t one) { return one == value; });
    };
    if (IsProduct(o)) {
      return (IsAhead(o) || SameImage(o.in[0])) && all(o.strides, 1) && all(o.pad_front, 0) &&
             all(o.pad_back, 0) && o.weight.dims[2] == 1 && o.weight.dims[3] == 1;
    }
    if (IsWindow(o)) {
      if (Inside(o.in[0]) && AheadMaker(o.in[0]) == nullptr) return false;
      if (dims(o.in[0]).size() != 4) return false;
      if (o.kind == "conv" && (o.weight.dims.size() != 5 || o.weight.dims[0] != dims(o.in[0])[1] ||
                               o.weight.dims[1] != 1 || o.weight.dims[2] != 1)) {
        return false;
      }
      return true;
    }
    if (o.kind == "binary") {
      const bool same = dims(o.in[0]) == dims(o.out) && dims(o.in[1]) == dims(o.out);
      if (o.algorithm == dnnl::algorithm::binary_mul) return same || FactorsOf(o) >= 0;
      return o.algorithm == dnnl::algorithm::binary_add && same;
    }
    if (o.kind == "eltwise") return OwnPostOf(o).has_value();
    return o.kind == "concat" && o.axes == std::vector<int>{1} &&
           std::all_of(o.in.begin(), o.in.end(), [this](int value) { return SameImage(value); });
  }

  Window WindowOf(const Op& o) const {
    const Dims& from = dims(o.in[0]);
    Window w;
    const bool conv = o.kind == "conv";
    w.kind = conv                                                          ? Window::Kind::kDepthwise
             : o.algorithm == dnnl::algorithm::pooling_max                 ? Window::Kind::kMaximum
             : o.algorithm == dnnl::algorithm::pooling_avg_include_padding ? Window::Kind::kAverageWithPadding
                                                                           : Window::Kind::kAverage;
    w.channels = from[1];
    w.height = from[2];
    w.width = from[3];
    w.out_width = step_->width;
    w.kernel_height = conv ? o.weight.dims[3] : o.window[0];
    w.kernel_width = conv ? o.weight.dims[4] : o.window[1];
    w.stride_height = o.strides[0];
    w.stride_width = o.strides[1];
    if (!o.dilation.empty()) {
      w.dilation_height = o.dilation[0];
      w.dilation_width = o.dilation[1];
    }
    w.pad_top = o.pad_front[0];
    w.pad_left = o.pad_front[1];
    if (IsScaled(o)) w.scale = o.post[0].alpha;
    return w;
  }

  // Says where each result lies: what is read elsewhere in a tensor of its own, a part of a concatenation
  // within that, the rest in the scratch. The last operators come first: a concatenation's place is known
  // before those of its parts.
  void PlaceResults() {
    for (int i = last_; i >= first_; --i) {
      const Op& o = op(i);
      if (spots_.count(o.out) == 0) {
        const int64_t channels = dims(o.out)[1];
        Spot spot;
        spot.place.pixel = channels;
        Local local;
        local.row = channels * dims(o.out)[3];
        if (IsAhead(o)) local.ahead = AheadOf(o);
        if (around_.is_read_behind(o.out)) {
          outside_.push_back(o.out);
          spot.place.tensor = 0;  // which one is said in Act
        } else {
          spot.local = static_cast<int>(locals_.size());
          locals_.push_back(local);
        }
        spots_[o.out] = spot;
      }
      if (o.kind != "concat") continue;
      Spot part = spots_[o.out];
      for (const int value : o.in) {
        if (Inside(value) && !around_.is_read_behind(value) && spots_.count(value) == 0) {
          spots_[value] = part;
          root_[value] = root_.count(o.out) > 0 ? root_[o.out] : o.out;
        }
        part.place.channel += dims(value)[1];
      }
    }
  }

  void Touch(int value, int when) {
    const auto spot = spots_.find(value);
    if (spot == spots_.end() || spot->second.local < 0) return;
    Local& local = locals_[spot->second.local];
    Interval& interval = local.interval;
    if (local.ahead.seen > 0) {  // rows of it are kept from strip to strip
      interval.first = first_;
      interval.last = last_;
      return;
    }
    if (interval.first < 0) interval.first = when;
    interval.last = when;
  }

  // Gives the scratch its layout and the strips their number; false where even a row takes too much.
  bool ChooseStrips() {
    for (Local& local : locals_) local.interval.first = -1;
    for (int i = first_; i <= last_; ++i) {
      const Op& o = op(i);
      for (const int value : o.in) Touch(value, i);
      for (const PostOp& post : o.post) {
        if (post.operand >= 0) Touch(post.operand, i);
      }
      Touch(o.out, i);
    }
    const int64_t rows = step_->images * step_->height, threads = collage_num_threads();
    step_->threads = threads;
    if (Lay(locals_, 1) > kMostBytes) return false;
    int64_t whole = 0;  // a row of what is stored as a whole
    for (const int value : outside_) whole += dims(value)[1] * step_->width * kFloat;
    step_->strips = StripsFor(rows, threads, [&](int64_t some) { return Lay(locals_, some) + some * whole; });
    const int64_t most = DivideUp(rows, step_->strips);
    const int64_t bytes = Lay(locals_, most);
    // Threads do not share lines.
    step_->scratch = RoundUp(bytes, 4096) / kFloat;
    return true;
  }

  // A tensor of the step, by its number there.
  int Slot(const Tensor& tensor) {
    for (size_t i = 1; i < tensors_.size(); ++i) {
      if (tensors_[i].buffer == tensor.buffer) return static_cast<int>(i);
    }
    tensors_.push_back(tensor);
    return static_cast<int>(tensors_.size()) - 1;
  }

  StripPlace PlaceOf(int value) {
    StripPlace place;
    if (!Inside(value)) {
      place.pixel = dims(value)[1];
      place.tensor = Slot(around_.channels_last(value));
      return place;
    }
    const Spot& spot = spots_.at(value);
    place = spot.place;
    if (spot.local >= 0) {
      place.offset = static_cast<int64_t>(locals_[spot.local].interval.offset) / kFloat;
      return place;
    }
    const int whole = root_.count(value) > 0 ? root_.at(value) : value;
    if (results_.count(whole) == 0) {
      results_[whole] = around_.make(ChannelsLast(dims(whole), dnnl::memory::data_type::f32));
    }
    place.tensor = Slot(results_.at(whole));
    return place;
  }

  float* Keep(int64_t elements) {
    step_->owned.emplace_back(AllocateAligned(static_cast<size_t>(elements * kFloat)).release(),
                              AlignedFree());
    return static_cast<float*>(step_->owned.back().get());
  }

  void Act(const Op& o) {
    if (o.kind == "concat") return Join(o);
    StripAction a;
    a.in = PlaceOf(o.in[0]);
    a.out = PlaceOf(o.out);
    a.channels_in = dims(o.in[0])[1];
    a.channels_out = dims(o.out)[1];
    int other = -1;
    if (o.kind == "binary") {
      const int factors = FactorsOf(o);
      if (factors == 0) a.in = PlaceOf(o.in[1]);
      other = factors == 0 ? o.in[0] : o.in[1];
      if (factors >= 0) a.factors = dims(other)[0] == 1 ? 0 : a.channels_out;
      const bool sum = o.algorithm == dnnl::algorithm::binary_add;
      a.posts.push_back({sum ? Post::Kind::kAdd : Post::Kind::kMultiply, 0, 0, 0});
    }
    if (o.kind == "eltwise") a.posts.push_back(*OwnPostOf(o));
    for (const PostOp& post : Tail(o)) {
      if (post.kind == PostOp::Kind::kBinary) {
        other = post.operand;
        a.posts.push_back({Post::Kind::kAdd, 0, 0, 0});
      } else {
        a.posts.push_back(*ElementwisePostOf(post));
      }
    }
    if (o.kind == "conv" && o.bias) {
      const int64_t count = a.channels_out;
      float* const bias = Keep(count);
      std::copy_n(around_.elements(o.in[2]), count, bias);
      a.bias = bias;
    }
    if (other >= 0) {
      a.reads_other = true;
      a.other = PlaceOf(other);
    }
    const Dims& w = o.weight.strides;
    if (IsAhead(o)) {
      a.ahead = AheadOf(o);
      sources_[o.out] = static_cast<int>(step_->actions.size());
      step_->looks_ahead = true;
    }
    if (IsProduct(o)) {
      ++products_;
      a.kind = StripAction::Kind::kProduct;
      float* const packed = Keep(PackedElements(a.channels_in, a.channels_out));
      PackPanels(around_.elements(o.in[1]) + o.weight.offset, w[1], w[0], a.channels_in, a.channels_out,
                 packed);
      a.weight = packed;
    } else if (IsWindow(o)) {
      ++windows_;
      a.kind = StripAction::Kind::kWindow;
      a.window = WindowOf(o);
      a.window.bias = a.bias;
      if (Inside(o.in[0])) a.source = sources_.at(o.in[0]);
      if (o.kind == "conv") {
        float* const taps = Keep(TapsSize(a.channels_out, a.window.kernel_height * a.window.kernel_width));
        PackTaps(around_.elements(o.in[1]) + o.weight.offset, w[0], w[3], w[4], a.channels_out,
                 a.window.kernel_height, a.window.kernel_width, taps);
        a.window.taps = taps;
      }
    } else {
      a.kind = StripAction::Kind::kPosts;
    }
    step_->actions.push_back(a);
  }

  // Copies those parts of a concatenation that could not be computed in their place.
  void Join(const Op& o) {
    StripAction a;
    a.out = PlaceOf(o.out);
    for (const int value : o.in) {
      a.in = PlaceOf(value);
      a.channels_out = dims(value)[1];
      const bool there = a.in.tensor == a.out.tensor && a.in.offset == a.out.offset &&
                         a.in.channel == a.out.channel && Inside(value);
      if (!there) step_->actions.push_back(a);
      a.out.channel += dims(value)[1];
    }
  }

  // Where a value lies that is made here: in one of the buffers of the scratch, or in a tensor.
  struct Spot {
    int local = -1;
    StripPlace place;
  };

  const Program& program_;
  const Surroundings around_;
  const int first_, last_;
  std::shared_ptr<Strips> step_;
  // What the group's operators make, where it lies, and which of it is read elsewhere.
  std::set<int> made_;
  std::map<int, Spot> spots_;
  std::vector<int> outside_;
  // By value that is computed within a concatenation, the concatenation that has the place.
  std::map<int, int> root_;
  std::vector<Local> locals_;  // the buffers of the scratch
  // By value that is made ahead, the action that makes it.
  std::map<int, int> sources_;
  std::vector<Tensor> tensors_;
  std::map<int, Tensor> results_;
  int products_ = 0, windows_ = 0;
};

}  // namespace

bool Compiler::CompileStrips(int first, int count) {
  const int last = first + count - 1;
  StripBuilder builder(
      program_,
      {[this](int value) { return IsConstant(value); },
       [this, last](int value) { return last_use_[value] > last; },
       [this](int value) { return Wanted(value, ChannelsLast(type(value).dims, type(value).dtype)); },
       [this](int value) { return static_cast<const float*>(buffers_[Plain(value).buffer].data); },
       [this](const Desc& desc) { return NewTensor(desc); }},
      first, count);
  if (!builder.Fits()) return false;
  now_ = last;
  builder.Build();
  AddKernel(builder.what(), builder.tensors(),
            [step = builder.step()](void* const* data) { step->Run(data); });
  for (const auto& [value, tensor] : builder.results()) Define(value, tensor);
  return true;
}

}  // namespace collage::onednn
