// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets have in common.
#ifndef COLLAGE_FUZZ_INPUT_H_
#define COLLAGE_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "checked_stream.h"

namespace collage::fuzz {

// Calls body, which may say that its input is bad, as an std::runtime_error that says what is wrong (TVM's
// errors are such, too). Anything else that is thrown is a finding.
template <typename Body>
void MayRefuse(Body body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    if (*error.what() != '\0') return;
    std::fprintf(stderr, "an error without a text\n");
    std::abort();
  }
}

// Takes numbers off the front of an input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint64_t Below(uint64_t limit) {
    const uint64_t number = Byte();
    return (number << 8 | Byte()) % limit;
  }
  std::string Rest() { return {reinterpret_cast<const char*>(data_), size_}; }

  // A small type of a tensor; now and then one that cannot be.
  TensorType Type() {
    static const DLDataType kTypes[] = {
        {kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLInt, 8, 1}, {kDLUInt, 1, 1}};
    TensorType type{kTypes[Below(4)], {}};
    for (uint64_t rank = Below(5); rank > 0; --rank) {
      const uint8_t extent = Byte();
      type.shape.push_back(extent == 255 ? INT64_MAX / 3 : extent == 254 ? -1 : extent % 8);
    }
    return type;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace collage::fuzz

#endif  // COLLAGE_FUZZ_INPUT_H_
