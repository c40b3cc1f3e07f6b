// SPDX-License-Identifier: Apache-2.0
//
// Constants that several hold once.
//
// ctest: threads
#include "shared_constants.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace collage {
namespace {

constexpr size_t kBytes = 100003;

std::shared_ptr<void> Made(unsigned seed, size_t bytes = kBytes) {
  std::shared_ptr<void> memory(std::malloc(bytes), std::free);
  auto* at = static_cast<unsigned char*>(memory.get());
  for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>((i * 2654435761U >> 7) + seed);
  return memory;
}

TEST(SharedConstants, TheSameIsHeldOnce) {
  const size_t before = SharedBytes();
  std::shared_ptr<void> first = Shared(Made(1), kBytes);
  const std::shared_ptr<void> again = Shared(Made(1), kBytes), other = Shared(Made(2), kBytes);
  EXPECT_EQ(again, first);
  EXPECT_NE(other, first);
  EXPECT_EQ(SharedBytes() - before, 2 * kBytes);
  const void* const where = first.get();
  first.reset();
  EXPECT_EQ(Shared(Made(1), kBytes).get(), where) << "it lives as long as one holds it";
}

TEST(SharedConstants, OneBitOrTheSizeMakesAnother) {
  const std::shared_ptr<void> first = Shared(Made(3), kBytes);
  for (const size_t at : {size_t{0}, kBytes / 2, kBytes - 1}) {
    std::shared_ptr<void> changed = Made(3);
    static_cast<unsigned char*>(changed.get())[at] ^= 1;
    EXPECT_NE(Shared(changed, kBytes), first) << at;
  }
  EXPECT_NE(Shared(Made(3, kBytes - 1), kBytes - 1), first);
}

TEST(SharedConstants, WhatIsSmallIsNotShared) {
  const std::shared_ptr<void> first = Shared(Made(4, 100), 100);
  EXPECT_NE(Shared(Made(4, 100), 100), first);
  EXPECT_EQ(Shared(nullptr, 0), nullptr);
}

TEST(SharedConstants, GoesWithTheLastWhoHoldsIt) {
  const size_t before = SharedBytes();
  for (unsigned i = 0; i < 1000; ++i) Shared(Made(i, 9000), 9000);
  EXPECT_EQ(SharedBytes(), before);
}

TEST(SharedConstants, ByManyThreads) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (unsigned round = 0; round < 50; ++round) {
        const std::shared_ptr<void> held = Shared(Made(round % 5), kBytes);
        ASSERT_EQ(std::memcmp(held.get(), Made(round % 5).get(), kBytes), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace collage
