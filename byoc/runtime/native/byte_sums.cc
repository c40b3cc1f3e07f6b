// SPDX-License-Identifier: Apache-2.0
#include "native/byte_sums.h"

#include <algorithm>

#include "native/divide_up.h"
#include "native/post_operands.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// What a worker is given at a time, in sums.
constexpr int64_t kGrain = 1 << 14;

int64_t WholeVectors(int64_t columns) { return RoundUp(columns, BestByteLoops().lanes); }

}  // namespace

size_t ByteSums::PackedSize() const { return static_cast<size_t>(WholeVectors(columns)) * 8; }

void ByteSums::Pack(const float* scales, const int32_t* sums, void* packed) const {
  const int64_t all = WholeVectors(columns);
  std::fill_n(static_cast<uint8_t*>(packed), PackedSize(), uint8_t{0});
  std::copy_n(scales, columns, static_cast<float*>(packed));
  std::copy_n(sums, columns, static_cast<int32_t*>(packed) + all);
}

void ByteSums::Run(const int32_t* sums, const ByteScale* scales, const void* packed, const float* bias,
                   const float* const* addends, float* out) const {
  const std::vector<Operand> operands = OperandsOf(posts, addends, columns);
  const int64_t each = std::max<int64_t>(1, kGrain / columns), pieces = DivideUp(rows, each);
  DivideAmongWorkers(std::max(threads, 1), pieces, [&](int64_t piece, int64_t) {
    ByteWork work;
    work.row = piece * each;
    work.rows = std::min(each, rows - work.row);
    work.columns = columns;
    work.scales = scales;
    work.column_scales = static_cast<const float*>(packed);
    work.column_sums = static_cast<const int32_t*>(packed) + WholeVectors(columns);
    work.bias = bias;
    work.out = out + work.row * columns;
    work.out_row = columns;
    work.posts = posts.data();
    work.num_posts = static_cast<int>(posts.size());
    work.operands = operands.data();
    BestByteLoops().scale(work, sums + work.row * columns);
  });
}

}  // namespace collage::native
