// SPDX-License-Identifier: Apache-2.0
//
// Divides items of work among workers that have memory of their own.
//
// The memory goes by the number of the worker, and not by that of oneTBB's thread: an arena has more places
// than threads (one of a single thread has two), and nothing but the caller's care keeps a kernel that was
// made for two threads out of an arena of four.
//
// All that kernels know of threads is here. Where COLLAGE_ONE_THREAD is defined, as in tests on processors
// for which there is no oneTBB at hand, they work on the caller's alone.
#ifndef COLLAGE_NATIVE_WORKERS_H_
#define COLLAGE_NATIVE_WORKERS_H_

#ifndef COLLAGE_ONE_THREAD
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace collage::native {

// Runs work(item, worker) for each of the items 0 .. items - 1, by at most so many workers side by side, of
// which no two have the same number, from 0 on, at a time. Each begins with a share of items that follow one
// another, the same one whenever as many are divided, so that what it made in one step, or of a neighbour, is
// in its caches in the next; when it is done with that, it helps with the other shares.
template <typename Work>
void DivideAmongWorkers(int64_t workers, int64_t items, const Work& work) {
  workers = std::min(workers, items);
#ifndef COLLAGE_ONE_THREAD
  if (workers > 1) {
    // The next item of a share, in a cache line of its own.
    struct alignas(64) Share {
      std::atomic<int64_t> next{0};
    };
    const std::unique_ptr<Share[]> shares(new Share[static_cast<size_t>(workers)]);
    const auto begin = [&](int64_t share) { return share * items / workers; };
    for (int64_t share = 0; share < workers; ++share) shares[static_cast<size_t>(share)].next = begin(share);
    tbb::parallel_for(
        int64_t{0}, workers,
        [&](int64_t worker) {
          for (int64_t other = 0; other < workers; ++other) {
            const int64_t share = (worker + other) % workers, end = begin(share + 1);
            std::atomic<int64_t>& next = shares[static_cast<size_t>(share)].next;
            // Looked at before it is taken from: of many workers that are done none disturbs those that are
            // not.
            while (next.load(std::memory_order_relaxed) < end) {
              const int64_t item = next++;
              if (item < end) work(item, worker);
            }
          }
        },
        tbb::simple_partitioner());
    return;
  }
#endif
  if (workers > 0) {
    for (int64_t item = 0; item < items; ++item) work(item, int64_t{0});
  }
}

// Runs work(begin, end) on pieces of 0 .. count, none smaller than `least` but the last, on the threads that
// there are.
template <typename Work>
void DivideRange(int64_t count, int64_t least, const Work& work) {
#ifdef COLLAGE_ONE_THREAD
  (void)least;
  if (count > 0) work(int64_t{0}, count);
#else
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, least),
                    [&](const tbb::blocked_range<int64_t>& range) { work(range.begin(), range.end()); });
#endif
}

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WORKERS_H_
