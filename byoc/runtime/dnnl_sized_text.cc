// SPDX-License-Identifier: Apache-2.0
#include "dnnl_sized_text.h"

#include <cmath>
#include <stdexcept>

namespace collage::onednn {
namespace {

constexpr int kForm = 1;
constexpr char kBegin[] = "{\"format\":\"collage-sized\"";

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error("what the engine is told for all sizes cannot be read (" + what +
                           "); compile the model again with this version of Collage");
}

const picojson::value& Get(const picojson::value& object, const char* name) {
  if (!object.is<picojson::object>()) Fail("an object was expected");
  const auto& fields = object.get<picojson::object>();
  const auto found = fields.find(name);
  if (found == fields.end()) Fail(std::string("the field ") + name + " is not there");
  return found->second;
}

// A list; null is an empty one.
const picojson::array& List(const picojson::value& value, const char* name) {
  static const picojson::array empty;
  if (value.is<picojson::null>()) return empty;
  if (!value.is<picojson::array>()) Fail(std::string(name) + " is no list");
  return value.get<picojson::array>();
}

int64_t Whole(const picojson::value& value, const char* name) {
  constexpr double kMostExact = 9007199254740992;  // 2^53
  if (!value.is<double>()) Fail(std::string(name) + " is no number");
  const double number = value.get<double>();
  if (!(std::abs(number) <= kMostExact) || number != std::trunc(number)) {
    Fail(std::string(name) + " is no whole number");
  }
  return static_cast<int64_t>(number);
}

}  // namespace

std::vector<SizedText::Term> SizedText::ReadTerms(const picojson::value& value, size_t num_sizes) {
  std::vector<Term> terms;
  for (const picojson::value& written : List(value, "a number")) {
    const picojson::array& parts = List(written, "a term");
    if (parts.size() != num_sizes + 1) Fail("a term has not an exponent for each size");
    Term term;
    term.factor = Whole(parts[0], "a factor");
    for (size_t i = 1; i < parts.size(); ++i) {
      const int64_t exponent = Whole(parts[i], "an exponent");
      if (exponent < 0 || exponent > 8) Fail("an exponent is out of range");
      term.exponents.push_back(exponent);
    }
    terms.push_back(std::move(term));
  }
  return terms;
}

bool SizedText::Is(const std::string& text) { return text.compare(0, sizeof kBegin - 1, kBegin) == 0; }

SizedText::SizedText(const std::string& text, size_t num_inputs) {
  picojson::value root;
  std::string error;
  // The writer nests five deep at most; picojson calls itself for what is nested.
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > 8)
      Fail("it is nested too deeply");
    else if (!quoted && (text[i] == ']' || text[i] == '}'))
      --depth;
  }
  try {
    picojson::parse(root, text.data(), text.data() + text.size(), &error);
  } catch (const std::overflow_error&) {
    Fail("it holds a number that is none");
  }
  if (!error.empty()) Fail(error);
  if (Whole(Get(root, "version"), "version") != kForm) Fail("it is of another version");
  for (const picojson::value& place : List(Get(root, "sizes"), "sizes")) {
    const picojson::array& pair = List(place, "a size's place");
    if (pair.size() != 2) Fail("a size's place is no pair");
    const int64_t input = Whole(pair[0], "an input"), dimension = Whole(pair[1], "a dimension");
    if (input < 0 || static_cast<size_t>(input) >= num_inputs || dimension < 0) {
      Fail("a size is of an input that is not there");
    }
    places_.emplace_back(input, dimension);
  }
  if (root.contains("quotients")) {
    for (const picojson::value& value : List(Get(root, "quotients"), "quotients")) {
      Quotient one{ReadTerms(Get(value, "of"), num_sizes()), Whole(Get(value, "by"), "a divisor")};
      if (one.by < 1) Fail("a divisor is out of range");
      quotients_.push_back(std::move(one));
    }
  }
  for (const picojson::value& value : List(Get(root, "texts"), "texts")) {
    Text one;
    one.ones.resize(num_sizes());
    for (const picojson::value& index : List(Get(value, "ones"), "ones")) {
      const int64_t at = Whole(index, "ones");
      if (at < 0 || static_cast<size_t>(at) >= num_sizes()) Fail("ones has a size that is not there");
      one.ones[at] = true;
    }
    for (const picojson::value& piece : List(Get(value, "pieces"), "pieces")) {
      if (!piece.is<std::string>()) Fail("a piece is no text");
      one.pieces.push_back(piece.get<std::string>());
    }
    for (const picojson::value& number : List(Get(value, "numbers"), "numbers")) {
      one.numbers.push_back(ReadTerms(number, num_sizes()));
    }
    if (one.pieces.size() != one.numbers.size() + 1) Fail("there is not one piece more than numbers");
    texts_.push_back(std::move(one));
  }
  if (texts_.empty()) Fail("it holds no text");
}

void SizedText::SizesOf(const std::vector<const DLTensor*>& inputs, std::vector<int64_t>* sizes) const {
  sizes->clear();
  for (const auto& [input, dimension] : places_) {
    if (static_cast<int64_t>(dimension) >= inputs[input]->ndim)
      Fail("a size is of a dimension that is not there");
    sizes->push_back(inputs[input]->shape[dimension]);
  }
  for (const Quotient& one : quotients_) {
    const int64_t dividend = Sum(one.of, *sizes);
    if (dividend < 0) throw std::runtime_error("the region was not written for these sizes");
    sizes->push_back(dividend / one.by);
  }
}

int64_t SizedText::Sum(const std::vector<Term>& terms, const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (const Term& term : terms) {
    int64_t product = term.factor;
    bool fits = true;
    for (size_t i = 0; i < term.exponents.size(); ++i) {
      for (int64_t k = 0; k < term.exponents[i]; ++k) {
        fits = fits && !__builtin_mul_overflow(product, sizes[i], &product);
      }
    }
    if (!fits || __builtin_add_overflow(sum, product, &sum)) {
      throw std::runtime_error("tensors of these sizes are larger than any memory");
    }
  }
  return sum;
}

std::string SizedText::At(const std::vector<int64_t>& sizes) const {
  for (const Text& one : texts_) {
    bool fits = true;  // the last one's `ones`, none, fit always
    for (size_t i = 0; i < sizes.size(); ++i) fits = fits && (!one.ones[i] || sizes[i] == 1);
    if (!fits) continue;
    std::string text = one.pieces[0];
    for (size_t i = 0; i < one.numbers.size(); ++i) {
      text += std::to_string(Sum(one.numbers[i], sizes));
      text += one.pieces[i + 1];
    }
    return text;
  }
  throw std::runtime_error("the region was not written for these sizes");
}

}  // namespace collage::onednn
