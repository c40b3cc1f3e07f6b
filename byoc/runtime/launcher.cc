// SPDX-License-Identifier: Apache-2.0
#include "launcher.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>

#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "arena.h"

namespace collage {
namespace {

std::atomic<int64_t> launch_count{0};

// The errors of one launch's tasks. Empty in all but the worst of cases, hence the plain lock.
class TaskErrors {
 public:
  void Add(int task, std::string message) {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_[task] = std::move(message);
  }

  // The code to return from the launch; hands the messages to the calling thread.
  int Report() {
    if (messages_.empty()) return 0;
    std::ostringstream text;  // the wording of TVM's own launcher
    for (const auto& [task, message] : messages_) text << "Task " << task << " error: " << message << '\n';
    TVMAPISetLastError(text.str().c_str());
    return -1;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> messages_;
};

// TVM keeps its last error for each thread, so it is read where the task ran.
std::string LastErrorOfThisThread() {
  const char* message = TVMGetLastError();
  return message != nullptr ? message : "the task failed with an exception of another language";
}

void RunTask(FTVMParallelLambda flambda, void* cdata, int task, TVMParallelGroupEnv env, TaskErrors* errors) {
  try {
    if (flambda(task, &env, cdata) != 0) errors->Add(task, LastErrorOfThisThread());
  } catch (const std::exception& e) {
    errors->Add(task, e.what());
  } catch (...) {
    errors->Add(task, "an exception of unknown type");
  }
}

int LaunchIn(tbb::task_arena& arena, FTVMParallelLambda flambda, void* cdata, int num_task) {
  launch_count.fetch_add(1, std::memory_order_relaxed);
  TVMParallelGroupEnv env;
  env.sync_handle = nullptr;  // for barriers, which are TVM's pool's
  env.num_task = num_task > 0 ? num_task : arena.max_concurrency();
  TaskErrors errors;
  if (env.num_task == 1) {
    RunTask(flambda, cdata, 0, env, &errors);
    return errors.Report();
  }
  // TVM has cut the loop into as many shares as there are threads: each is one task, never two in one.
  // (The static partitioner, which would give task i of each loop to the same thread, ran ResNet-18 one to
  // two per cent slower.)
  const auto loop = [&] {
    tbb::parallel_for(
        0, env.num_task, [&](int task) { RunTask(flambda, cdata, task, env, &errors); },
        tbb::simple_partitioner());
  };
  RunInArena(
      arena, [](void* data) { (*static_cast<decltype(loop)*>(data))(); },
      const_cast<void*>(static_cast<const void*>(&loop)));
  return errors.Report();
}

// The numbers of threads that have launchers. One is taken and never given back: the code of a library that
// was adopted may always come again.
constexpr size_t kSlots = 64;

ModelThreads* Slots() {
  static auto* const slots = new ModelThreads[kSlots];
  return slots;
}

template <size_t kSlot>
int LaunchInSlot(FTVMParallelLambda flambda, void* cdata, int num_task) {
  return LaunchIn(Slots()[kSlot].Arena(), flambda, cdata, num_task);
}

template <size_t... kSlot>
constexpr std::array<Launcher, kSlots> MakeLaunchers(std::index_sequence<kSlot...>) {
  return {LaunchInSlot<kSlot>...};
}

}  // namespace

int ParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task) {
  return LaunchIn(CurrentArena(), flambda, cdata, num_task);
}

Launcher LauncherOf(const ModelThreads& threads) {
  static constexpr std::array<Launcher, kSlots> launchers = MakeLaunchers(std::make_index_sequence<kSlots>());
  static auto* const mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  for (size_t i = 0; i < kSlots; ++i) {
    ModelThreads& slot = Slots()[i];
    if (slot.Chosen() != nullptr && slot.Chosen() != threads.Chosen()) continue;
    slot.Choose(threads);
    return launchers[i];
  }
  return ParallelLaunch;
}

int64_t ParallelLaunchCount() { return launch_count.load(std::memory_order_relaxed); }

}  // namespace collage
