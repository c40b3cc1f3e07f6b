// SPDX-License-Identifier: Apache-2.0
//
// Runs steps that follow one another on the same threads, which stay together from the first step to the
// last.
//
// A parallel loop for each step costs some microseconds to begin and to end, as much as small steps take.
// Here the threads wait for one another between steps by looking at a counter, a fraction of a microsecond.
// Nobody is waited for who has not come: pieces of a step that no other thread has begun are done by the
// caller, so that a thread of oneTBB that is busy elsewhere, or not there at all, costs only its help.
#ifndef COLLAGE_NATIVE_CREW_H_
#define COLLAGE_NATIVE_CREW_H_

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace collage::native {

// Work on addresses that can be done in so many pieces, by as many threads.
struct PieceWork {
  int pieces = 1;
  std::function<void(void* const* data, int piece)> work;
};

// A step: work(data, piece) for each of the pieces, which do not depend on one another.
struct Shift {
  int pieces = 1;
  const std::function<void(void* const* data, int piece)>* work = nullptr;
  void* const* data = nullptr;
};

class Crew {
 public:
  // At most so many pieces are in a step.
  static constexpr int kMostPieces = 48;

  // For lists of at most so many steps.
  explicit Crew(size_t steps);

  // Runs the steps in order on the calling thread and up to threads - 1 others of its arena; what a piece
  // throws is thrown again, and the steps behind it are not run. Not to be called twice at the same time.
  void Run(const Shift* shifts, int count, int threads);

 private:
  struct alignas(64) State {
    std::atomic<int> left;
    std::atomic<bool> taken[kMostPieces];
  };

  // Does the pieces of a step that nobody has taken, first the one with the thread's own number, which it did
  // of the steps before, too: what they wrote is in its caches.
  void Work(const Shift& shift, State& state, int thread);
  void Help(const Shift* shifts, int count, int thread);

  std::unique_ptr<State[]> states_;
  // The step whose pieces may be taken.
  alignas(64) std::atomic<int> open_{-1};
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::exception_ptr thrown_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_CREW_H_
