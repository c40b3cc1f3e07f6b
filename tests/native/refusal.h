// SPDX-License-Identifier: Apache-2.0
//
// What a parser says of a bad input.
#ifndef COLLAGE_REFUSAL_H_
#define COLLAGE_REFUSAL_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace collage {

// The text of the std::runtime_error that body throws; "" where it throws none.
template <typename Body>
std::string Refusal(Body body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Whether a text holds another, for EXPECT_TRUE.
inline testing::AssertionResult Says(const std::string& text, const std::string& part) {
  if (text.find(part) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

// A change of a good input, and a part of what is then said.
struct Damage {
  const char* from;
  const char* to;
  const char* said;
};

// The text with the first occurrence of `from` changed.
inline std::string Damaged(std::string text, const Damage& damage) {
  const size_t at = text.find(damage.from);
  EXPECT_NE(at, text.npos) << damage.from;
  if (at != text.npos) text.replace(at, std::string(damage.from).size(), damage.to);
  return text;
}

struct Seed {
  std::string name, content;
};

// The seeds of a fuzz target (tests/native/fuzz/corpus), of which some are the examples of good inputs.
inline std::vector<Seed> Seeds(const std::string& target) {
  std::vector<Seed> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(COLLAGE_CORPUS "/") + target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
  }
  return seeds;
}

}  // namespace collage

#endif  // COLLAGE_REFUSAL_H_
