// SPDX-License-Identifier: Apache-2.0
//
// Arenas, launchers, crews, workers and the workspace, by many threads at the same time.
//
// ctest: threads
#include <dmlc/memory_io.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/parallel_for.h>
#include <tvm/runtime/c_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "arena.h"
#include "collage_runtime.h"
#include "launcher.h"
#include "native/crew.h"
#include "native/workers.h"
#include "native/workspace.h"

namespace collage {
namespace {

void In(tbb::task_arena& arena, const std::function<void()>& body) {
  RunInArena(
      arena, [](void* data) { (*static_cast<const std::function<void()>*>(data))(); },
      const_cast<std::function<void()>*>(&body));
}

// Runs body(0 .. count - 1), each on a thread of its own.
void Callers(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(Arena, AThreadSeesTheArenaThatItIsIn) {
  SetNumThreads(3);
  tbb::task_arena& three = CurrentArena();
  EXPECT_EQ(collage_num_threads(), 3);
  In(three, [&] {
    SetNumThreads(2);  // somebody loads another model meanwhile
    EXPECT_EQ(collage_num_threads(), 3);
    EXPECT_EQ(tbb::this_task_arena::max_concurrency(), 3);
    // What calls itself from inside runs there, too.
    collage_run_in_arena([](void*) { EXPECT_EQ(tbb::this_task_arena::max_concurrency(), 3); }, nullptr);
  });
  EXPECT_EQ(collage_num_threads(), 2);
}

TEST(Arena, OfThisThreadAloneEachStandsFirst) {
  SetNumThreads(4);
  tbb::task_arena& four = CurrentArena();
  // All at once, so that they have different places in the arena around.
  std::atomic<int> came{0};
  Callers(4, [&](int) {
    In(four, [&] {
      came.fetch_add(1);
      while (came.load() < 4) std::this_thread::yield();
      bool ran = false;
      RunInArenaOfThisThread([&] {
        ran = true;
        EXPECT_EQ(tbb::this_task_arena::current_thread_index(), 0);
        EXPECT_EQ(collage_num_threads(), 4) << "a library is still told of the model's threads";
      });
      EXPECT_TRUE(ran);
      EXPECT_EQ(tbb::this_task_arena::max_concurrency(), 4) << "back in the arena around";
    });
  });
  EXPECT_THROW(RunInArenaOfThisThread([] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST(Arena, TheSameNumberIsTheSameArena) {
  SetNumThreads(2);
  tbb::task_arena* const two = &CurrentArena();
  SetNumThreads(1);
  EXPECT_NE(&CurrentArena(), two);
  SetNumThreads(2);
  EXPECT_EQ(&CurrentArena(), two);
}

TEST(ModelThreads, HoldWhateverOtherModelsAreLoaded) {
  ModelThreads one, four, none;
  one.Choose(1);
  four.Choose(4);
  EXPECT_EQ(one.Arena().max_concurrency(), 1);
  EXPECT_EQ(four.Arena().max_concurrency(), 4);
  EXPECT_EQ(none.Arena().max_concurrency(), 4) << "the last choice is that of what has none";
  SetNumThreads(2);  // is for all
  EXPECT_EQ(one.Arena().max_concurrency(), 2);
  EXPECT_EQ(four.Arena().max_concurrency(), 2);
  ModelThreads later;
  later.Choose(3);  // but what is loaded afterwards
  EXPECT_EQ(later.Arena().max_concurrency(), 3);
  EXPECT_EQ(one.Arena().max_concurrency(), 2);
}

TEST(ModelThreads, AreThoseOfTheLibraryThatIsRead) {
  std::string first(100, 'a'), second(100, 'b');
  dmlc::MemoryFixedSizeStream a(first.data(), first.size()), again(first.data(), first.size()),
      b(second.data(), second.size());
  uint64_t word = 0;
  const auto threads = ThreadsOfModel(&a);
  ASSERT_TRUE(static_cast<dmlc::Stream&>(a).Read(&word));
  EXPECT_EQ(ThreadsOfModel(&a), threads) << "further on in the same library";
  EXPECT_EQ(ThreadsOfModel(&again), threads);
  EXPECT_NE(ThreadsOfModel(&b), threads);
  std::string bytes;
  dmlc::MemoryStringStream other(&bytes);
  EXPECT_NE(ThreadsOfModel(&other), ThreadsOfModel(&other)) << "no library: each has its own";
}

struct Loop {
  std::atomic<int64_t> sum{0};
  std::atomic<int> tasks{0};
  int fails = -1;
};

int AddNumber(int task, TVMParallelGroupEnv* env, void* cdata) {
  auto* loop = static_cast<Loop*>(cdata);
  loop->sum += task + 1;
  loop->tasks = env->num_task;
  if (task == loop->fails) {
    TVMAPISetLastError("this one fails");
    return -1;
  }
  return 0;
}

TEST(Launcher, RunsEachTaskOnce) {
  SetNumThreads(3);
  for (const int tasks : {0, 1, 2, 3, 50}) {
    Loop loop;
    const int64_t before = ParallelLaunchCount(), count = tasks == 0 ? 3 : tasks;
    EXPECT_EQ(ParallelLaunch(AddNumber, &loop, tasks), 0);
    EXPECT_EQ(loop.sum, count * (count + 1) / 2);
    EXPECT_EQ(loop.tasks, count);
    EXPECT_EQ(ParallelLaunchCount(), before + 1);
  }
}

TEST(Launcher, SaysWhatFailed) {
  SetNumThreads(3);
  for (const int tasks : {1, 5}) {
    Loop loop;
    loop.fails = tasks - 1;
    EXPECT_EQ(ParallelLaunch(AddNumber, &loop, tasks), -1);
    EXPECT_NE(
        std::string(TVMGetLastError()).find("Task " + std::to_string(tasks - 1) + " error: this one fails"),
        std::string::npos);
    EXPECT_EQ(loop.sum, tasks * (tasks + 1) / 2) << "the others run all the same";
  }
  Loop loop;
  EXPECT_EQ(
      ParallelLaunch([](int, TVMParallelGroupEnv*, void*) -> int { throw std::runtime_error("thrown"); },
                     &loop, 4),
      -1);
  EXPECT_NE(std::string(TVMGetLastError()).find("thrown"), std::string::npos);
}

TEST(Launcher, OfAModelKeepsToItsThreads) {
  ModelThreads two, five;
  two.Choose(2);
  const Launcher of_two = LauncherOf(two);
  five.Choose(5);
  const Launcher of_five = LauncherOf(five);
  EXPECT_NE(of_two, of_five);
  EXPECT_EQ(LauncherOf(two), of_two);
  for (const auto& [launcher, threads] :
       {std::pair(of_two, 2), std::pair(of_five, 5), std::pair(of_two, 2)}) {
    Loop loop;
    EXPECT_EQ(launcher(AddNumber, &loop, 0), 0);
    EXPECT_EQ(loop.tasks, threads);
  }
}

TEST(Launcher, FromInsideATaskAndFromManyThreads) {
  ModelThreads three;
  three.Choose(3);
  static Launcher launcher = nullptr;
  launcher = LauncherOf(three);
  Callers(6, [&](int caller) {
    for (int round = 0; round < 30; ++round) {
      if (caller == 0) ModelThreads().Choose(1 + round % 4);
      std::atomic<int64_t> sum{0};
      const auto outer = [](int, TVMParallelGroupEnv*, void* cdata) {
        Loop loop;
        const int failed = launcher(AddNumber, &loop, 4);
        *static_cast<std::atomic<int64_t>*>(cdata) += loop.sum;
        return failed;
      };
      EXPECT_EQ(launcher(outer, &sum, 5), 0);
      EXPECT_EQ(sum, 5 * 10);
    }
  });
}

TEST(Workers, EachItemOnceAndNoTwoWithOneNumber) {
  for (const int arena_threads : {1, 2, 4}) {
    tbb::task_arena arena(arena_threads);
    for (const int64_t workers : {1, 2, 3, 9}) {
      for (const int64_t items : {0, 1, 2, 7, 60}) {
        std::vector<std::atomic<int>> done(items), busy(workers);
        arena.execute([&] {
          native::DivideAmongWorkers(workers, items, [&](int64_t item, int64_t worker) {
            ASSERT_TRUE(worker >= 0 && worker < workers);
            EXPECT_EQ(busy[worker].fetch_add(1), 0);
            ++done[item];
            // So that oneTBB's threads come before all is done.
            for (int i = 0; i < 3; ++i) std::this_thread::yield();
            busy[worker].fetch_sub(1);
          });
        });
        for (const auto& times : done) EXPECT_EQ(times, 1);
      }
    }
  }
}

// What a worker made in one step is in its caches in the next.
TEST(Workers, EachBeginsWithTheSameShareOfNeighbours) {
  constexpr int64_t kItems = 9;
  std::vector<int64_t> alone;
  native::DivideAmongWorkers(1, kItems, [&](int64_t item, int64_t) { alone.push_back(item); });
  std::vector<int64_t> in_order(kItems);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(alone, in_order);

  tbb::task_arena arena(2);
  std::vector<std::vector<int64_t>> taken(2);
  std::atomic<int> begun{0};
  arena.execute([&] {
    native::DivideAmongWorkers(2, kItems, [&](int64_t item, int64_t worker) {
      if (taken[worker].empty()) {
        ++begun;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (begun < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      }
      taken[worker].push_back(item);
    });
  });
  ASSERT_EQ(begun, 2);
  EXPECT_EQ(taken[0].front(), 0);
  EXPECT_EQ(taken[1].front(), 4);
}

// Many callers in arenas of one thread, of which each has two places: memory that went by the place would be
// written by two.
TEST(Workers, MemoryIsNobodyElsesInAnArenaOfOneThread) {
  ModelThreads one;
  one.Choose(1);
  Callers(4, [&](int) {
    for (int round = 0; round < 50; ++round) {
      std::vector<int> memory(1, -1);
      In(one.Arena(), [&] {
        native::DivideAmongWorkers(collage_num_threads(), 20, [&](int64_t item, int64_t worker) {
          memory.at(worker) = static_cast<int>(item);
          std::this_thread::yield();
          EXPECT_EQ(memory.at(worker), item);
        });
      });
    }
  });
}

// Steps that each need all of the one before.
void RunCrew(native::Crew* crew, int steps, int pieces, int threads) {
  std::vector<std::vector<int>> values(steps + 1, std::vector<int>(pieces, 1));
  std::vector<std::function<void(void* const*, int)>> work;
  for (int s = 0; s < steps; ++s) {
    work.emplace_back([&values, s](void* const*, int piece) {
      values[s + 1][piece] = std::accumulate(values[s].begin(), values[s].end(), piece) % 1000;
    });
  }
  std::vector<native::Shift> shifts;
  for (int s = 0; s < steps; ++s) shifts.push_back({pieces, &work[s], nullptr});
  crew->Run(shifts.data(), steps, threads);
  std::vector<int> want(pieces, 1);
  for (int s = 0; s < steps; ++s) {
    const int sum = std::accumulate(want.begin(), want.end(), 0);
    for (int piece = 0; piece < pieces; ++piece) want[piece] = (sum + piece) % 1000;
  }
  EXPECT_EQ(values[steps], want);
}

TEST(Crew, StepsFollowOneAnother) {
  for (const int size : {1, 2, 4}) {
    tbb::task_arena arena(size);
    arena.execute([&] {
      native::Crew crew(20);
      for (int round = 0; round < 20; ++round) {
        for (const int pieces : {1, 2, 5, native::Crew::kMostPieces}) {
          for (const int threads : {1, 2, 5}) RunCrew(&crew, 20, pieces, threads);
        }
      }
    });
  }
}

TEST(Crew, SeveralAtATimeInOneArena) {
  ModelThreads two;
  two.Choose(2);
  Callers(4, [&](int) {
    native::Crew crew(10);
    for (int round = 0; round < 30; ++round) {
      In(two.Arena(), [&] { RunCrew(&crew, 10, 3, 3); });
    }
  });
}

TEST(Crew, ThrowsWhatAPieceThrows) {
  tbb::task_arena arena(3);
  arena.execute([] {
    native::Crew crew(3);
    std::atomic<int> later{0};
    const std::function<void(void* const*, int)> fine = [](void* const*, int) {},
                                                 fails =
                                                     [](void* const*, int piece) {
                                                       if (piece == 1) throw std::runtime_error("piece 1");
                                                     },
                                                 last = [&](void* const*, int) { ++later; };
    const native::Shift shifts[] = {{4, &fine, nullptr}, {4, &fails, nullptr}, {4, &last, nullptr}};
    try {
      crew.Run(shifts, 3, 3);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "piece 1");
    }
    EXPECT_EQ(later, 0);
    const native::Shift good[] = {{4, &fine, nullptr}, {4, &last, nullptr}};
    crew.Run(good, 2, 3);  // and can be used again
    EXPECT_EQ(later, 4);
  });
}

TEST(Workspace, LeasesOfManyThreads) {
  Callers(6, [](int caller) {
    for (int round = 0; round < 100; ++round) {
      const size_t bytes = 1000 + 3000 * static_cast<size_t>((caller + round) % 5);
      const native::WorkspaceReservation reservation(bytes);
      const native::WorkspaceLease lease(bytes);
      std::memset(lease.base(), caller, bytes);
      std::this_thread::yield();
      for (size_t i = 0; i < bytes; i += 500) ASSERT_EQ(lease.base()[i], caller);
    }
  });
}

}  // namespace
}  // namespace collage
