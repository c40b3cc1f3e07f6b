// SPDX-License-Identifier: Apache-2.0
#include "native/workspace.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "native/divide_up.h"

namespace collage::native {
namespace {

constexpr size_t kPage = 4096;

struct Pool {
  std::mutex mutex;
  // What is free, the block that was used last at the end.
  std::vector<std::pair<AlignedMemory, size_t>> free;
  // The sizes that living regions lease.
  std::multiset<size_t> reserved;
};

// Never destroyed: a model may outlive the end of main.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void AlignedFree::operator()(void* pointer) const { std::free(pointer); }

AlignedMemory AllocateAligned(size_t bytes) {
  const size_t size = RoundUp(std::max<size_t>(bytes, 1), kPage);
  void* pointer = nullptr;
  if (posix_memalign(&pointer, size < kHugePage ? kPage : kHugePage, size) != 0) throw std::bad_alloc();
  // Weights and values are read from end to end, by all threads: with small pages much of the time goes into
  // finding where these lie. Only whole huge pages are asked for, so that no more memory is held. Where the
  // kernel has none, the block is as good as any.
  if (size >= kHugePage) (void)madvise(pointer, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return AlignedMemory(pointer);
}

WorkspaceLease::WorkspaceLease(size_t bytes) {
  if (bytes == 0) return;
  Pool& pool = ThePool();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    for (size_t i = pool.free.size(); i-- > 0;) {
      if (pool.free[i].second < bytes) continue;
      std::tie(memory_, size_) = std::move(pool.free[i]);
      pool.free.erase(pool.free.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    // All are too small, and a larger one takes the place of one of them.
    if (!pool.free.empty()) pool.free.pop_back();
    size_ = pool.reserved.empty() ? bytes : std::max(bytes, *pool.reserved.rbegin());
  }
  memory_ = AllocateAligned(size_);
}

WorkspaceLease::~WorkspaceLease() {
  if (memory_ == nullptr) return;
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (!pool.reserved.empty()) pool.free.emplace_back(std::move(memory_), size_);
}

WorkspaceReservation::WorkspaceReservation(size_t bytes) : bytes_(bytes) {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.reserved.insert(bytes_);
}

WorkspaceReservation::~WorkspaceReservation() {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.reserved.erase(pool.reserved.find(bytes_));
  // What is larger than any region that is left needs, or is wanted by nobody, goes back to the system.
  const size_t largest = pool.reserved.empty() ? 0 : *pool.reserved.rbegin();
  auto useless = [largest](const auto& block) { return block.second > largest; };
  pool.free.erase(std::remove_if(pool.free.begin(), pool.free.end(), useless), pool.free.end());
}

size_t PlanOffsets(std::vector<Interval*> intervals) {
  // The largest first, each at the lowest place where it fits.
  std::stable_sort(intervals.begin(), intervals.end(),
                   [](const Interval* a, const Interval* b) { return a->bytes > b->bytes; });
  size_t total = 0;
  std::vector<const Interval*> placed;  // by offset
  for (Interval* one : intervals) {
    size_t offset = 0;
    for (const Interval* other : placed) {
      if (other->last < one->first || one->last < other->first) continue;
      if (offset + one->bytes <= other->offset) break;
      offset = std::max(offset, RoundUp(other->offset + other->bytes, kAlignment));
    }
    one->offset = offset;
    total = std::max(total, offset + RoundUp(one->bytes, kAlignment));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), one,
                         [](const Interval* a, const Interval* b) { return a->offset < b->offset; }),
        one);
  }
  return total;
}

}  // namespace collage::native
