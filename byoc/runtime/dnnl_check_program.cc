// SPDX-License-Identifier: Apache-2.0
#include "dnnl_check_program.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>

#include "native/attention.h"
#include "native/norm_addend.h"

namespace collage::onednn {
namespace {

using Type = dnnl::memory::data_type;

// oneDNN's own limit.
constexpr size_t kMostAxes = DNNL_MAX_NDIMS;
// Kernels count along an axis in 32 bits.
constexpr int64_t kMostExtent = std::numeric_limits<int32_t>::max();
// Far more than any machine holds, and few enough that no product of sizes leaves 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 40;
// Units, or inputs, of a recurrent layer: its weights are still fewer than kMostElements.
constexpr int64_t kMostUnits = int64_t{1} << 18;
// Where the masks of attention stand among its arguments.
constexpr size_t kFirstMask = 3;

// The number of elements; kMostElements + 1 for all that are more.
int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim > kMostElements / count) return kMostElements + 1;
    count *= dim;
  }
  return count;
}

bool IsEltwise(dnnl::algorithm algorithm) {
  return dnnl::algorithm::eltwise_relu <= algorithm && algorithm < dnnl::algorithm::lrn_across_channels;
}

bool IsOneOf(dnnl::algorithm algorithm, std::initializer_list<dnnl::algorithm> list) {
  return std::find(list.begin(), list.end(), algorithm) != list.end();
}

bool IsBinary(dnnl::algorithm one) {
  using dnnl::algorithm;
  return IsOneOf(one, {algorithm::binary_add, algorithm::binary_sub, algorithm::binary_mul,
                       algorithm::binary_div, algorithm::binary_max, algorithm::binary_min});
}

class Checker {
 public:
  explicit Checker(const Program& program) : p_(program), made_(program.values.size(), false) {}

  void Check() {
    for (size_t i = 0; i < p_.values.size(); ++i) CheckValue(i);
    for (const int value : p_.inputs) Make(value, "an input");
    for (const int value : p_.constants) Make(value, "a constant");
    for (size_t i = 0; i < p_.ops.size(); ++i) {
      op_ = &p_.ops[i];
      index_ = i;
      CheckOp();
    }
    CheckStrips();
    CheckNarrowWeights();
    for (const int value : p_.outputs) {
      if (!made_[value]) throw std::runtime_error("the output " + Name(value) + " is made by nothing");
    }
  }

 private:
  static std::string Name(int value) { return "value " + std::to_string(value); }

  [[noreturn]] void Fail(const std::string& what) const {
    throw std::runtime_error("operation " + std::to_string(index_) + " (" + op_->kind + "): " + what);
  }

  void Want(bool holds, const char* what) const {
    if (!holds) Fail(what);
  }

  void CheckValue(size_t i) const {
    const Dims& dims = p_.values[i].dims;
    const std::string name = Name(static_cast<int>(i)) + " ";
    if (dims.size() > kMostAxes) throw std::runtime_error(name + "has too many axes");
    for (const int64_t dim : dims) {
      if (dim < 1 || dim > kMostExtent) throw std::runtime_error(name + "has an axis that cannot be");
    }
    if (Count(dims) > kMostElements) throw std::runtime_error(name + "is too large");
  }

  void Make(int value, const std::string& what) {
    if (made_[value]) throw std::runtime_error(Name(value) + " is " + what + " and something else");
    made_[value] = true;
  }

  const Dims& Shape(int value) const { return p_.values[value].dims; }
  const Dims& In(size_t i) const { return Shape(op_->in[i]); }
  const Dims& Out() const { return Shape(op_->out); }

  // What is said of an argument: "argument 1 (value 7) [8, 1] ...".
  std::string Argument(size_t i) const {
    return "argument " + std::to_string(i) + " (" + Name(op_->in[i]) + ") " + ShapeText(In(i)) + " ";
  }

  void Arity(size_t least, size_t most) const {
    if (op_->in.size() >= least && op_->in.size() <= most) return;
    Fail("it has " + std::to_string(op_->in.size()) + " arguments");
  }

  void Elements(size_t argument, int64_t count) const {
    if (Count(In(argument)) == count) return;
    Fail(Argument(argument) + "should have " + std::to_string(count) + " elements");
  }

  void SameShape(const Dims& dims) const {
    if (Out() == dims) return;
    Fail("the result " + ShapeText(Out()) + " should be " + ShapeText(dims));
  }

  // Whether a tensor can be broadcast to the dimensions.
  static bool Spreads(const Dims& from, const Dims& to) {
    if (from.size() > to.size()) return false;
    for (size_t i = 0; i < from.size(); ++i) {
      const int64_t dim = from[from.size() - 1 - i];
      if (dim != 1 && dim != to[to.size() - 1 - i]) return false;
    }
    return true;
  }

  // Lists of attributes: so many entries, each of at least (and at most) that.
  void List(const Dims& list, const char* name, size_t size, int64_t least) const {
    if (list.size() != size) {
      Fail(std::string(name) + " has " + std::to_string(list.size()) + " entries and should have " +
           std::to_string(size));
    }
    for (const int64_t one : list) {
      if (one < least || one > kMostExtent) Fail(std::string(name) + " holds " + std::to_string(one));
    }
  }

  // The axes of a tensor in the order that perm says.
  Dims Turned(const Dims& dims) const {
    if (op_->perm.empty()) return dims;
    if (op_->perm.size() != dims.size()) Fail("perm does not name each axis of " + ShapeText(dims));
    Dims turned;
    std::vector<bool> seen(dims.size(), false);
    for (const int axis : op_->perm) {
      if (axis < 0 || axis >= static_cast<int>(dims.size()) || seen[axis]) Fail("perm is no order of axes");
      seen[axis] = true;
      turned.push_back(dims[axis]);
    }
    return turned;
  }

  // That a part of a tensor lies within it.
  void Within(const View& view, int value, size_t rank, const std::string& what) const {
    List(view.dims, (what + ".dims").c_str(), rank, 1);
    List(view.strides, (what + ".strides").c_str(), rank, 0);
    const int64_t count = Count(Shape(value));
    int64_t last = view.offset;
    for (size_t i = 0; i < rank && last >= 0 && last < count; ++i)
      last += (view.dims[i] - 1) * view.strides[i];
    if (view.offset < 0 || last < 0 || last >= count) {
      Fail(what + " reaches beyond " + Name(value) + " " + ShapeText(Shape(value)));
    }
  }

  void CheckOp() {
    if (op_->out < 0) Fail("it has no result");
    for (size_t i = 0; i < op_->in.size(); ++i) {
      if (!made_[op_->in[i]]) Fail(Argument(i) + "is read before it is made");
    }
    for (const PostOp& post : op_->post) {
      if (post.kind == PostOp::Kind::kBinary && !made_[post.operand]) {
        Fail("its post-operation reads " + Name(post.operand) + " before it is made");
      }
    }
    CheckTypes();
    CheckKind();
    CheckKernel();
    CheckPost(Out());
    for (const int value : op_->more) CheckPost(Shape(value));
    Make(op_->out, "the result of operation " + std::to_string(index_));
    for (const int value : op_->more) Make(value, "the result of operation " + std::to_string(index_));
  }

  // Weights in a narrow type may become float32 (Compiler::WidenWeights): nobody else may read them as what
  // they were.
  void CheckNarrowWeights() {
    std::vector<bool> narrow(p_.values.size(), false);
    for (const Op& op : p_.ops) {
      if (op.InBytes() || op.InPairs()) narrow[op.in[1]] = true;
    }
    for (size_t i = 0; i < p_.ops.size(); ++i) {
      op_ = &p_.ops[i];
      index_ = i;
      for (size_t k = 0; k < op_->in.size(); ++k) {
        if (narrow[op_->in[k]] && !(k == 1 && (InBytes() || InPairs()))) {
          Fail(Argument(k) + "is a narrow weight of another operation");
        }
      }
    }
    for (const int value : p_.outputs) {
      if (narrow[value]) throw std::runtime_error("the output " + Name(value) + " is a narrow weight");
    }
  }

  // What only moves numbers takes any of one type; what computes takes float32, but for narrow weights.
  void CheckTypes() const {
    const std::string& kind = op_->kind;
    const bool moves = kind == "reshape" || kind == "transpose" || kind == "concat";
    const Type wanted = moves && op_->post.empty() ? p_.values[op_->out].dtype : Type::f32;
    for (size_t i = 0; i < op_->in.size(); ++i) {
      const size_t mask = i - kFirstMask;
      const bool truth =
          (kind == "attention" && i >= kFirstMask && mask < op_->masks.size() && op_->masks[mask].chooses) ||
          (kind == "clear_padding" && i == 1);
      const ValueType& given = p_.values[op_->in[i]];
      const Type narrow = InBytes()   ? Type::s8
                          : InPairs() ? Type::bf16
                                      : wanted,
                 type = i == 1 ? narrow : wanted;
      if (given.truth != truth || (!truth && given.dtype != type)) Fail(Argument(i) + "is of another type");
    }
    if (p_.values[op_->out].truth) Fail("its result is of another type");
    for (const PostOp& post : op_->post) {
      if (post.kind == PostOp::Kind::kBinary && p_.values[post.operand].dtype != wanted) {
        Fail("its post-operation reads " + Name(post.operand) + ", which is of another type");
      }
    }
    Want(p_.values[op_->out].dtype == wanted, "its result is of another type");
    for (const int value : op_->more) Want(p_.values[value].dtype == wanted, "a result is of another type");
    if (!op_->more.empty() && kind != "matmul" && kind != "recurrent" && op_->kernel != "norm")
      Fail("it has several results");
  }

  // What is rounded to steps has some: 256 of them, 0 being one.
  void CheckGrid(dnnl::algorithm algorithm, float scale, float least) const {
    if (algorithm != kGrid) return;
    Want(std::isnormal(scale) && scale > 0, "the scale of a grid is no length");
    Want(least >= -255 && least <= 0 && least == std::floor(least), "the least step of a grid is no byte's");
  }

  void CheckPost(const Dims& result) const {
    for (const PostOp& post : op_->post) {
      if (post.kind == PostOp::Kind::kEltwise) {
        Want(IsEltwise(post.algorithm), "a post-operation without an argument is no function of one");
        CheckGrid(post.algorithm, post.alpha, post.beta);
        continue;
      }
      Want(IsBinary(post.algorithm), "a post-operation with an argument is no function of two");
      if (!Spreads(Shape(post.operand), result)) {
        Fail("its post-operation reads " + Name(post.operand) + " " + ShapeText(Shape(post.operand)) +
             ", which does not fit the result " + ShapeText(result));
      }
    }
  }

  void CheckKind() const {
    using Method = void (Checker::*)() const;
    static const std::pair<const char*, Method> kMethods[] = {
        {"conv", &Checker::Convolution},
        {"deconv", &Checker::Convolution},
        {"upsampled_conv", &Checker::Convolution},
        {"matmul", &Checker::MatMul},
        {"attention", &Checker::Attention},
        {"recurrent", &Checker::Recurrent},
        {"pool", &Checker::Pool},
        {"resample", &Checker::Resample},
        {"batch_norm", &Checker::BatchNorm},
        {"layer_norm", &Checker::RowNorm},
        {"standardise", &Checker::RowNorm},
        {"rms_norm", &Checker::RowNorm},
        {"group_norm", &Checker::GroupNorm},
        {"channel_scale", &Checker::ChannelScale},
        {"softmax", &Checker::Softmax},
        {"eltwise", &Checker::Eltwise},
        {"binary", &Checker::Binary},
        {"reshape", &Checker::Reshape},
        {"transpose", &Checker::Transpose},
        {"concat", &Checker::Concat},
        {"reduce", &Checker::Reduce},
        {"variance", &Checker::Reduce},
        {"gather_tokens", &Checker::GatherTokens},
        {"clear_padding", &Checker::ClearPadding},
    };
    for (const auto& [kind, method] : kMethods) {
      if (op_->kind == kind) return (this->*method)();
    }
    Fail("this runtime does not know such an operation");
  }

  // Kernels of our own, and the kinds of operators that each can do. What stands in kOnly has no other way.
  void CheckKernel() const {
    static const std::pair<const char*, const char*> kKernels[] = {
        {"winograd", "conv"},        {"narrow", "conv"},
        {"strips", "conv"},          {"expansion", "conv"},
        {"strips", "pool"},          {"strips", "binary"},
        {"strips", "eltwise"},       {"strips", "concat"},
        {"product", "matmul"},       {"upsampled", "upsampled_conv"},
        {"attention", "attention"},  {"norm", "layer_norm"},
        {"norm", "standardise"},     {"norm", "rms_norm"},
        {"norm", "group_norm"},      {"norm", "channel_scale"},
        {"bytes", "conv"},           {"bytes", "matmul"},
        {"grid", "eltwise"},         {"onednn_bytes", "conv"},
        {"onednn_bytes", "matmul"},  {"pairs", "matmul"},
        {"ragged", "gather_tokens"}, {"ragged", "clear_padding"},
        {"recurrent", "recurrent"},
    };
    static const char* const kOnly[] = {"upsampled_conv", "attention",     "standardise",
                                        "rms_norm",       "group_norm",    "channel_scale",
                                        "gather_tokens",  "clear_padding", "recurrent"};
    if (op_->bf16) {
      Want((op_->kernel.empty() || InPairs()) &&
               (op_->kind == "conv" || op_->kind == "deconv" || op_->kind == "matmul"),
           "it is no convolution or product that could be computed in bfloat16");
      Want(p_.values[op_->out].dtype == dnnl::memory::data_type::f32, "bfloat16 stands for float32 alone");
      Want(op_->more.empty(), "it has several results, and is computed in bfloat16");
    }
    if (InPairs()) {
      Want(op_->bf16, "the kernel pairs computes in bfloat16 alone");
      Constant(1);
    }
    if (op_->kernel.empty()) {
      for (const char* kind : kOnly) {
        if (op_->kind == kind) Fail("it names no kernel, and oneDNN has none for it");
      }
      return;
    }
    for (const auto& [kernel, kind] : kKernels) {
      if (op_->kernel == kernel && op_->kind == kind) return;
    }
    Fail("this runtime has no kernel " + op_->kernel + " for it");
  }

  bool RunsInStrips() const { return op_->kernel == "strips" || op_->kernel == "expansion"; }

  // Each operator that goes strip by strip stands in one group, and nothing else does.
  void CheckStrips() {
    std::vector<bool> grouped(p_.ops.size(), false);
    for (const auto& [first, count] : p_.strips) {
      for (int i = first; i < first + count; ++i) {
        op_ = &p_.ops[i];
        index_ = i;
        Want(!grouped[i], "it stands in two groups of strips");
        Want(RunsInStrips(), "it stands in a group of strips, and strips is not its kernel");
        grouped[i] = true;
      }
    }
    for (size_t i = 0; i < p_.ops.size(); ++i) {
      op_ = &p_.ops[i];
      index_ = i;
      Want(grouped[i] || !RunsInStrips(), "it stands in no group of strips");
    }
  }

  // The number of steps that a window of so many taps takes along an axis of so many elements; 0 for none.
  static int64_t Windows(int64_t elements, int64_t taps, int64_t dilation, int64_t stride, int64_t pads) {
    const int64_t room = elements + pads - ((taps - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
  }

  void Spatial(size_t space) const {
    List(op_->strides, "strides", space, 1);
    List(op_->dilation, "dilation", space, 1);
    List(op_->pad_front, "padding", space, 0);
    List(op_->pad_back, "padding", space, 0);
  }

  void Convolution() const {
    const bool upsampled = op_->kind == "upsampled_conv", transposed = op_->kind == "deconv";
    const size_t arguments = 2 + (op_->bias ? 1 : 0) + (InBytes() ? 1 : 0);
    Arity(arguments, arguments);
    const Dims from = Turned(In(0)), to = Turned(Out());
    Want(from.size() == to.size() && from.size() >= 3 && from.size() <= 5, "its tensors have the wrong rank");
    const size_t space = from.size() - 2;
    Spatial(space);
    Want(op_->algorithm == dnnl::algorithm::convolution_direct, "there is no such way to convolve");
    const bool grouped = op_->weight.dims.size() == from.size() + 1;
    Within(op_->weight, op_->in[1], from.size() + (grouped ? 1 : 0), "weight");
    const Dims& weight = op_->weight.dims;
    const size_t first = grouped ? 1 : 0;
    const int64_t groups = grouped ? weight[0] : 1;
    Want(from[0] == to[0], "argument and result differ in their batches");
    Want(to[1] % groups == 0 && to[1] / groups == weight[first],
         "its weight makes another number of channels");
    Want(from[1] % groups == 0 && from[1] / groups == weight[first + 1],
         "its weight takes another number of channels");
    if (op_->bias) Elements(2, to[1]);
    if (InBytes()) {
      Want(space == 2, "only images are convolved in bytes");
      Want(!grouped || op_->kernel != "bytes", "the kernel bytes knows no groups");
      Bytes(to[1]);
    }
    Dims scale(space, 1);
    if (upsampled) {
      Want(space == 2 && !grouped, "only images are upsampled, without groups");
      List(op_->scale, "scale", space, 1);
      scale = op_->scale;
      for (size_t i = 0; i < space; ++i) {
        Want(op_->strides[i] == 1 && op_->dilation[i] == 1, "upsampled tensors are convolved tap by tap");
      }
    }
    for (size_t i = 0; i < space; ++i) {
      const int64_t large = transposed ? to[2 + i] : from[2 + i] * scale[i];
      const int64_t small = transposed ? from[2 + i] : to[2 + i];
      const int64_t windows = Windows(large, weight[first + 2 + i], op_->dilation[i], op_->strides[i],
                                      op_->pad_front[i] + op_->pad_back[i]);
      Want(windows == small, "its attributes do not lead from the argument's extents to the result's");
    }
  }

  bool InBytes() const { return op_->InBytes(); }
  bool InPairs() const { return op_->InPairs(); }

  void Constant(size_t argument) const {
    Want(std::find(p_.constants.begin(), p_.constants.end(), op_->in[argument]) != p_.constants.end(),
         "its weight and the scales must be constants");
  }

  // Weights of bytes, and behind all other arguments a scale for each of so many channels.
  void Bytes(int64_t channels) const {
    const size_t last = op_->in.size() - 1;
    Elements(last, channels);
    for (const size_t i : {size_t{1}, last}) Constant(i);
  }

  void MatMul() const {
    const size_t step = op_->bias ? 2 : 1;
    const size_t arguments = 1 + (1 + op_->more.size()) * step + (InBytes() ? 1 : 0);
    Arity(arguments, arguments);
    if (InBytes()) {
      Want(op_->more.empty() && !op_->transpose_a && Out().size() == 2 && In(0).size() == 2 &&
               In(1).size() == 2,
           "only dense layers are computed in bytes, one by one");
      Bytes(Out()[1]);
    }
    for (size_t i = 0; i <= op_->more.size(); ++i) {
      const Dims& result = i == 0 ? Out() : Shape(op_->more[i - 1]);
      const Dims &left = In(0), &right = In(1 + i * step);
      const size_t rank = result.size();
      Want(left.size() >= 2 && right.size() >= 2 && left.size() <= rank && right.size() <= rank,
           "its tensors have the wrong rank");
      const auto last = [](const Dims& dims, bool exchanged) {
        const int64_t a = dims[dims.size() - 2], b = dims[dims.size() - 1];
        return exchanged ? std::make_pair(b, a) : std::make_pair(a, b);
      };
      const auto [rows, length] = last(left, op_->transpose_a);
      const auto [length_right, columns] = last(right, op_->transpose_b);
      if (length != length_right || result[rank - 2] != rows || result[rank - 1] != columns) {
        Fail(ShapeText(left) + " and " + ShapeText(right) + " do not make " + ShapeText(result));
      }
      const Dims batch(result.begin(), result.end() - 2);
      Want(Spreads({left.begin(), left.end() - 2}, batch) && Spreads({right.begin(), right.end() - 2}, batch),
           "the batches of its arguments do not fit the result's");
      if (op_->bias) Elements(2 + i * step, columns);
    }
  }

  void Attention() const {
    Arity(kFirstMask, kFirstMask + AttentionShape::kMostMasks);
    Want(op_->views.size() == op_->in.size() + 1, "it has not a view for each of its tensors");
    Want(op_->masks.size() == op_->in.size() - kFirstMask, "it does not say what each of its masks does");
    std::vector<int> values = op_->in;
    values.insert(values.begin() + kFirstMask, op_->out);
    for (size_t i = 0; i < op_->views.size(); ++i) {
      Within(op_->views[i], values[i], 5, "views[" + std::to_string(i) + "]");
    }
    const Dims &query = op_->views[0].dims, &key = op_->views[1].dims, &value = op_->views[2].dims;
    const auto of = [&query](int64_t rows, int64_t columns) {
      return Dims({query[0], query[1], query[2], rows, columns});
    };
    Want(key == of(key[3], query[4]), "its key does not fit its query");
    Want(value == of(key[3], value[4]), "its value does not fit its key");
    Want(op_->views[3].dims == of(query[3], value[4]), "its result does not fit its query and value");
    const auto columns = [this](size_t view) {
      return op_->views[view].dims[4] == 1 ? 1 : op_->views[view].strides[4];
    };
    Want(columns(0) == 1 && columns(3) == 1, "the columns of its query and result do not follow one another");
    int triangles = 0;
    for (size_t m = 0; m < op_->masks.size(); ++m) {
      // That of packed tokens is the same for all sequences, and fits the longest.
      Want(p_.IsPacked(op_->out) || op_->views[4 + m].dims == of(query[3], key[3]),
           "its mask does not fit its scores");
      Want(op_->views[4 + m].strides[4] <= 1, "the columns of its mask do not follow one another");
      if (!op_->masks[m].triangle) continue;
      Want(++triangles == 1, "it has two triangles");
      Want(std::abs(op_->masks[m].sees) <= kMostExtent, "its triangle is beyond its scores");
    }
  }

  void Recurrent() const {
    Want(IsOneOf(op_->algorithm,
                 {dnnl::algorithm::vanilla_lstm, dnnl::algorithm::vanilla_gru, dnnl::algorithm::lbr_gru,
                  dnnl::algorithm::eltwise_tanh, dnnl::algorithm::eltwise_relu}),
         "there is no such layer");
    const bool lstm = op_->algorithm == dnnl::algorithm::vanilla_lstm;
    const size_t gates =
        lstm                                                                                           ? 4
        : op_->algorithm == dnnl::algorithm::vanilla_gru || op_->algorithm == dnnl::algorithm::lbr_gru ? 3
                                                                                                       : 1;
    Want(!op_->in.empty() && In(0).size() == 3, "its sequence has not three axes");
    Want(op_->parts.size() == 2 + 4 * gates, "it does not name each of its parts");
    const int64_t steps = In(0)[0], batch = In(0)[1], length = In(0)[2];
    Want(!op_->views.empty() && op_->views[0].dims.size() == 2, "its weights have no view");
    const int64_t units = op_->views[0].dims[0];
    Want(units >= 1 && units <= kMostUnits && length <= kMostUnits, "it has too many units");
    size_t views = 0;
    for (size_t i = 0; i < op_->parts.size(); ++i) {
      const int part = op_->parts[i];
      const bool weights = i >= 2 && i < 2 + 2 * gates;
      if (part < 0) {
        Want(!weights, "weights are missing");
        continue;
      }
      Want(part >= 1 && part < static_cast<int>(op_->in.size()), "a part is no argument");
      if (i < 2) {
        Want(i == 0 || lstm, "only LSTM has cells");
        Elements(part, batch * units);
        continue;
      }
      Constant(part);
      Want(views < op_->views.size(), "it has not a view for each of its weights");
      const View& view = op_->views[views++];
      const Dims wanted = !weights ? Dims{units} : i < 2 + gates ? Dims{units, length} : Dims{units, units};
      Within(view, op_->in[part], wanted.size(), "views[" + std::to_string(views - 1) + "]");
      Want(view.dims == wanted, "its weights do not fit one another");
    }
    Want(views == op_->views.size(), "it has not a view for each of its weights");
    Want(op_->times.size() == 1 + op_->more.size(), "it does not say what its results are");
    for (size_t i = 0; i < op_->times.size(); ++i) {
      const int64_t time = op_->times[i];
      Want(time >= Op::kAllTimes && time < steps && (lstm || time != Op::kCells), "there is no such result");
      for (size_t k = 0; k < i; ++k) Want(op_->times[k] != time, "it has a result twice");
      const Dims states = time == Op::kAllTimes ? Dims{steps, batch, units} : Dims{batch, units};
      Want(Shape(i == 0 ? op_->out : op_->more[i - 1]) == states, "a result is of another shape");
    }
  }

  void Pool() const {
    Arity(1, 1);
    Want(IsOneOf(op_->algorithm, {dnnl::algorithm::pooling_max, dnnl::algorithm::pooling_avg_exclude_padding,
                                  dnnl::algorithm::pooling_avg_include_padding}),
         "there is no such pool");
    const Dims from = Turned(In(0)), to = Turned(Out());
    Want(from.size() == to.size() && from.size() >= 3 && from.size() <= 5, "its tensors have the wrong rank");
    const size_t space = from.size() - 2;
    Spatial(space);
    List(op_->window, "window", space, 1);
    Want(from[0] == to[0] && from[1] == to[1], "argument and result differ in their batches or channels");
    for (size_t i = 0; i < space; ++i) {
      Want(Windows(from[2 + i], op_->window[i], op_->dilation[i], op_->strides[i],
                   op_->pad_front[i] + op_->pad_back[i]) == to[2 + i],
           "its attributes do not lead from the argument's extents to the result's");
    }
  }

  void Resample() const {
    Arity(1, 1);
    Want(IsOneOf(op_->algorithm, {dnnl::algorithm::resampling_nearest, dnnl::algorithm::resampling_linear}),
         "there is no such way to resample");
    const Dims from = Turned(In(0)), to = Turned(Out());
    Want(from.size() == to.size() && from.size() >= 3 && from.size() <= 5, "its tensors have the wrong rank");
    Want(from[0] == to[0] && from[1] == to[1], "argument and result differ in their batches or channels");
  }

  void BatchNorm() const {
    Arity(5, 5);
    SameShape(In(0));
    const Dims from = Turned(In(0));
    Want(from.size() >= 2, "its tensors have the wrong rank");
    for (size_t i = 1; i < 5; ++i) Elements(i, from[1]);
  }

  // Gain and shift, which have so many elements, and what is added first: of the data's shape, or, of rows,
  // one of as many elements that is added to all, or, of images, a number for each channel, which are along
  // that axis
  // (-1: rows), of all images or of each.
  void NormArguments(int64_t channels, int axis) const {
    SameShape(In(0));
    const size_t own = 1 + (op_->unscaled ? 0 : 1) + (op_->unshifted ? 0 : 1);
    const bool ours = op_->kernel == "norm";
    Want(ours || own == 3, "oneDNN has it with a gain and a shift only");
    Arity(own, own + (ours ? native::kMostNormAddends : 0));
    for (size_t i = 1; i < own; ++i) Elements(i, channels);
    for (size_t i = own; i < op_->in.size(); ++i) {
      if (In(i) == Out()) continue;
      if (axis < 0) {
        Elements(i, channels);
      } else {
        NumbersOfChannels(i, axis);
      }
    }
    const bool sums = op_->in.size() > own;
    Want(op_->more.empty() || (sums && op_->more.size() == 1 && Shape(op_->more[0]) == Out()),
         "it does not make such a sum");
  }

  void NumbersOfChannels(size_t argument, int axis) const {
    Dims given = In(argument), wanted(Out().size(), 1);
    if (given.size() < wanted.size()) given.insert(given.begin(), wanted.size() - given.size(), 1);
    wanted[axis] = Out()[axis];
    const bool all_alike = given == wanted;
    wanted[0] = Out()[0];
    if ((all_alike || given == wanted) && (op_->perm.empty() || op_->perm[0] == 0)) return;
    Fail(Argument(argument) + "should have a number for each channel");
  }

  void RowNorm() const {
    Arity(1, std::numeric_limits<uint16_t>::max());
    int64_t row = In(0).back();
    if (!op_->axes.empty()) {
      Axes(1, In(0).size());
      Want(op_->axes.back() == static_cast<int>(In(0).size()) - 1, "its axes are not the last ones");
      row = Count({In(0).begin() + op_->axes.front(), In(0).end()});
      Want(op_->kernel == "norm" || op_->axes.size() == 1, "oneDNN has it along one axis only");
    }
    NormArguments(row, -1);
  }

  void GroupNorm() const {
    Arity(1, std::numeric_limits<uint16_t>::max());
    Want(In(0).size() >= 2, "its tensors have the wrong rank");
    const int64_t channels = Turned(In(0))[1];
    Want(op_->groups >= 1 && channels % op_->groups == 0, "its groups do not divide its channels");
    NormArguments(channels, op_->perm.empty() ? 1 : op_->perm[1]);
  }

  void ChannelScale() const {
    Arity(1, std::numeric_limits<uint16_t>::max());
    Axes(1, 1);
    NormArguments(In(0)[op_->axes[0]], op_->axes[0]);
  }

  void Axes(size_t least, size_t most) const {
    Want(op_->axes.size() >= least && op_->axes.size() <= most, "it has the wrong number of axes");
    for (size_t i = 0; i < op_->axes.size(); ++i) {
      const int axis = op_->axes[i];
      if (axis < 0 || axis >= static_cast<int>(In(0).size())) {
        Fail(Argument(0) + "has no axis " + std::to_string(axis));
      }
      Want(i == 0 || axis == op_->axes[i - 1] + 1, "its axes do not follow one another");
    }
  }

  void Softmax() const {
    Arity(1, 1);
    Axes(1, 1);
    SameShape(In(0));
  }

  void Eltwise() const {
    Arity(1, 1);
    Want(IsEltwise(op_->algorithm), "there is no such function of one number");
    CheckGrid(op_->algorithm, op_->alpha, op_->beta);
    SameShape(In(0));
  }

  void Binary() const {
    Arity(2, 2);
    Want(IsBinary(op_->algorithm), "there is no such function of two numbers");
    for (size_t i = 0; i < 2; ++i) {
      if (!Spreads(In(i), Out())) Fail(Argument(i) + "does not fit the result " + ShapeText(Out()));
    }
    // Each extent of the result is one of an argument's.
    for (size_t i = 0; i < Out().size(); ++i) {
      const auto extent = [&](const Dims& dims) { return i < dims.size() ? dims[dims.size() - 1 - i] : 1; };
      Want(std::max(extent(In(0)), extent(In(1))) == extent(Out()),
           "its result is larger than its arguments");
    }
  }

  void Reshape() const {
    Arity(1, 1);
    Elements(0, Count(Out()));
  }

  void Transpose() const {
    Arity(1, 1);
    Want(op_->perm.size() == In(0).size(), "perm does not name each axis");
    SameShape(Turned(In(0)));
  }

  void Concat() const {
    Arity(1, std::numeric_limits<uint16_t>::max());
    Axes(1, 1);
    const size_t axis = static_cast<size_t>(op_->axes[0]);
    Dims sum = In(0);
    for (size_t i = 1; i < op_->in.size(); ++i) {
      Want(In(i).size() == sum.size(), "its arguments have different ranks");
      sum[axis] += In(i)[axis];
    }
    SameShape(sum);
    for (size_t i = 0; i < op_->in.size(); ++i) {
      Dims one = sum;
      one[axis] = In(i)[axis];
      if (In(i) != one) Fail(Argument(i) + "does not fit the others");
    }
  }

  // Elements of a value's rows, where it has one for each of so many places, or each packed token.
  int64_t RowElements(int value, int64_t places) const {
    int64_t rows = places;
    if (p_.IsPacked(value)) {
      const Dims& dims = Shape(value);
      rows = Count({dims.begin(), dims.begin() + p_.packed.axes.at(value)});
    }
    Want(Count(Shape(value)) % rows == 0, "its tensors have not a row for each token");
    return Count(Shape(value)) / rows;
  }

  // That argument and result have the same rows, padded ones or those of tokens, and nothing else is done.
  void MovesRows(int64_t places) const {
    Want(op_->post.empty(), "nothing is done behind it");
    Want(RowElements(op_->in[0], places) == RowElements(op_->out, places),
         "its rows differ in their lengths");
  }

  void GatherTokens() const {
    Arity(1, 1);
    Want(p_.packed.valid >= 0, "nothing says which rows are tokens");
    MovesRows(Count(Shape(p_.packed.valid)));
  }

  void ClearPadding() const {
    Arity(2, 2);
    MovesRows(Count(In(1)));
  }

  void Reduce() const {
    const bool variance = op_->kind == "variance";
    Arity(variance ? 2 : 1, variance ? 2 : 1);
    Axes(1, In(0).size());
    if (!variance) {
      Want(IsOneOf(op_->algorithm, {dnnl::algorithm::reduction_sum, dnnl::algorithm::reduction_mean,
                                    dnnl::algorithm::reduction_max, dnnl::algorithm::reduction_min}),
           "there is no such reduction");
    }
    int64_t left = 1;
    for (int i = 0; i < static_cast<int>(In(0).size()); ++i) {
      if (i < op_->axes.front() || i > op_->axes.back()) left *= In(0)[i];
    }
    Want(Count(Out()) == left, "its result has another number of elements than are left");
    if (variance) Elements(1, left);
  }

  const Program& p_;
  // By value.
  std::vector<bool> made_;
  // What is being checked.
  const Op* op_ = nullptr;
  size_t index_ = 0;
};

}  // namespace

std::string ShapeText(const Dims& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

DLDataType ElementType(const ValueType& type) {
  if (type.truth) return {kDLUInt, 1, 1};
  switch (type.dtype) {
    case Type::bf16:
      return {kDLBfloat, 16, 1};
    case Type::s8:
      return {kDLInt, 8, 1};
    case Type::u8:
      return {kDLUInt, 8, 1};
    case Type::s32:
      return {kDLInt, 32, 1};
    default:
      return {kDLFloat, 32, 1};
  }
}

void CheckProgram(const Program& program) { Checker(program).Check(); }

void CheckConstants(const Program& program, const std::vector<tvm::runtime::NDArray>& constants) {
  if (constants.size() != program.constants.size()) {
    throw std::runtime_error("the program speaks of " + std::to_string(program.constants.size()) +
                             " constants, " + std::to_string(constants.size()) + " are there");
  }
  for (size_t i = 0; i < constants.size(); ++i) {
    const ValueType& wanted = program.values[program.constants[i]];
    const DLTensor& given = *constants[i].operator->();
    const Dims shape(given.shape, given.shape + given.ndim);
    const DLDataType dtype = ElementType(wanted);
    if (given.dtype.code != dtype.code || given.dtype.bits != dtype.bits || given.dtype.lanes != 1 ||
        Count(shape) != Count(wanted.dims)) {
      throw std::runtime_error("the constant " + std::to_string(i) + " is " +
                               tvm::runtime::DLDataType2String(given.dtype) + " " + ShapeText(shape) +
                               ", the program wants " + tvm::runtime::DLDataType2String(dtype) + " " +
                               ShapeText(wanted.dims));
    }
  }
}

}  // namespace collage::onednn
