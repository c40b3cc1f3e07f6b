// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <tvm/runtime/logging.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "apart.h"
#include "collage_runtime.h"
#include "mapped_library.h"

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
  // The last choice of all, and the last one that is for models with a number of their own, too.
  std::atomic<tbb::task_arena*> current{nullptr}, asked{nullptr};
  // How many choices there have been, and which of them is the one in `asked`.
  std::atomic<uint64_t> choices{0}, asked_when{0};
  std::map<const void*, std::weak_ptr<ModelThreads>> models;
  std::list<tbb::global_control> limits;
  std::list<Apart> watchers;

  // With the mutex held.
  tbb::task_arena* OfSize(int size) {
    tbb::task_arena*& arena = by_size[size];
    if (arena == nullptr) {
      // oneTBB keeps no more workers than there are processors unless told so. The limit is only ever
      // raised: the arena does the limiting, and the host program may use oneTBB for work of its own.
      if (size > tbb::info::default_concurrency()) {
        limits.emplace_back(tbb::global_control::max_allowed_parallelism, size);
      }
      arena = new tbb::task_arena(size);
      watchers.emplace_back(*arena);
    }
    return arena;
  }

  // Makes an arena the current one; store(arena, when) notes whose choice it was.
  template <typename Store>
  tbb::task_arena* Switch(int requested, Store store) {
    const int size = ResolveNumThreads(requested);
    std::lock_guard<std::mutex> lock(mutex);
    tbb::task_arena* arena = OfSize(size);
    store(arena, choices.fetch_add(1, std::memory_order_acq_rel) + 1);
    current.store(arena, std::memory_order_release);
    return arena;
  }
};

Arenas& AllArenas() {
  static Arenas* const arenas = new Arenas;
  return *arenas;
}

// The arena that RunInArena has brought this thread into.
thread_local tbb::task_arena* inside = nullptr;

// An arena of one thread, for the calling thread alone. Where several threads want to be in one such arena,
// oneTBB enqueues what they bring, lends the arena a worker beyond its size ("mandatory concurrency"), and
// tells all who ask just then that it has two threads: oneDNN, for one, which would divide among two what it
// has memory for one of.
tbb::task_arena& ArenaOfThisThreadAlone() {
  thread_local tbb::task_arena arena(1);
  return arena;
}

}  // namespace

tbb::task_arena& CurrentArena() {
  if (inside != nullptr) return *inside;
  Arenas& arenas = AllArenas();
  tbb::task_arena* arena = arenas.current.load(std::memory_order_acquire);
  return arena != nullptr ? *arena : *arenas.Switch(0, [](tbb::task_arena*, uint64_t) {});
}

void SetNumThreads(int requested) {
  Arenas& arenas = AllArenas();
  arenas.Switch(requested, [&](tbb::task_arena* arena, uint64_t when) {
    arenas.asked.store(arena, std::memory_order_release);
    arenas.asked_when.store(when, std::memory_order_release);
  });
}

void RunInArena(tbb::task_arena& arena, void (*body)(void*), void* data) {
  if (inside == &arena) return body(data);
  tbb::task_arena& place = arena.max_concurrency() == 1 ? ArenaOfThisThreadAlone() : arena;
  place.execute([&] {
    // Here, since execute may have another thread run this, one that stands in the middle of other work.
    tbb::task_arena* const outside = std::exchange(inside, &arena);
    body(data);
    inside = outside;
  });
}

void RunInArenaOfThisThread(void (*body)(void*), void* data) {
  ArenaOfThisThreadAlone().execute([=] { body(data); });
}

void ModelThreads::Choose(int requested) {
  AllArenas().Switch(requested, [this](tbb::task_arena* arena, uint64_t when) {
    when_.store(when, std::memory_order_release);
    arena_.store(arena, std::memory_order_release);
  });
}

void ModelThreads::Choose(const ModelThreads& other) {
  when_.store(other.when_.load(std::memory_order_acquire), std::memory_order_release);
  arena_.store(other.Chosen(), std::memory_order_release);
}

tbb::task_arena& ModelThreads::Arena() const {
  tbb::task_arena* const chosen = Chosen();
  if (chosen == nullptr) return CurrentArena();
  Arenas& arenas = AllArenas();
  if (arenas.asked_when.load(std::memory_order_acquire) < when_.load(std::memory_order_acquire))
    return *chosen;
  return *arenas.asked.load(std::memory_order_acquire);
}

std::shared_ptr<ModelThreads> ThreadsOfModel(dmlc::Stream* stream) {
  const char* const next = AddressOfNext(stream, 0);
  if (next == nullptr) return std::make_shared<ModelThreads>();
  const void* const saved_modules = next - dynamic_cast<dmlc::SeekStream*>(stream)->Tell();
  Arenas& arenas = AllArenas();
  std::lock_guard<std::mutex> lock(arenas.mutex);
  for (auto it = arenas.models.begin(); it != arenas.models.end();) {
    it = it->second.expired() ? arenas.models.erase(it) : std::next(it);
  }
  std::weak_ptr<ModelThreads>& known = arenas.models[saved_modules];
  std::shared_ptr<ModelThreads> threads = known.lock();
  if (threads == nullptr) known = threads = std::make_shared<ModelThreads>();
  return threads;
}

}  // namespace collage

void collage_run_in_arena(void (*body)(void*), void* data) {
  collage::RunInArena(collage::CurrentArena(), body, data);
}

int collage_num_threads() { return collage::CurrentArena().max_concurrency(); }
