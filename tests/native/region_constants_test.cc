// SPDX-License-Identifier: Apache-2.0
//
// A region's weights as they are saved and read again, whole and damaged.
#include "region_constants.h"

#include <dmlc/memory_io.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace collage {
namespace {

using tvm::runtime::NDArray;

constexpr DLDataType kFloat{kDLFloat, 32, 1};

RegionConstants Made() {
  std::vector<NDArray> tensors;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 3}, {}, {5}}) {
    tensors.push_back(NDArray::Empty({shape.begin(), shape.end()}, kFloat, {kDLCPU, 0}));
    auto* const values = static_cast<float*>(tensors.back()->data);
    std::iota(values, values + tvm::runtime::GetDataSize(*tensors.back().operator->()) / sizeof(float), 1.0F);
  }
  return RegionConstants(tensors);
}

std::string Saved() {
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  Made().Save(&stream);
  return text;
}

// Both ways in which TVM hands a module's bytes over.
bool Loads(std::string text, RegionConstants* constants) {
  RegionConstants again;
  dmlc::MemoryStringStream stream(&text);
  const bool streamed = again.Load(&stream);
  std::vector<char> memory(text.begin(), text.end());
  dmlc::MemoryFixedSizeStream fixed(memory.data(), memory.size());
  const bool loaded = constants->Load(&fixed);
  EXPECT_EQ(streamed, loaded);
  return loaded;
}

TEST(RegionConstants, ComeBackAsTheyWere) {
  RegionConstants constants;
  ASSERT_TRUE(Loads(Saved(), &constants));
  ASSERT_EQ(constants.size(), 3u);
  EXPECT_EQ(constants.PieceBytes(), 3 * RegionConstants::kAlignment);
  EXPECT_EQ(constants.Type(0).Text(), "float32 [2, 3]");
  const RegionConstants made = Made();
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(constants.Bytes(i), made.Bytes(i));
    EXPECT_EQ(std::memcmp(constants.Tensor(i)->data, made.Tensor(i)->data, made.Bytes(i)), 0) << i;
  }
}

TEST(RegionConstants, RefuseEveryBeginning) {
  const std::string text = Saved();
  for (size_t size = 0; size < text.size(); ++size) {
    RegionConstants constants;
    EXPECT_FALSE(Loads(text.substr(0, size), &constants)) << size;
  }
}

TEST(RegionConstants, RefuseEveryChangeOfWhatTheyAre) {
  const std::string text = Saved();
  const size_t header = text.size() - 3 * RegionConstants::kAlignment;
  // Count, three types (of 2, 0 and 1 axes), the gap's size, the seal; then come zeros.
  const size_t sealed = 8 + 3 * (4 + 8) + 3 * 8 + 8 + 8;
  ASSERT_LE(sealed, header);
  for (size_t at = 0; at < sealed; ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      RegionConstants constants;
      EXPECT_FALSE(Loads(damaged, &constants)) << at << " " << bit;
    }
  }
}

// A writer that seals what cannot be.
std::string Sealed(const std::vector<TensorType>& types, uint64_t gap) {
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  CheckedWriter writer(&stream);
  writer.Types(types);
  writer.Number(gap);
  writer.Seal();
  return text + std::string(256, 'x');
}

TEST(RegionConstants, RefuseSizesThatCannotBe) {
  RegionConstants constants;
  EXPECT_TRUE(Loads(Sealed({{kFloat, {4}}}, 0), &constants));
  EXPECT_FALSE(Loads(Sealed({{kFloat, {4}}}, 64), &constants));
  EXPECT_FALSE(Loads(Sealed({{kFloat, {-4}}}, 0), &constants));
  EXPECT_FALSE(Loads(Sealed({{kFloat, {65}}}, 0), &constants)) << "more than there is";
  const int64_t half = int64_t{1} << 32;
  EXPECT_FALSE(Loads(Sealed({{kFloat, {half, half}}}, 0), &constants)) << "2^66 bytes are 0 in 64 bits";
  EXPECT_FALSE(Loads(Sealed({{kFloat, {0, half, half, half}}, {kFloat, {INT64_MAX}}}, 0), &constants));
  EXPECT_TRUE(Loads(Sealed({{kFloat, {0, half}}}, 0), &constants)) << "nothing is nothing";
  const std::vector<TensorType> many(8, {kFloat, {int64_t{1} << 59}});
  EXPECT_FALSE(Loads(Sealed(many, 0), &constants)) << "the sum is beyond 64 bits";
  EXPECT_FALSE(Loads(Sealed({{kFloat, std::vector<int64_t>(65, 1)}}, 0), &constants)) << "too many axes";
}

TEST(RegionConstants, RefuseCountsThatTheStreamDoesNotHold) {
  for (const uint64_t count : {uint64_t{1} << 20, UINT64_MAX}) {
    std::string text(reinterpret_cast<const char*>(&count), sizeof(count));
    RegionConstants constants;
    EXPECT_FALSE(Loads(text + std::string(64, '\0'), &constants));
    dmlc::MemoryStringStream stream(&text);
    std::string read;
    EXPECT_FALSE(CheckedReader(&stream).Text(&read)) << "no memory is asked for";
  }
}

}  // namespace
}  // namespace collage
