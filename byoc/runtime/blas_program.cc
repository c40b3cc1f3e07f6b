// SPDX-License-Identifier: Apache-2.0
#include "blas_program.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace collage {
namespace {

constexpr char kFirstLine[] = "collage-blas 1";

bool ReadProduct(std::istringstream* words, BlasProduct* p) {
  std::string dtype, activation;
  *words >> dtype >> p->result >> p->left >> p->right >> p->m >> p->n >> p->k >> p->batch >> p->left_batch >>
      p->right_batch >> p->left_transposed >> p->right_transposed >> p->alpha >> p->bias >> p->residual >>
      activation;
  if (!*words || (dtype != "float32" && dtype != "float64")) return false;
  p->is_double = dtype == "float64";
  if (activation == "relu") {
    p->activation = BlasActivation::kRelu;
  } else if (activation == "gelu") {
    p->activation = BlasActivation::kGelu;
  } else if (activation != "none") {
    return false;
  }
  return std::min({p->m, p->n, p->k, p->batch}) > 0 && std::min({p->result, p->left, p->right}) >= 0;
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
    if (kind == "library") {
      // The rest of the line: a path may hold spaces.
      std::getline(words >> std::ws, program.library);
    } else if (kind == "product") {
      BlasProduct product;
      whole = ReadProduct(&words, &product);
      for (int value : {product.result, product.left, product.right, product.bias, product.residual}) {
        program.num_values = std::max(program.num_values, value + 1);
      }
      program.products.push_back(product);
    } else {
      int value = -1;
      words >> value;
      whole = words && value >= 0;
      program.num_values = std::max(program.num_values, value + 1);
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
    throw std::runtime_error("it was written by another version of Collage (at \"" + line +
                             "\"); compile the model again");
  }
  return program;
}

}  // namespace collage
