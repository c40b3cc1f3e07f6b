// SPDX-License-Identifier: Apache-2.0
//
// The memory of intermediate values.
#include "native/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace collage::native {
namespace {

TEST(Workspace, MemoryBeginsAtAPage) {
  for (const size_t bytes : {0, 1, 4095, 4096, 4097}) {
    const AlignedMemory memory = AllocateAligned(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 4096, 0u) << bytes;
    std::memset(memory.get(), 1, bytes);
  }
}

// Whether the kernel was asked for huge pages where the byte lies.
bool WantsHugePages(const char* at) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= reinterpret_cast<uintptr_t>(at) && reinterpret_cast<uintptr_t>(at) < end;
    } else if (here && line.rfind("VmFlags:", 0) == 0) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(Workspace, WhatIsLargeLiesInHugePagesAsFarAsItFillsThem) {
  constexpr size_t kHuge = size_t{2} << 20;
  const AlignedMemory small = AllocateAligned(kHuge - 4096), large = AllocateAligned(3 * kHuge + 5000);
  const auto* bytes = static_cast<const char*>(large.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % kHuge, 0u);
  std::memset(large.get(), 1, 3 * kHuge + 5000);
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) return;  // the kernel has none
  EXPECT_TRUE(WantsHugePages(bytes));
  EXPECT_TRUE(WantsHugePages(bytes + 3 * kHuge - 1));
  EXPECT_FALSE(WantsHugePages(bytes + 3 * kHuge));
  EXPECT_FALSE(WantsHugePages(static_cast<const char*>(small.get())));
}

TEST(Workspace, ALeaseOfNothingHasNoMemory) { EXPECT_EQ(WorkspaceLease(0).base(), nullptr); }

TEST(Workspace, OneRegionAfterTheOtherGetsTheSameBlock) {
  const WorkspaceReservation small(1000), large(100000);
  char* first = nullptr;
  {
    const WorkspaceLease lease(1000);
    first = lease.base();
    std::memset(first, 1, 100000);  // made large enough for the largest of all at once
  }
  EXPECT_EQ(WorkspaceLease(100000).base(), first);
}

TEST(Workspace, RegionsAtTheSameTimeGetDifferentBlocks) {
  const WorkspaceReservation reservation(5000);
  const WorkspaceLease a(5000), b(5000);
  EXPECT_NE(a.base(), b.base());
  std::memset(a.base(), 1, 5000);
  std::memset(b.base(), 2, 5000);
  EXPECT_EQ(a.base()[4999], 1);
}

// Whether any two pieces that are in use at the same time overlap, and all lie within the whole.
void Check(const std::vector<Interval>& pieces, size_t total) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Interval& a = pieces[i];
    EXPECT_EQ(a.offset % kAlignment, 0u);
    EXPECT_LE(a.offset + a.bytes, total);
    for (size_t j = 0; j < i; ++j) {
      const Interval& b = pieces[j];
      if (a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) << i << " and " << j;
    }
  }
}

size_t Plan(std::vector<Interval>* pieces) {
  std::vector<Interval*> pointers;
  for (Interval& piece : *pieces) pointers.push_back(&piece);
  return PlanOffsets(pointers);
}

TEST(Workspace, PiecesThatFollowEachOtherShareMemory) {
  std::vector<Interval> pieces{{640, 0, 1, 0}, {640, 1, 2, 0}, {640, 2, 3, 0}, {640, 3, 4, 0}};
  const size_t total = Plan(&pieces);
  Check(pieces, total);
  EXPECT_EQ(total, 1280u);
}

TEST(Workspace, PiecesInUseTogetherNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Interval> pieces(1 + random() % 20);
    for (Interval& piece : pieces) {
      piece.bytes = random() % 500;
      piece.first = static_cast<int>(random() % 20);
      piece.last = piece.first + static_cast<int>(random() % 6);
    }
    Check(pieces, Plan(&pieces));
  }
}

}  // namespace
}  // namespace collage::native
