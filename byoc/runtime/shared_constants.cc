// SPDX-License-Identifier: Apache-2.0
#include "shared_constants.h"

#include <tvm/runtime/registry.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace collage {
namespace {

// Two pages, about what an entry and a lock cost.
constexpr size_t kWorthSharing = size_t{1} << 13;

// What is looked at to find a piece: so many places of so many bytes, spread over it; of shorter ones, all.
// What is found is compared as a whole, which ends early where it is another piece.
constexpr size_t kPlaces = 256, kPlace = 64;

uint64_t Checksum(const void* data, size_t bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t sum = bytes;
  const auto add = [&sum](const char* next, size_t count) {
    for (; count >= sizeof(uint64_t); count -= sizeof(uint64_t), next += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, next, sizeof word);
      sum = (sum ^ word) * kFactor;
      sum ^= sum >> 29;
    }
    for (; count > 0; --count, ++next) sum = (sum ^ static_cast<unsigned char>(*next)) * kFactor;
  };
  const auto* const begin = static_cast<const char*>(data);
  if (bytes <= kPlaces * kPlace) {
    add(begin, bytes);
    return sum;
  }
  for (size_t i = 0; i < kPlaces; ++i) add(begin + (bytes - kPlace) / (kPlaces - 1) * i, kPlace);
  add(begin + bytes - kPlace, kPlace);
  return sum;
}

struct Piece {
  size_t bytes;
  std::weak_ptr<void> memory;
};

struct Pieces {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, Piece> by_sum;
  // The table is looked through for what has gone when it is twice as large as after the last time.
  size_t look_through_at = 64;

  void LookThrough() {
    if (by_sum.size() < look_through_at) return;
    for (auto it = by_sum.begin(); it != by_sum.end();) {
      it = it->second.memory.expired() ? by_sum.erase(it) : std::next(it);
    }
    look_through_at = 64 + 2 * by_sum.size();
  }
};

Pieces& AllPieces() {
  static auto* const pieces = new Pieces;
  return *pieces;
}

}  // namespace

std::shared_ptr<void> Shared(std::shared_ptr<void> made, size_t bytes) {
  if (made == nullptr || bytes < kWorthSharing) return made;
  const uint64_t sum = Checksum(made.get(), bytes);
  Pieces& pieces = AllPieces();
  const std::lock_guard<std::mutex> lock(pieces.mutex);
  pieces.LookThrough();
  const auto [first, last] = pieces.by_sum.equal_range(sum);
  for (auto it = first; it != last; ++it) {
    if (it->second.bytes != bytes) continue;
    std::shared_ptr<void> there = it->second.memory.lock();
    if (there != nullptr && std::memcmp(there.get(), made.get(), bytes) == 0) return there;
  }
  pieces.by_sum.emplace(sum, Piece{bytes, made});
  return made;
}

size_t SharedBytes() {
  Pieces& pieces = AllPieces();
  const std::lock_guard<std::mutex> lock(pieces.mutex);
  size_t bytes = 0;
  for (const auto& [sum, piece] : pieces.by_sum) bytes += piece.memory.expired() ? 0 : piece.bytes;
  return bytes;
}

// How many bytes of constants are shared in this process. For tests.
TVM_REGISTER_GLOBAL("collage.runtime.SharedBytes").set_body_typed([]() -> int64_t {
  return static_cast<int64_t>(SharedBytes());
});

}  // namespace collage
