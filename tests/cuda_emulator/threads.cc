// SPDX-License-Identifier: Apache-2.0
//
// The threads of a block, as fibers: each goes on until it waits for the others.
#include "threads.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

struct Place {
  unsigned int x, y, z;
};

extern "C" {
Place emulated_thread, emulated_block;

#if defined(__x86_64__)
// Keeps what a function must keep and the stack in *from, and goes on where `to` was kept. The system's own
// way (swapcontext) asks the kernel each time.
void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch, .-emulated_switch
)");
#endif
}

namespace {

constexpr size_t kStack = size_t{256} << 10;
constexpr int kWarp = 32;

#if defined(__x86_64__)
// Where somebody has stopped.
struct Stop {
  void* stack;
};
void Switch(Stop* from, const Stop& to) { emulated_switch(&from->stack, to.stack); }
void Begin(Stop* stop, char* stack, void (*start)()) {
  // As emulated_switch left it: six registers, where to go on, and what a function expects of the stack
  // there.
  void** top = reinterpret_cast<void**>(stack + kStack) - 1;
  *--top = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stop->stack = top;
}
#else
struct Stop {
  ucontext_t context;
};
void Switch(Stop* from, const Stop& to) { swapcontext(&from->context, &to.context); }
void Begin(Stop* stop, char* stack, void (*start)()) {
  getcontext(&stop->context);
  stop->context.uc_stack.ss_sp = stack;
  stop->context.uc_stack.ss_size = kStack;
  stop->context.uc_link = nullptr;
  makecontext(&stop->context, start, 0);
}
#endif

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Fiber {
  State state;
  Place place;
  Stop stop;
  uint64_t given;
};

// What the scheduler and the fibers have in common; one kernel runs at a time.
std::vector<Fiber> fibers;
char* stacks = nullptr;
size_t stack_count = 0;
int running = -1;
Stop scheduler;
void (*body)(void**);
void** given_arguments;

void WaitIn(State state) {
  Fiber& fiber = fibers[running];
  fiber.state = state;
  Switch(&fiber.stop, scheduler);
}

void Start() {
  body(given_arguments);
  WaitIn(State::kDone);
}

void Resume(int index) {
  Fiber& fiber = fibers[index];
  running = index;
  emulated_thread = fiber.place;
  Switch(&scheduler, fiber.stop);
}

// Lets a group go on where all of it that is not done waits in the same way.
bool Release(int from, int to, State state) {
  bool any = false;
  for (int i = from; i < to; ++i) {
    if (fibers[i].state == State::kDone) continue;
    if (fibers[i].state != state) return false;
    any = true;
  }
  for (int i = from; i < to; ++i) {
    if (fibers[i].state == state) fibers[i].state = State::kReady;
  }
  return any;
}

bool RunBlock(int count) {
  for (;;) {
    bool moved = false, left = false;
    for (int i = 0; i < count; ++i) {
      if (fibers[i].state != State::kReady) continue;
      Resume(i);
      moved = true;
    }
    for (int from = 0; from < count; from += kWarp) {
      moved |= Release(from, from + kWarp < count ? from + kWarp : count, State::kAtWarp);
    }
    moved |= Release(0, count, State::kAtBlock);
    for (int i = 0; i < count; ++i) left |= fibers[i].state != State::kDone;
    if (!left) return true;
    if (!moved) return false;
  }
}

}  // namespace

extern "C" {

void emulated_syncthreads() { WaitIn(State::kAtBlock); }

int emulated_lane() { return running % kWarp; }

unsigned int emulated_active() {
  const int from = running / kWarp * kWarp;
  unsigned int mask = 0;
  for (int i = 0; i < kWarp && from + i < static_cast<int>(fibers.size()); ++i) {
    if (fibers[from + i].state != State::kDone) mask |= 1U << i;
  }
  return mask;
}

uint64_t emulated_shuffle(uint64_t mine, int lane) {
  const int from = running / kWarp * kWarp, index = from + lane;
  fibers[running].given = mine;
  WaitIn(State::kAtWarp);
  const bool there = index < static_cast<int>(fibers.size()) && fibers[index].state != State::kDone;
  const uint64_t theirs = there ? fibers[index].given : mine;
  WaitIn(State::kAtWarp);  // nobody gives anything new before all have read
  return theirs;
}

}  // extern "C"

bool RunGrid(void (*kernel)(void**), void** arguments, const unsigned int grid[3],
             const unsigned int block[3], bool waits) {
  const size_t count = size_t{block[0]} * block[1] * block[2];
  if (waits && count > stack_count) {
    if (stacks != nullptr) munmap(stacks, stack_count * kStack);
    void* const made = mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return false;
    stacks = static_cast<char*>(made);
    stack_count = count;
  }
  body = kernel;
  given_arguments = arguments;
  fibers.resize(waits ? count : 1);
  for (unsigned int z = 0; z < grid[2]; ++z) {
    for (unsigned int y = 0; y < grid[1]; ++y) {
      for (unsigned int x = 0; x < grid[0]; ++x) {
        emulated_block = {x, y, z};
        size_t index = 0;
        for (unsigned int tz = 0; tz < block[2]; ++tz) {
          for (unsigned int ty = 0; ty < block[1]; ++ty) {
            for (unsigned int tx = 0; tx < block[0]; ++tx, ++index) {
              if (waits) {
                fibers[index].state = State::kReady;
                fibers[index].place = {tx, ty, tz};
                Begin(&fibers[index].stop, stacks + index * kStack, Start);
              } else {
                emulated_thread = {tx, ty, tz};
                kernel(arguments);
              }
            }
          }
        }
        if (waits && !RunBlock(static_cast<int>(count))) return false;
      }
    }
  }
  return true;
}
