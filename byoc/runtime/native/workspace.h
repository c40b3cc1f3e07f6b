// SPDX-License-Identifier: Apache-2.0
//
// The memory in which regions keep their intermediate values.
//
// All regions of a process share it: one that runs leases a block and gives it back, so that the next one
// works in memory that is still in the caches, and a model of a hundred regions holds one block and not a
// hundred. Regions that run at the same time get blocks of their own.
#ifndef COLLAGE_NATIVE_WORKSPACE_H_
#define COLLAGE_NATIVE_WORKSPACE_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace collage::native {

// Offsets and addresses are multiples of this many bytes: a cache line, and the widest vector.
constexpr size_t kAlignment = 64;

// What the kernel can map as one page where it is asked to, as it is for memory of this size and more.
constexpr size_t kHugePage = size_t{2} << 20;

// Memory that begins at a multiple of a page. Throws std::bad_alloc.
struct AlignedFree {
  void operator()(void* pointer) const;
};
using AlignedMemory = std::unique_ptr<void, AlignedFree>;
AlignedMemory AllocateAligned(size_t bytes);

// A block of at least the wanted size, from construction to destruction. Thread-safe.
class WorkspaceLease {
 public:
  explicit WorkspaceLease(size_t bytes);
  ~WorkspaceLease();
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  char* base() const { return static_cast<char*>(memory_.get()); }

 private:
  AlignedMemory memory_;
  size_t size_ = 0;
};

// Says that a region lives that will lease so many bytes, so that blocks are made large enough at once. When
// the last one is gone, so are the free blocks.
class WorkspaceReservation {
 public:
  explicit WorkspaceReservation(size_t bytes);
  ~WorkspaceReservation();
  WorkspaceReservation(const WorkspaceReservation&) = delete;
  WorkspaceReservation& operator=(const WorkspaceReservation&) = delete;

 private:
  size_t bytes_;
};

// A piece of a block that is in use from step first to step last, both included.
struct Interval {
  size_t bytes = 0;
  int first = 0, last = 0;
  // Where PlanOffsets puts it.
  size_t offset = 0;
};

// Gives each interval an offset so that those that are in use at the same time do not overlap; returns the
// size of the whole.
size_t PlanOffsets(std::vector<Interval*> intervals);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WORKSPACE_H_
