// SPDX-License-Identifier: Apache-2.0
//
// What an engine that knows sizes is told about a region with open dimensions. In: the text for all sizes as
// the code generator wrote it (byoc/region/sized.go). Out: for the sizes of one call, the text as it would be
// of a region with these.
#ifndef COLLAGE_DNNL_SIZED_TEXT_H_
#define COLLAGE_DNNL_SIZED_TEXT_H_

#include <dlpack/dlpack.h>
#include <picojson.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace collage::onednn {

class SizedText {
 public:
  // Whether a text is one for all sizes.
  static bool Is(const std::string& text);
  // Throws std::runtime_error where the text cannot be read, or names what a region of so many inputs has
  // not.
  SizedText(const std::string& text, size_t num_inputs);

  size_t num_sizes() const { return places_.size() + quotients_.size(); }
  // The sizes of the open dimensions, in order, and behind them their quotients. Throws where an input has
  // not so many dimensions, and where the region does not run at such sizes.
  void SizesOf(const std::vector<const DLTensor*>& inputs, std::vector<int64_t>* sizes) const;
  // The text at these sizes, num_sizes() of them. Throws where they are for none of the texts, or too large.
  std::string At(const std::vector<int64_t>& sizes) const;

 private:
  struct Term {
    int64_t factor = 0;
    std::vector<int64_t> exponents;  // by size
  };
  // The terms' sum, over the sizes before it, divided by a number.
  struct Quotient {
    std::vector<Term> of;
    int64_t by = 1;
  };
  struct Text {
    std::vector<bool> ones;  // by size: it is 1
    std::vector<std::string> pieces;
    std::vector<std::vector<Term>> numbers;
  };
  // With an exponent for each of so many sizes.
  static std::vector<Term> ReadTerms(const picojson::value& value, size_t num_sizes);
  static int64_t Sum(const std::vector<Term>& terms, const std::vector<int64_t>& sizes);

  std::vector<std::pair<size_t, size_t>> places_;  // input, dimension
  std::vector<Quotient> quotients_;
  std::vector<Text> texts_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_SIZED_TEXT_H_
