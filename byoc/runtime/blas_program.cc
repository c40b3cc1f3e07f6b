// SPDX-License-Identifier: Apache-2.0
#include "blas_program.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "region_module.h"

namespace collage {
namespace {

const std::string kFirstLine = "collage-blas " + std::to_string(kBlasProgramForm);

// More than any region has.
constexpr int kMostValues = 1 << 20;
// CBLAS counts in 32 bits.
constexpr int64_t kMostExtent = std::numeric_limits<int32_t>::max();
// Far more than any machine holds.
constexpr int64_t kMostElements = int64_t{1} << 40;

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error(what + "; compile the model again");
}

// The number of elements; kMostElements + 1 for all that are more.
int64_t Elements(int64_t batch, int64_t rows, int64_t columns) {
  if (rows > kMostElements / columns || batch > kMostElements / (rows * columns)) return kMostElements + 1;
  return batch * rows * columns;
}

bool ReadProduct(std::istringstream* words, BlasProduct* p) {
  std::string dtype, activation, more;
  *words >> dtype >> p->result >> p->left >> p->right >> p->m >> p->n >> p->k >> p->batch >> p->left_batch >>
      p->right_batch >> p->left_transposed >> p->right_transposed >> p->alpha >> p->bias >> p->residual >>
      activation;
  if (!*words || *words >> more || (dtype != "float32" && dtype != "float64")) return false;
  p->is_double = dtype == "float64";
  if (activation == "relu") {
    p->activation = BlasActivation::kRelu;
  } else if (activation == "gelu") {
    p->activation = BlasActivation::kGelu;
  } else if (activation != "none") {
    return false;
  }
  if (std::min({p->m, p->n, p->k, p->batch}) < 1 || std::max({p->m, p->n, p->k, p->batch}) > kMostExtent) {
    return false;
  }
  return std::max({Elements(p->batch, p->m, p->n), Elements(p->batch, p->m, p->k),
                   Elements(p->batch, p->k, p->n)}) <= kMostElements &&
         std::min({p->result, p->left, p->right}) >= 0 && std::min(p->bias, p->residual) >= -1;
}

// A damaged line, for people.
std::string Shown(const std::string& line) {
  constexpr size_t kMost = 60;
  std::string shown = line.substr(0, kMost);
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return shown + (line.size() > kMost ? "..." : "");
}

// What is known of the tensors, by number: whether they are made, and what their readers want.
class Tensors {
 public:
  explicit Tensors(const BlasProgram& program)
      : made_(program.num_values, false),
        elements_(program.num_values, 0),
        double_(program.num_values, false) {}

  void Make(int value) {
    if (made_[value]) Fail("tensor " + std::to_string(value) + " is made twice");
    made_[value] = true;
  }

  void Read(int value) const {
    if (!made_[value]) Fail("tensor " + std::to_string(value) + " is read before it is made");
  }

  void Want(int value, int64_t elements, bool is_double) {
    if (elements_[value] == 0) {
      elements_[value] = elements;
      double_[value] = is_double;
    } else if (elements_[value] != elements || double_[value] != is_double) {
      Fail("tensor " + std::to_string(value) + " is used as two types");
    }
  }

  // That of a given tensor; of one that no product reads, what is given.
  void Given(int value, const TensorType& type, const std::string& what) {
    const bool is_double = type.dtype.bits == 64;
    size_t bytes = 0;
    const bool sized = type.Bytes(&bytes) && type.dtype.code == kDLFloat && type.dtype.lanes == 1 &&
                       (is_double || type.dtype.bits == 32);
    const auto elements = static_cast<int64_t>(bytes / (is_double ? 8 : 4));
    if (!sized || (elements_[value] != 0 && (elements_[value] != elements || double_[value] != is_double))) {
      Fail(what + " is " + type.Text() + ", its products want " + std::to_string(elements_[value]) +
           (double_[value] ? " elements of float64" : " elements of float32"));
    }
    elements_[value] = elements;
    double_[value] = is_double;
  }

  void WantAll(const BlasProduct& p) {
    Want(p.left, (p.left_batch ? p.batch : 1) * p.m * p.k, p.is_double);
    Want(p.right, (p.right_batch ? p.batch : 1) * p.k * p.n, p.is_double);
    if (p.bias >= 0) Want(p.bias, p.n, p.is_double);
    if (p.residual >= 0) Want(p.residual, p.ResultElements(), p.is_double);
    Want(p.result, p.ResultElements(), p.is_double);
  }

 private:
  std::vector<bool> made_;
  std::vector<int64_t> elements_;  // 0 while nobody knows
  std::vector<bool> double_;
};

void CheckOrder(const BlasProgram& program) {
  Tensors tensors(program);
  for (const int value : program.inputs) tensors.Make(value);
  for (const int value : program.constants) tensors.Make(value);
  for (const BlasProduct& p : program.products) {
    for (const int value : {p.left, p.right, p.bias, p.residual}) {
      if (value >= 0) tensors.Read(value);
    }
    tensors.Make(p.result);
    tensors.WantAll(p);
  }
  for (const int value : program.outputs) tensors.Read(value);
}

}  // namespace

BlasProgram BlasProgram::Parse(const std::string& text) {
  BlasProgram program;
  std::istringstream lines(text);
  std::string line;
  bool whole = std::getline(lines, line) && line == kFirstLine;
  while (whole && std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "product") {
      BlasProduct product;
      whole = ReadProduct(&words, &product);
      for (int value : {product.result, product.left, product.right, product.bias, product.residual}) {
        whole = whole && value < kMostValues;
        program.num_values = std::max(program.num_values, whole ? value + 1 : 0);
      }
      program.products.push_back(product);
    } else {
      int value = -1;
      std::string more;
      whole = words >> value && value >= 0 && value < kMostValues && !(words >> more);
      program.num_values = std::max(program.num_values, whole ? value + 1 : 0);
      if (kind == "input") {
        program.inputs.push_back(value);
      } else if (kind == "constant") {
        program.constants.push_back(value);
      } else if (kind == "output") {
        program.outputs.push_back(value);
      } else {
        whole = false;
      }
    }
  }
  if (!whole) {
    throw std::runtime_error("it was written by another version of Collage, or is damaged (at \"" +
                             Shown(line) + "\"); compile the model again");
  }
  CheckOrder(program);
  return program;
}

BlasProgram BlasProgram::Of(const RegionProgram& region) {
  BlasProgram program = Parse(region.text);
  std::vector<TensorType> constants;
  for (size_t i = 0; i < region.constants.size(); ++i) constants.push_back(region.constants.Type(i));
  program.CheckTensors(region.inputs, constants, region.outputs);
  return program;
}

void BlasProgram::CheckTensors(const std::vector<TensorType>& input_types,
                               const std::vector<TensorType>& constant_types,
                               const std::vector<TensorType>& output_types) const {
  Tensors tensors(*this);
  for (const BlasProduct& p : products) tensors.WantAll(p);
  const auto check = [&](const std::vector<int>& values, const std::vector<TensorType>& types,
                         const std::string& what) {
    if (values.size() != types.size()) {
      Fail("the program speaks of " + std::to_string(values.size()) + " " + what + "s, " +
           std::to_string(types.size()) + " are there");
    }
    for (size_t i = 0; i < values.size(); ++i)
      tensors.Given(values[i], types[i], what + " " + std::to_string(i));
  };
  check(inputs, input_types, "input");
  check(constants, constant_types, "constant");
  check(outputs, output_types, "output");
}

}  // namespace collage
