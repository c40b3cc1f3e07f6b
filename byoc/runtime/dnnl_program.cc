// SPDX-License-Identifier: Apache-2.0
#include "dnnl_program.h"

#include <picojson.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>

#include "dnnl_check_program.h"
#include "dnnl_packed_program.h"

namespace collage::onednn {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error("the program for oneDNN cannot be read (" + what +
                           "); compile the model again with this version of Collage");
}

const std::map<std::string, dnnl::algorithm>& Algorithms() {
  using dnnl::algorithm;
  static const auto* const names = new std::map<std::string, algorithm>{
      {"direct", algorithm::convolution_direct},
      {"max_pool", algorithm::pooling_max},
      {"avg_pool", algorithm::pooling_avg_exclude_padding},
      {"avg_pool_padded", algorithm::pooling_avg_include_padding},
      {"relu", algorithm::eltwise_relu},
      {"tanh", algorithm::eltwise_tanh},
      {"sigmoid", algorithm::eltwise_logistic},
      {"exp", algorithm::eltwise_exp},
      {"log", algorithm::eltwise_log},
      {"sqrt", algorithm::eltwise_sqrt},
      {"abs", algorithm::eltwise_abs},
      {"square", algorithm::eltwise_square},
      {"linear", algorithm::eltwise_linear},
      {"clip", algorithm::eltwise_clip},
      {"pow", algorithm::eltwise_pow},
      {"gelu", algorithm::eltwise_gelu_erf},
      {"gelu_tanh", algorithm::eltwise_gelu_tanh},
      {"grid", kGrid},
      {"swish", algorithm::eltwise_swish},
      {"mish", algorithm::eltwise_mish},
      {"hardswish", algorithm::eltwise_hardswish},
      {"add", algorithm::binary_add},
      {"subtract", algorithm::binary_sub},
      {"multiply", algorithm::binary_mul},
      {"divide", algorithm::binary_div},
      {"maximum", algorithm::binary_max},
      {"minimum", algorithm::binary_min},
      {"sum", algorithm::reduction_sum},
      {"mean", algorithm::reduction_mean},
      {"max", algorithm::reduction_max},
      {"min", algorithm::reduction_min},
      {"nearest", algorithm::resampling_nearest},
      {"lstm", algorithm::vanilla_lstm},
      {"gru", algorithm::vanilla_gru},
      {"gru_after", algorithm::lbr_gru},
      {"bilinear", algorithm::resampling_linear},
  };
  return *names;
}

dnnl::algorithm AlgorithmOf(const std::string& name) {
  const auto found = Algorithms().find(name);
  if (found == Algorithms().end()) Fail("it asks for the function " + name + ", which is not known");
  return found->second;
}

// Up to here numbers of JSON are whole ones, each a number of its own.
constexpr double kMostExact = 9007199254740992;  // 2^53

// A whole number that fits the type.
template <typename T>
T Whole(const picojson::value& value, const std::string& name) {
  const double number = value.is<double>() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(std::abs(number) <= kMostExact) || number != std::trunc(number)) Fail(name + " is no whole number");
  if (number < static_cast<double>(std::numeric_limits<T>::min()) ||
      number > static_cast<double>(std::numeric_limits<T>::max())) {
    Fail(name + " is out of range");
  }
  return static_cast<T>(number);
}

// An object of the text; the getters fail with the field's name.
class Object {
 public:
  explicit Object(const picojson::value& value) {
    if (!value.is<picojson::object>()) Fail("an object was expected");
    fields_ = &value.get<picojson::object>();
  }

  const picojson::value* Find(const std::string& name) const {
    const auto found = fields_->find(name);
    return found == fields_->end() ? nullptr : &found->second;
  }
  const picojson::value& Get(const std::string& name) const {
    const picojson::value* value = Find(name);
    if (value == nullptr) Fail("the field " + name + " is not there");
    return *value;
  }
  std::string Text(const std::string& name) const {
    const picojson::value& value = Get(name);
    if (!value.is<std::string>()) Fail(name + " is no text");
    return value.get<std::string>();
  }
  bool Truth(const std::string& name) const {
    const picojson::value* value = Find(name);
    if (value == nullptr) return false;
    if (!value->is<bool>()) Fail(name + " is neither true nor false");
    return value->get<bool>();
  }
  // JSON has no infinity: it is written as a text. 0 where the field is absent.
  float Number(const std::string& name) const {
    const picojson::value* value = Find(name);
    if (value == nullptr) return 0;
    if (value->is<double>()) return static_cast<float>(value->get<double>());
    if (value->is<std::string>()) {
      const std::string& text = value->get<std::string>();
      if (text == "inf") return std::numeric_limits<float>::infinity();
      if (text == "-inf") return -std::numeric_limits<float>::infinity();
    }
    Fail(name + " is no number");
  }
  // 0 where the field is absent.
  int64_t Integer(const std::string& name) const {
    const picojson::value* value = Find(name);
    return value == nullptr ? 0 : Whole<int64_t>(*value, name);
  }
  const picojson::array& List(const std::string& name) const {
    const picojson::value& value = Get(name);
    if (!value.is<picojson::array>()) Fail(name + " is no list");
    return value.get<picojson::array>();
  }
  // A list of whole numbers; empty where the field is absent.
  template <typename T>
  std::vector<T> Integers(const std::string& name) const {
    std::vector<T> list;
    if (Find(name) == nullptr) return list;
    for (const picojson::value& one : List(name)) list.push_back(Whole<T>(one, name));
    return list;
  }

 private:
  const picojson::object* fields_;
};

dnnl::memory::data_type TypeOf(const std::string& name) {
  using Type = dnnl::memory::data_type;
  if (name == "f32") return Type::f32;
  if (name == "bf16") return Type::bf16;
  if (name == "s8") return Type::s8;
  if (name == "u8") return Type::u8;
  if (name == "s32") return Type::s32;
  Fail("it has tensors of the type " + name);
}

class Reader {
 public:
  explicit Reader(const picojson::value& root) : root_(root) {}

  Program Read() {
    const int64_t version = root_.Integer("version");
    if (root_.Text("format") != "collage-dnnl" || version != kProgramForm) {
      Fail("it is of another version, " + std::to_string(version) + "; this runtime reads " +
           std::to_string(kProgramForm));
    }
    for (const picojson::value& value : root_.List("values")) ReadValue(value);
    program_.inputs = Ids(root_, "inputs");
    program_.constants = Ids(root_, "constants");
    program_.outputs = Ids(root_, "outputs");
    for (const picojson::value& value : root_.List("ops")) ReadOp(Object(value));
    if (root_.Find("groups") != nullptr) ReadGroups();
    const std::vector<int> strips = root_.Integers<int>("strips");
    if (strips.size() % 2 != 0) Fail("strips are no pairs");
    for (size_t i = 0; i < strips.size(); i += 2) {
      const int first = strips[i], count = strips[i + 1], ops = static_cast<int>(program_.ops.size());
      if (first < 0 || count < 1 || first > ops || count > ops - first) {
        Fail("strips has operators that are not there");
      }
      if (!program_.strips.emplace(first, count).second) Fail("strips has a group twice");
    }
    if (root_.Find("packed") != nullptr) ReadPacked(Object(root_.Get("packed")));
    return std::move(program_);
  }

 private:
  void ReadValue(const picojson::value& value) {
    if (!value.is<picojson::array>() || value.get<picojson::array>().size() != 2) Fail("a value is no pair");
    const picojson::array& pair = value.get<picojson::array>();
    if (!pair[0].is<std::string>() || !pair[1].is<picojson::array>()) Fail("a value has no type and shape");
    ValueType type;
    const std::string& name = pair[0].get<std::string>();
    type.truth = name == "bool";
    type.dtype = TypeOf(type.truth ? "u8" : name);
    for (const picojson::value& dim : pair[1].get<picojson::array>()) {
      type.dims.push_back(Whole<int64_t>(dim, "a value's extent"));
    }
    if (type.dims.empty()) type.dims.push_back(1);
    program_.values.push_back(std::move(type));
  }

  int Known(int id) const {
    if (id < 0 || id >= static_cast<int>(program_.values.size())) {
      Fail("there is no value " + std::to_string(id));
    }
    return id;
  }

  std::vector<int> Ids(const Object& object, const std::string& name) const {
    std::vector<int> ids = object.Integers<int>(name);
    for (const int id : ids) Known(id);
    return ids;
  }

  // That of a field which must be there.
  int Id(const Object& object, const std::string& name) const {
    return Known(Whole<int>(object.Get(name), name));
  }

  void ReadOp(const Object& object) {
    Op op;
    op.kind = object.Text("op");
    if (object.Find("kernel") != nullptr) op.kernel = object.Text("kernel");
    if (object.Find("algorithm") != nullptr) op.algorithm = AlgorithmOf(object.Text("algorithm"));
    op.in = Ids(object, "in");
    op.out = Id(object, "out");
    op.perm = object.Integers<int>("perm");
    op.axes = object.Integers<int>("axes");
    op.strides = object.Integers<int64_t>("strides");
    op.dilation = object.Integers<int64_t>("dilation");
    op.window = object.Integers<int64_t>("window");
    op.scale = object.Integers<int64_t>("scale");
    const Dims padding = object.Integers<int64_t>("padding");
    if (padding.size() % 2 != 0) Fail("padding has no two sides");
    op.pad_front.assign(padding.begin(), padding.begin() + padding.size() / 2);
    op.pad_back.assign(padding.begin() + padding.size() / 2, padding.end());
    op.more = Ids(object, "more");
    if (const picojson::value* weight = object.Find("weight")) op.weight = ReadView(*weight);
    if (object.Find("views") != nullptr) {
      for (const picojson::value& view : object.List("views")) op.views.push_back(ReadView(view));
    }
    if (object.Find("masks") != nullptr) {
      for (const picojson::value& mask : object.List("masks")) op.masks.push_back(ReadMask(Object(mask)));
    }
    op.transpose_a = object.Truth("transpose_a");
    op.transpose_b = object.Truth("transpose_b");
    op.cleared = object.Truth("cleared");
    op.parts = object.Integers<int>("parts");
    op.times = object.Integers<int64_t>("times");
    op.backward = object.Truth("backward");
    op.bias = object.Truth("bias");
    op.bf16 = object.Truth("bf16");
    op.unbiased = object.Truth("unbiased");
    op.unscaled = object.Truth("unscaled");
    op.unshifted = object.Truth("unshifted");
    op.groups = object.Integer("groups");
    op.alpha = object.Number("alpha");
    op.beta = object.Number("beta");
    op.epsilon = object.Number("epsilon");
    if (object.Find("post") != nullptr) {
      for (const picojson::value& value : object.List("post")) op.post.push_back(ReadPostOp(Object(value)));
    }
    program_.ops.push_back(std::move(op));
  }

  void ReadPacked(const Object& object) {
    program_.packed.valid = Id(object, "valid");
    const std::vector<int> axes = object.Integers<int>("axes");
    if (axes.size() % 2 != 0) Fail("the axes of packed values are no pairs");
    for (size_t i = 0; i < axes.size(); i += 2) program_.packed.axes[Known(axes[i])] = axes[i + 1];
    const std::vector<int> turned = Ids(object, "turned");
    program_.packed.turned.insert(turned.begin(), turned.end());
  }

  void ReadGroups() {
    for (const picojson::value& name : root_.List("groups")) {
      if (!name.is<std::string>()) Fail("a group's name is no text");
      program_.groups.push_back(name.get<std::string>());
    }
    for (const picojson::value& list : root_.List("of")) {
      if (!list.is<picojson::array>()) Fail("what operators are of is no list");
      std::vector<int> of;
      for (const picojson::value& one : list.get<picojson::array>()) {
        const int group = Whole<int>(one, "of");
        if (group < 0 || group >= static_cast<int>(program_.groups.size())) {
          Fail("an operator is of no group");
        }
        of.push_back(group);
      }
      program_.of.push_back(std::move(of));
    }
    if (program_.of.size() != program_.ops.size()) Fail("not every operator is of a group");
  }

  static View ReadView(const picojson::value& value) {
    const Object object(value);
    return {object.Integers<int64_t>("dims"), object.Integers<int64_t>("strides"), object.Integer("offset")};
  }

  static MaskForm ReadMask(const Object& object) {
    MaskForm mask;
    mask.chooses = object.Truth("chooses");
    mask.keeps = object.Truth("keeps");
    mask.fill = object.Number("fill");
    mask.triangle = object.Find("sees") != nullptr;
    mask.sees = object.Integer("sees");
    mask.beyond = object.Number("beyond");
    return mask;
  }

  PostOp ReadPostOp(const Object& object) const {
    PostOp post;
    post.algorithm = AlgorithmOf(object.Text("op"));
    post.alpha = object.Number("alpha");
    post.beta = object.Number("beta");
    if (object.Find("in") != nullptr) {
      post.kind = PostOp::Kind::kBinary;
      post.operand = Id(object, "in");
    }
    return post;
  }

  Object root_;
  Program program_;
};

// The parser calls itself for what stands within something: a text of brackets would use up the stack.
void CheckDepth(const std::string& text) {
  constexpr int kMostDepth = 32;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth) Fail("it is nested too deeply");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

Program ParseProgram(const std::string& text) {
  CheckDepth(text);
  picojson::value root;
  const char* const end = text.data() + text.size();
  std::string error;
  const char* rest = nullptr;
  try {
    rest = picojson::parse(root, text.data(), end, &error);
  } catch (const std::overflow_error&) {
    Fail("it holds a number that is none");
  }
  if (!error.empty()) Fail(error);
  for (const char* c = rest; c != end; ++c) {
    if (*c != '\n' && *c != ' ') Fail("something stands behind it");
  }
  Program program = Reader(root).Read();
  try {
    CheckProgram(program);
    if (IsRagged(program)) {
      CheckPacked(program);
      const auto all = [](const Op&, size_t) { return true; };
      CheckProgram(AtTokens(program, 1, std::make_shared<native::RaggedRows>(1, 1), all));
    }
  } catch (const std::runtime_error& error) {
    Fail(error.what());
  }
  return program;
}

}  // namespace collage::onednn
