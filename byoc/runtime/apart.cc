// SPDX-License-Identifier: Apache-2.0
#include "apart.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace collage {
namespace {

// Two threads that bring work in turn, each from a processor of its own, must not chase the workers to and
// fro.
constexpr int64_t kShortestMilliseconds = 2;
// Nobody has brought work for so long: the workers are given back what they had.
constexpr int64_t kIdleMilliseconds = 500;

// Asked at each parallel loop, so a cheap clock that is right to some milliseconds.
int64_t CoarseMilliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

pid_t ThisThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

bool Same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b) != 0; }

struct Worker {
  pid_t thread;
  // What others have given it, and what it has now as far as we know.
  cpu_set_t given, has;

  // If it has something else than we know of, that was given to it.
  void Notice() {
    cpu_set_t now;
    if (sched_getaffinity(thread, sizeof(now), &now) == 0 && !Same(now, has)) given = has = now;
  }

  void Set(const cpu_set_t& mask) {
    if (!Same(mask, has) && sched_setaffinity(thread, sizeof(mask), &mask) == 0) has = mask;
  }
};

// All of oneTBB's workers that came into an arena of ours; the arenas of a process share them. Never
// destroyed: workers may end after the process's statics have gone.
class Workers {
 public:
  Workers() {
    // A child has none of these threads, and their numbers are its parent's.
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  }

  void Add(pid_t thread) {
    if (forked.load(std::memory_order_relaxed)) return;
    Worker worker{thread, {}, {}};
    if (sched_getaffinity(thread, sizeof(worker.has), &worker.has) != 0) return;
    worker.given = worker.has;
    const std::lock_guard<std::mutex> lock(mutex_);
    workers_.push_back(worker);
    Confine(&workers_.back());
  }

  void Remove(pid_t thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    workers_.erase(std::remove_if(workers_.begin(), workers_.end(),
                                  [=](const Worker& worker) { return worker.thread == thread; }),
                   workers_.end());
  }

  // Work has come from a thread on this processor.
  void KeepOff(int processor) {
    if (forked.load(std::memory_order_relaxed)) return;
    const int64_t now = CoarseMilliseconds();
    last_work_.store(now, std::memory_order_relaxed);
    if (processor_.load(std::memory_order_relaxed) == processor) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (now - moved_ < kShortestMilliseconds) return;
    moved_ = now;
    processor_.store(processor, std::memory_order_relaxed);
    NoticeAll();
    for (Worker& worker : workers_) Confine(&worker);
  }

 private:
  // All below with the mutex held.

  // Lets a worker have what it was given but the processor, unless there is no other.
  void Confine(Worker* worker) {
    const int off = processor_.load(std::memory_order_relaxed);
    if (off < 0 || off >= CPU_SETSIZE) return;
    cpu_set_t rest = worker->given;
    CPU_CLR(off, &rest);
    if (CPU_COUNT(&rest) == 0) rest = worker->given;
    if (Same(rest, worker->has)) return;
    StartWatch(worker->given);
    worker->Set(rest);
    confined_ = true;
    wake_.notify_one();
  }

  void NoticeAll() {
    for (Worker& worker : workers_) worker.Notice();
    // Somebody may have set all threads of the process to the very processors that we had left to a worker,
    // in which nothing can be seen. The watch has never anything but what others gave it.
    const pid_t watch = watch_.load(std::memory_order_acquire);
    cpu_set_t now;
    if (watch == 0 || sched_getaffinity(watch, sizeof(now), &now) != 0 || Same(now, watch_has_)) return;
    watch_has_ = now;
    for (Worker& worker : workers_) {
      if (Same(worker.has, now)) worker.given = now;
    }
  }

  void Release() {
    NoticeAll();
    for (Worker& worker : workers_) worker.Set(worker.given);
    confined_ = false;
    processor_.store(-1, std::memory_order_relaxed);
  }

  // The watch gives the workers back what they had when nobody brings work any more.
  void StartWatch(const cpu_set_t& given) {
    if (started_) return;
    started_ = true;
    watch_has_ = given;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this, given] {
        pthread_setname_np(pthread_self(), "collage-apart");
        // The thread that made this one may be confined.
        sched_setaffinity(0, sizeof(given), &given);
        watch_.store(ThisThread(), std::memory_order_release);
        Watch();
      }).detach();
    } catch (const std::system_error&) {
      // There may be no more threads: the workers stay as they are until somebody sets them.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void Watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return confined_; });
      wake_.wait_for(lock, std::chrono::milliseconds(kIdleMilliseconds));
      if (CoarseMilliseconds() - last_work_.load(std::memory_order_relaxed) >= kIdleMilliseconds) Release();
    }
  }

  static inline std::atomic<bool> forked{false};
  std::atomic<int> processor_{-1};
  std::atomic<int64_t> last_work_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Worker> workers_;
  int64_t moved_ = 0;
  // Whether a worker has less than it was given.
  bool confined_ = false;
  bool started_ = false;
  std::atomic<pid_t> watch_{0};
  cpu_set_t watch_has_{};
};

Workers& AllWorkers() {
  static Workers* const workers = new Workers;
  return *workers;
}

// One for each worker thread, from its first entry to its end.
struct Noted {
  const pid_t thread = ThisThread();
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
