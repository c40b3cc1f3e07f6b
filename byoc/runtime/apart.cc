// SPDX-License-Identifier: Apache-2.0
#include "apart.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace collage {
namespace {

// Two threads that bring work in turn, each from a processor of its own, must not chase the workers to and
// fro.
constexpr auto kShortest = std::chrono::milliseconds(2);

struct Worker {
  pid_t thread;
  // What it was allowed when it was first seen: the limits that somebody has set for the process hold.
  cpu_set_t allowed;
};

// All of oneTBB's workers that were seen; the arenas of a process share them. Never destroyed: workers may
// end after the process's statics have gone.
class Workers {
 public:
  void Add(pid_t thread) {
    Worker worker{thread, {}};
    if (sched_getaffinity(thread, sizeof(worker.allowed), &worker.allowed) != 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    workers_.push_back(worker);
    Confine(worker, processor_.load(std::memory_order_relaxed));
  }

  void Remove(pid_t thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    workers_.erase(std::remove_if(workers_.begin(), workers_.end(),
                                  [=](const Worker& worker) { return worker.thread == thread; }),
                   workers_.end());
  }

  void KeepOff(int processor) {
    if (processor_.load(std::memory_order_relaxed) == processor) return;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - moved_ < kShortest) return;
    moved_ = now;
    processor_.store(processor, std::memory_order_relaxed);
    for (const Worker& worker : workers_) Confine(worker, processor);
  }

 private:
  static void Confine(const Worker& worker, int off) {
    if (off < 0 || off >= CPU_SETSIZE) return;
    cpu_set_t rest = worker.allowed;
    CPU_CLR(off, &rest);
    sched_setaffinity(worker.thread, sizeof(rest), CPU_COUNT(&rest) > 0 ? &rest : &worker.allowed);
  }

  std::atomic<int> processor_{-1};
  std::mutex mutex_;
  std::vector<Worker> workers_;
  std::chrono::steady_clock::time_point moved_{};
};

Workers& AllWorkers() {
  static Workers* const workers = new Workers;
  return *workers;
}

// One for each worker thread, from its first entry to its end.
struct Noted {
  const pid_t thread = static_cast<pid_t>(syscall(SYS_gettid));
  Noted() { AllWorkers().Add(thread); }
  ~Noted() { AllWorkers().Remove(thread); }
};

}  // namespace

void Apart::on_scheduler_entry(bool is_worker) {
  if (is_worker) {
    static thread_local Noted noted;
    (void)noted;
  } else {
    AllWorkers().KeepOff(sched_getcpu());
  }
}

}  // namespace collage
