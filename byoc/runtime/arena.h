// SPDX-License-Identifier: Apache-2.0
//
// The arenas: sets of oneTBB threads on which executables run TVM's parallel loops and the libraries'
// kernels. There is one for each number of threads that was ever asked for, and models that ask for the same
// share it.
#ifndef COLLAGE_ARENA_H_
#define COLLAGE_ARENA_H_

#include <dmlc/io.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

namespace collage {

// The arena that the calling thread is in (RunInArena); outside of any, the one that was chosen last. Made at
// the first use. It stays valid for ever. Any thread may ask.
tbb::task_arena& CurrentArena();

// Asks for an arena of the given number of threads (0 or less: as many as the machine offers to this
// process), for all that runs from now on, models that were loaded with a number of their own included. What
// the environment says goes first: COLLAGE_NUM_THREADS, else TVM_NUM_THREADS. Work under way finishes in the
// arena where it began.
void SetNumThreads(int requested);

// What calls a body that may throw where none may.
template <typename Body>
struct Catching {
  Body* body;
  std::exception_ptr thrown;

  static void Run(void* data) {
    auto* call = static_cast<Catching*>(data);
    try {
      (*call->body)();
    } catch (...) {
      call->thrown = std::current_exception();
    }
  }
};

// Runs body(data) inside the arena: on the calling thread, or on one of the arena's where it is full. The
// body must not throw.
void RunInArena(tbb::task_arena& arena, void (*body)(void*), void* data);

// The same for anything that takes no arguments. What it throws is thrown here.
template <typename Body>
void RunInArena(tbb::task_arena& arena, Body body) {
  Catching<Body> call{&body, nullptr};
  RunInArena(arena, Catching<Body>::Run, &call);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

// The same in an arena of the calling thread alone, for a library that makes arenas of its own while it runs.
// Up to oneTBB 2021.13.2, one that is bound to processors looks the thread that makes it up by the place that
// it has in the arena around, beyond the end of its own table where that arena is larger
// (uxlfoundation/oneTBB, pull request 2121). CurrentArena stays what it was.
void RunInArenaOfThisThread(void (*body)(void*), void* data);

template <typename Body>
void RunInArenaOfThisThread(Body body) {
  Catching<Body> call{&body, nullptr};
  RunInArenaOfThisThread(Catching<Body>::Run, &call);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

// A model's own number of threads. It holds for that model whatever other models are loaded, until somebody
// calls SetNumThreads. Any thread may use it.
class ModelThreads {
 public:
  // Chooses an arena as SetNumThreads does, for this model, and for all that has no number of its own.
  void Choose(int requested);
  // Takes over another's choice.
  void Choose(const ModelThreads& other);

  // The arena to run in now. Before the first choice: CurrentArena().
  tbb::task_arena& Arena() const;
  // The chosen one; null before the first choice.
  tbb::task_arena* Chosen() const { return arena_.load(std::memory_order_acquire); }

 private:
  std::atomic<tbb::task_arena*> arena_{nullptr};
  // When it was chosen, by the count of choices.
  std::atomic<uint64_t> when_{0};
};

// That of the model whose modules are being read from the stream: the same one for all of its modules, for as
// long as one of them holds it. Where the stream does not read from a library, a new one.
std::shared_ptr<ModelThreads> ThreadsOfModel(dmlc::Stream* stream);

}  // namespace collage

#endif  // COLLAGE_ARENA_H_
