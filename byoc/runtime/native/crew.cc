// SPDX-License-Identifier: Apache-2.0
#include "native/crew.h"

#include <oneapi/tbb/task_group.h>

#include <thread>

namespace collage::native {
namespace {

// Looks again and again, and after a while lets other threads have the processor in between.
template <typename Condition>
void WaitUntil(const Condition& condition) {
  constexpr int kPatience = 2000;  // some ten microseconds
  for (int tried = 0; !condition(); ++tried) {
    if (tried >= kPatience) {
      std::this_thread::yield();
      continue;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace

Crew::Crew(size_t steps) : states_(new State[steps]) {}

void Crew::Run(const Shift* shifts, int count, int threads) {
  for (int s = 0; s < count; ++s) {
    states_[s].left.store(shifts[s].pieces, std::memory_order_relaxed);
    for (int p = 0; p < shifts[s].pieces; ++p) states_[s].taken[p].store(false, std::memory_order_relaxed);
  }
  open_.store(-1, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  thrown_ = nullptr;
  tbb::task_group helpers;
  for (int thread = 1; thread < threads; ++thread) {
    helpers.run([=] { Help(shifts, count, thread); });
  }
  for (int s = 0; s < count; ++s) {
    open_.store(s, std::memory_order_release);
    Work(shifts[s], states_[s], 0);
    WaitUntil([&] { return states_[s].left.load(std::memory_order_acquire) == 0; });
  }
  helpers.wait();
  if (thrown_) std::rethrow_exception(thrown_);
}

void Crew::Help(const Shift* shifts, int count, int thread) {
  for (int s = 0; s < count; ++s) {
    WaitUntil([&] { return open_.load(std::memory_order_acquire) >= s; });
    Work(shifts[s], states_[s], thread);
  }
}

void Crew::Work(const Shift& shift, State& state, int thread) {
  for (int i = 0; i < shift.pieces; ++i) {
    const int piece = (thread + i) % shift.pieces;
    if (state.taken[piece].exchange(true, std::memory_order_acq_rel)) continue;
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        (*shift.work)(shift.data, piece);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!thrown_) thrown_ = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
    }
    state.left.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace collage::native
