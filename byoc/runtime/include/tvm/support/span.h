// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for a header that TVM's wheel leaves out although <tvm/runtime/metadata.h> includes it.
// Only the reading part that that header uses is here; the layout is of no concern to libtvm, since
// every use is inline.
#ifndef TVM_SUPPORT_SPAN_H_
#define TVM_SUPPORT_SPAN_H_

#include <cstddef>
#include <type_traits>
#include <vector>

namespace tvm {
namespace support {

template <class Element, class Index = Element>
class Span {
 public:
  Span(Element* begin, int size) : Span(begin, begin + size) {}
  Span(Element* begin, Element* end) : begin_(begin), end_(end) {}
  Element* begin() const { return begin_; }
  Element* end() const { return end_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  Element& operator[](int index) const { return begin_[index]; }
  operator std::vector<std::remove_const_t<Index>>() const { return {begin_, end_}; }

 private:
  Element* begin_;
  Element* end_;
};

}  // namespace support
}  // namespace tvm

#endif  // TVM_SUPPORT_SPAN_H_
