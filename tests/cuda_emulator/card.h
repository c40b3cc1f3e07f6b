// SPDX-License-Identifier: Apache-2.0
#ifndef EMULATED_CARD_H_
#define EMULATED_CARD_H_

#include <cstddef>

// While one lives, the processor is in the card's memory, and nobody else is at the card.
struct AtTheCard {
  AtTheCard();
  ~AtTheCard();
  AtTheCard(const AtTheCard&) = delete;
  AtTheCard& operator=(const AtTheCard&) = delete;
};

// Whether so many bytes lie in one piece of the card's memory that somebody has.
bool OnTheCard(const void* at, size_t bytes);

// Writes a line to the file that EMULATED_CUDA_LOG names.
void Log(const char* form, ...) __attribute__((format(printf, 1, 2)));

#endif  // EMULATED_CARD_H_
