// SPDX-License-Identifier: Apache-2.0
//
// Keeps oneTBB's workers off the processor of the thread that they help.
#ifndef COLLAGE_APART_H_
#define COLLAGE_APART_H_

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

namespace collage {

// Watches an arena for as long as it exists.
//
// The kernel likes to wake a thread on the processor of the one that wakes it. After a pause of some
// milliseconds a worker thus often comes to stand in line behind the very thread that waits for it, until the
// balance comes, milliseconds later: one parallel loop after the other runs on one processor, at half the
// speed on two. So workers may use every processor that they were given but the one on which the calling
// thread is. Where there is no other, nothing is changed.
//
// Only workers that have come into one of our arenas are moved, and they have what they were given again when
// the arenas have been idle for a while. What somebody else sets for a worker, at any time, is what it is
// given from then on (taskset, sched_setaffinity, cpusets).
class Apart final : public tbb::task_scheduler_observer {
 public:
  explicit Apart(tbb::task_arena& arena) : task_scheduler_observer(arena) { observe(true); }

  // On a worker: notes it. On a thread that brings work: moves the workers out of its way.
  void on_scheduler_entry(bool is_worker) override;
};

}  // namespace collage

#endif  // COLLAGE_APART_H_
