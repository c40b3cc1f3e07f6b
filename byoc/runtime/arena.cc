// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <tvm/runtime/logging.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>

#include "apart.h"
#include "collage_runtime.h"

namespace collage {
namespace {

// More threads than this are a typing error, not a wish.
constexpr int kMaxThreads = 4096;

// What the variable asks for, or 0 where it is unset or no number of threads.
int ThreadsFromEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < 1 || value > kMaxThreads) {
    LOG(WARNING) << "collage: " << variable << "=" << text << " is not a number of threads between 1 and "
                 << kMaxThreads << "; ignored";
    return 0;
  }
  return static_cast<int>(value);
}

int ResolveNumThreads(int requested) {
  for (const char* variable : {"COLLAGE_NUM_THREADS", "TVM_NUM_THREADS"}) {
    if (int n = ThreadsFromEnvironment(variable)) return n;
  }
  if (requested > 0) return requested < kMaxThreads ? requested : kMaxThreads;
  return tbb::info::default_concurrency();
}

// One arena for each size that was ever asked for. Nothing here is ever destroyed: a launch on another
// thread may still be using an arena, and at exit oneTBB may already be gone.
struct Arenas {
  std::mutex mutex;
  std::map<int, tbb::task_arena*> by_size;
  std::atomic<tbb::task_arena*> current{nullptr};

  tbb::task_arena* Switch(int requested) {
    const int size = ResolveNumThreads(requested);
    std::lock_guard<std::mutex> lock(mutex);
    tbb::task_arena*& arena = by_size[size];
    if (arena == nullptr) {
      // oneTBB keeps no more workers than there are processors unless told so. The limit is only ever
      // raised: the arena does the limiting, and the host program may use oneTBB for work of its own.
      if (size > tbb::info::default_concurrency()) {
        new tbb::global_control(tbb::global_control::max_allowed_parallelism, size);
      }
      arena = new tbb::task_arena(size);
      new Apart(*arena);
    }
    current.store(arena, std::memory_order_release);
    return arena;
  }
};

Arenas& AllArenas() {
  static Arenas* const arenas = new Arenas;
  return *arenas;
}

}  // namespace

tbb::task_arena& CurrentArena() {
  Arenas& arenas = AllArenas();
  tbb::task_arena* arena = arenas.current.load(std::memory_order_acquire);
  return arena != nullptr ? *arena : *arenas.Switch(0);
}

void SetNumThreads(int requested) { AllArenas().Switch(requested); }

}  // namespace collage

void collage_run_in_arena(void (*body)(void*), void* data) {
  collage::CurrentArena().execute([=] { body(data); });
}

int collage_num_threads() { return collage::CurrentArena().max_concurrency(); }
