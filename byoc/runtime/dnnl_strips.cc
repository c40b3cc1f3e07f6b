// SPDX-License-Identifier: Apache-2.0
//
// Groups of operators that are run strip by strip: a few rows of the image go through all of them, on one
// thread and in its caches, before the next rows begin. The code generator (byoc/dnnl/strips.go) says which
// operators form a group: depthwise convolutions and pools that read what is finished, and 1x1 convolutions,
// sums, products, concatenations and functions, which see one pixel at a time and may follow one another. Of
// what is computed inside, only what is read elsewhere is ever stored as a whole; a concatenation is a place
// in which its parts are computed.
//
// In: a range of operators of the program. Out: one step. Where this processor or the shapes do not allow it,
// the operators are compiled one by one, like all others.
#include <algorithm>
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
#include "native/gemm.h"
#include "native/window.h"
#include "native/workers.h"

namespace collage::onednn {
namespace {

constexpr int64_t kFloat = sizeof(float);
// What a strip's values may take together: half of what a core's second-level cache holds on processors with
// AVX-512 (1 to 2 MB), so that weights pass through the other half.
constexpr int64_t kStripBytes = 512 << 10;
// What the values of one row may take: each thread has scratch memory for as much.
constexpr int64_t kMostBytes = 8 << 20;

// Where a value is, within a step.
struct Place {
  // The step's tensor that it lies in; kScratch for the memory of the thread.
  static constexpr int kScratch = -1;
  int tensor = kScratch;
  // kScratch: which of the buffers there.
  int local = -1;
  // The first channel within a pixel, and the distance of two pixels, in elements.
  int64_t channel = 0, ld = 0;
};

struct Action {
  enum class Kind { kProduct, kWindow, kPosts } kind = Kind::kPosts;  // kPosts: they alone
  Place in, other, out;
  // Whether other is read: it is added, or multiplied with.
  bool reads_other = false;
  // Elements from one image's factors to the next's, where other has one for each channel, and is finished;
  // -1 where it has the result's shape.
  int64_t factors = -1;
  int64_t channels_in = 0, channels_out = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  Window window;
  std::vector<Post> posts;  // what is added or multiplied with is operand 0, other
};

// The step.
struct Strips {
  int64_t images = 0, height = 0, width = 0;  // of all results
  int64_t strips = 0;
  int64_t threads = 1;
  std::vector<Action> actions;
  std::vector<Interval> locals;
  int64_t scratch = 0;  // elements for each thread
  // Packed weights.
  std::vector<std::shared_ptr<void>> owned;

  void Run(void* const* data) const {
    DivideAmongWorkers(threads, strips, [&](int64_t strip, int64_t worker) {
      RunStrip(data, static_cast<float*>(data[0]) + worker * scratch, strip);
    });
  }

  void RunStrip(void* const* data, float* mine, int64_t index) const {
    const int64_t rows = images * height;
    const int64_t first = index * rows / strips, count = (index + 1) * rows / strips - first;
    const int64_t pixels = count * width;
    const auto at = [&](const Place& place) {
      float* const base = place.tensor == Place::kScratch
                              ? mine + locals[place.local].offset / kFloat
                              : static_cast<float*>(data[place.tensor]) + first * width * place.ld;
      return base + place.channel;
    };
    for (const Action& a : actions) {
      float* const out = at(a.out);
      if (a.factors >= 0) {
        Scale(a, static_cast<const float*>(data[a.other.tensor]), at(a.in), out, first, count);
        continue;
      }
      const Operand other{a.reads_other ? at(a.other) : nullptr, a.other.ld};
      if (a.kind == Action::Kind::kWindow) {
        RunWindowOf(a, data, other, out, first, count);
      } else if (a.kind == Action::Kind::kProduct) {
        GemmWork work;
        work.left = at(a.in);
        work.left_row = a.in.ld;
        work.right = a.weight;
        work.length = a.channels_in;
        work.rows = pixels;
        work.columns = a.channels_out;
        work.initial = a.bias;
        work.out = out;
        work.out_row = a.out.ld;
        work.posts = a.posts.data();
        work.num_posts = static_cast<int>(a.posts.size());
        work.operands = &other;
        MultiplyPanels(work);
      } else {
        Apply({at(a.in), a.in.ld, out, a.out.ld, pixels, a.channels_out, a.posts.data(),
               static_cast<int>(a.posts.size()), &other});
      }
    }
  }

  // Each channel times its factor, image by image.
  void Scale(const Action& a, const float* factors, const float* in, float* out, int64_t first,
             int64_t count) const {
    for (int64_t row = first; row < first + count;) {
      const int64_t image = row / height, end = std::min(first + count, (image + 1) * height);
      const int64_t done = (row - first) * width;
      const Operand operand{factors + image * a.factors, 0};
      Apply({in + done * a.in.ld, a.in.ld, out + done * a.out.ld, a.out.ld, (end - row) * width,
             a.channels_out, a.posts.data(), static_cast<int>(a.posts.size()), &operand});
      row = end;
    }
  }

  // A window's results, image by image.
  void RunWindowOf(const Action& a, void* const* data, const Operand& other, float* out, int64_t first,
                   int64_t count) const {
    Window window = a.window;
    window.posts = a.posts.data();
    window.num_posts = static_cast<int>(a.posts.size());
    for (int64_t row = first; row < first + count;) {
      const int64_t image = row / height, end = std::min(first + count, (image + 1) * height);
      const int64_t done = (row - first) * width;
      const Operand operand{a.reads_other ? other.data + done * other.row : nullptr, other.row};
      WindowRowsWork work;
      work.window = &window;
      work.image = static_cast<const float*>(data[a.in.tensor]) + a.in.channel +
                   image * window.height * window.width * a.in.ld;
      work.pixel = a.in.ld;
      work.first = row - image * height;
      work.rows = end - row;
      work.operands = &operand;
      work.out = out + done * a.out.ld;
      work.out_pixel = a.out.ld;
      RunWindow(work);
      row = end;
    }
  }
};

// An operator that is what a post-operation is otherwise.
std::optional<Post> OwnPostOf(const Op& op) {
  PostOp post;
  post.kind = PostOp::Kind::kEltwise;
  post.algorithm = op.algorithm;
  post.alpha = op.alpha;
  post.beta = op.beta;
  return ElementwisePostOf(post);
}

// The number of bytes that the values inside take for so many pixels; gives the buffers their places.
int64_t Lay(std::vector<Interval>& locals, const std::vector<int64_t>& channels, int64_t pixels) {
  std::vector<Interval*> all;
  for (size_t i = 0; i < locals.size(); ++i) {
    locals[i].bytes = static_cast<size_t>(pixels * channels[i] * kFloat);
    all.push_back(&locals[i]);
  }
  return static_cast<int64_t>(PlanOffsets(all));
}

}  // namespace

// Builds the step. It asks the compiler for tensors only when all operators are known to fit.
class StripBuilder {
 public:
  StripBuilder(Compiler& compiler, int first, int count)
      : c_(compiler), first_(first), last_(first + count - 1), step_(std::make_shared<Strips>()) {}

  bool Build() {
    if (last_ >= static_cast<int>(c_.program_.ops.size()) || last_ < first_) return false;
    const Dims& dims = c_.type(op(first_).out).dims;
    if (dims.size() != 4) return false;
    step_->images = dims[0];
    step_->height = dims[2];
    step_->width = dims[3];
    for (int i = first_; i <= last_; ++i) made_.insert(op(i).out);
    for (int i = first_; i <= last_; ++i) {
      if (!Fits(op(i))) return false;
    }
    PlaceResults();
    if (!ChooseStrips()) return false;
    // From here on nothing fails.
    c_.now_ = last_;
    tensors_.push_back({});  // the scratch, when its size is known
    for (int i = first_; i <= last_; ++i) Act(op(i));
    Finish();
    return true;
  }

 private:
  const Op& op(int index) const { return c_.program_.ops[index]; }
  const Dims& dims(int value) const { return c_.type(value).dims; }
  bool Inside(int value) const { return made_.count(value) > 0; }
  bool ReadElsewhere(int value) const { return c_.last_use_[value] > last_; }

  static bool IsProduct(const Op& o) { return o.kind == "conv" && o.weight.dims.size() == 4; }
  static bool IsWindow(const Op& o) { return o.kind == "pool" || (o.kind == "conv" && !IsProduct(o)); }

  bool SameImage(int value) const {
    const Dims& d = dims(value);
    return c_.type(value).dtype == dnnl::memory::data_type::f32 && d.size() == 4 && d[0] == step_->images &&
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

  // Whether an operator can be run here.
  bool Fits(const Op& o) const {
    if (!SameImage(o.out) || !o.perm.empty()) return false;
    // Functions of one number, and the sum with one tensor, or the product.
    int others = o.kind == "binary" ? 1 : 0;
    for (const PostOp& post : Tail(o)) {
      const bool sum = post.kind == PostOp::Kind::kBinary && post.algorithm == dnnl::algorithm::binary_add &&
                       dims(post.operand) == dims(o.out);
      if (sum ? ++others > 1 : !ElementwisePostOf(post)) return false;
    }
    if (o.kind == "conv") {
      if (o.algorithm != dnnl::algorithm::convolution_direct || !c_.IsConstant(o.in[1])) return false;
      if (o.bias && !c_.IsConstant(o.in[2])) return false;
    }
    const auto all = [](const Dims& list, int64_t value) {
      return std::all_of(list.begin(), list.end(), [value](int64_t one) { return one == value; });
    };
    if (IsProduct(o)) {
      return SameImage(o.in[0]) && all(o.strides, 1) && all(o.pad_front, 0) && all(o.pad_back, 0) &&
             o.weight.dims[2] == 1 && o.weight.dims[3] == 1;
    }
    if (IsWindow(o)) {
      if (Inside(o.in[0]) || dims(o.in[0]).size() != 4) return false;
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
      if (places_.count(o.out) == 0) {
        const int64_t channels = dims(o.out)[1];
        Place place;
        place.ld = channels;
        if (ReadElsewhere(o.out)) {
          outside_.push_back(o.out);
          place.tensor = 0;  // which one is said in Act
        } else {
          place.local = static_cast<int>(channels_.size());
          channels_.push_back(channels);
        }
        places_[o.out] = place;
      }
      if (o.kind != "concat") continue;
      Place part = places_[o.out];
      for (const int value : o.in) {
        if (Inside(value) && !ReadElsewhere(value) && places_.count(value) == 0) {
          places_[value] = part;
          root_[value] = root_.count(o.out) > 0 ? root_[o.out] : o.out;
        }
        part.channel += dims(value)[1];
      }
    }
  }

  void Touch(int value, int when) {
    const auto place = places_.find(value);
    if (place == places_.end() || place->second.local < 0) return;
    Interval& interval = step_->locals[place->second.local];
    if (interval.first < 0) interval.first = when;
    interval.last = when;
  }

  // Gives the scratch its layout and the strips their number; false where even a row takes too much.
  bool ChooseStrips() {
    step_->locals.assign(channels_.size(), Interval{});
    for (Interval& interval : step_->locals) interval.first = -1;
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
    const int64_t row_bytes = std::max<int64_t>(1, Lay(step_->locals, channels_, step_->width));
    if (row_bytes > kMostBytes) return false;
    int64_t whole = 0;  // a row of what is stored as a whole
    for (const int value : outside_) whole += dims(value)[1] * step_->width * kFloat;
    const int64_t fitting = std::max<int64_t>(1, kStripBytes / (row_bytes + whole));
    int64_t strips = (rows + fitting - 1) / fitting;
    strips = (strips + threads - 1) / threads * threads;  // as much for each thread
    step_->strips = std::min(rows, strips);
    const int64_t most = (rows + step_->strips - 1) / step_->strips;
    const int64_t bytes = Lay(step_->locals, channels_, most * step_->width);
    // Threads do not share lines.
    step_->scratch = (bytes + 4095) / 4096 * 4096 / kFloat;
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

  Place PlaceOf(int value) {
    if (Inside(value)) {
      Place place = places_.at(value);
      if (place.local < 0) {
        const int whole = root_.count(value) > 0 ? root_.at(value) : value;
        if (results_.count(whole) == 0)
          results_[whole] = c_.NewTensor(ChannelsLast(dims(whole), dnnl::memory::data_type::f32));
        place.tensor = Slot(results_.at(whole));
      }
      return place;
    }
    Place place;
    place.ld = dims(value)[1];
    place.tensor = Slot(c_.Wanted(value, ChannelsLast(dims(value), dnnl::memory::data_type::f32)));
    return place;
  }

  float* Keep(int64_t elements) {
    step_->owned.emplace_back(AllocateAligned(static_cast<size_t>(elements * kFloat)).release(),
                              AlignedFree());
    return static_cast<float*>(step_->owned.back().get());
  }

  const float* Constant(int value) {
    return static_cast<const float*>(c_.buffers_[c_.Plain(value).buffer].data);
  }

  void Act(const Op& o) {
    if (o.kind == "concat") return Join(o);
    Action a;
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
      std::copy_n(Constant(o.in[2]), count, bias);
      a.bias = bias;
    }
    if (other >= 0) {
      a.reads_other = true;
      a.other = PlaceOf(other);
    }
    const Dims& w = o.weight.strides;
    if (IsProduct(o)) {
      ++products_;
      a.kind = Action::Kind::kProduct;
      float* const packed = Keep(PackedElements(a.channels_in, a.channels_out));
      PackPanels(Constant(o.in[1]) + o.weight.offset, w[1], w[0], a.channels_in, a.channels_out, packed);
      a.weight = packed;
    } else if (IsWindow(o)) {
      ++windows_;
      a.kind = Action::Kind::kWindow;
      a.window = WindowOf(o);
      a.window.bias = a.bias;
      if (o.kind == "conv") {
        float* const taps = Keep(TapsSize(a.channels_out, a.window.kernel_height * a.window.kernel_width));
        PackTaps(Constant(o.in[1]) + o.weight.offset, w[0], w[3], w[4], a.channels_out,
                 a.window.kernel_height, a.window.kernel_width, taps);
        a.window.taps = taps;
      }
    } else {
      a.kind = Action::Kind::kPosts;
    }
    step_->actions.push_back(a);
  }

  // Copies those parts of a concatenation that could not be computed in their place.
  void Join(const Op& o) {
    Action a;
    a.out = PlaceOf(o.out);
    for (const int value : o.in) {
      a.in = PlaceOf(value);
      a.channels_out = dims(value)[1];
      const bool there = a.in.tensor == a.out.tensor && a.in.local == a.out.local &&
                         a.in.channel == a.out.channel && Inside(value);
      if (!there) step_->actions.push_back(a);
      a.out.channel += dims(value)[1];
    }
  }

  void Finish() {
    const int64_t elements = std::max<int64_t>(1, step_->scratch * step_->threads);
    tensors_[0] = c_.NewTensor(RowMajor({elements}, dnnl::memory::data_type::f32));
    std::ostringstream what;
    what << "strips " << products_ << " products " << windows_ << " windows " << step_->strips << " strips";
    const std::shared_ptr<const Strips> step = std::move(step_);
    c_.AddKernel(what.str(), tensors_, [step](void* const* data) { step->Run(data); });
    for (const int value : outside_) c_.Define(value, results_.at(value));
  }

  Compiler& c_;
  const int first_, last_;
  std::shared_ptr<Strips> step_;
  // What the group's operators make, where it lies, and which of it is read elsewhere.
  std::set<int> made_;
  std::map<int, Place> places_;
  std::vector<int> outside_;
  // By value that is computed within a concatenation, the concatenation that has the place.
  std::map<int, int> root_;
  // The channels of each buffer of the scratch.
  std::vector<int64_t> channels_;
  std::vector<Tensor> tensors_;
  std::map<int, Tensor> results_;
  int products_ = 0, windows_ = 0;
};

bool Compiler::CompileStrips(int first, int count) { return StripBuilder(*this, first, count).Build(); }

}  // namespace collage::onednn
