// SPDX-License-Identifier: Apache-2.0
//
// Divides items of work among workers that have memory of their own.
//
// The memory goes by the number of the worker, and not by that of oneTBB's thread: an arena has more places
// than threads (one of a single thread has two), and nothing but the caller's care keeps a kernel that was
// made for two threads out of an arena of four.
#ifndef COLLAGE_NATIVE_WORKERS_H_
#define COLLAGE_NATIVE_WORKERS_H_

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace collage::native {

// Runs work(item, worker) for each of the items 0 .. items - 1, by at most so many workers side by side: each
// takes the next item until none is left. No two have the same number, from 0 on, at a time.
template <typename Work>
void DivideAmongWorkers(int64_t workers, int64_t items, const Work& work) {
  std::atomic<int64_t> next{0};
  tbb::parallel_for(
      int64_t{0}, std::min(workers, items),
      [&](int64_t worker) {
        for (int64_t item = next++; item < items; item = next++) work(item, worker);
      },
      tbb::simple_partitioner());
}

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WORKERS_H_
