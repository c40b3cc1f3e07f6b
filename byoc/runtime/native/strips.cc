// SPDX-License-Identifier: Apache-2.0
#include "native/strips.h"

#include <algorithm>
#include <cstring>

#include "native/divide_up.h"
#include "native/gemm.h"
#include "native/workers.h"

namespace collage::native {
namespace {

void RunProduct(const StripAction& a, const float* in, const Operand& other, float* out, int64_t pixels) {
  GemmWork work;
  work.left = in;
  work.left_row = a.in.pixel;
  work.right = a.weight;
  work.length = a.channels_in;
  work.rows = pixels;
  work.columns = a.channels_out;
  work.initial = a.bias;
  work.out = out;
  work.out_row = a.out.pixel;
  work.posts = a.posts.data();
  work.num_posts = static_cast<int>(a.posts.size());
  work.operands = &other;
  MultiplyPanels(work);
}

}  // namespace

int64_t StripsFor(int64_t rows, int64_t threads, const std::function<int64_t(int64_t)>& bytes,
                  int64_t budget) {
  // The most rows that fit; what is made ahead takes more than its share of them.
  int64_t fitting = 1, beyond = rows + 1;
  while (beyond - fitting > 1) {
    const int64_t middle = fitting + (beyond - fitting) / 2;
    (bytes(middle) <= budget ? fitting : beyond) = middle;
  }
  return std::min(rows, RoundUp(DivideUp(rows, fitting), threads));
}

void Strips::Run(void* const* data) const {
  const auto scratch_of = [&](int64_t worker) { return static_cast<float*>(data[0]) + worker * scratch; };
  if (!looks_ahead) {
    DivideAmongWorkers(threads, strips, [&](int64_t strip, int64_t worker) {
      const int64_t first = FirstRow(strip);
      RunRows(data, scratch_of(worker), first, FirstRow(strip + 1) - first, nullptr);
    });
    return;
  }
  const int64_t runs = std::min(threads, strips);
  DivideAmongWorkers(threads, runs, [&](int64_t run, int64_t worker) {
    RunStrips(data, scratch_of(worker), run * strips / runs, (run + 1) * strips / runs);
  });
}

void Strips::RunStrips(void* const* data, float* mine, int64_t first, int64_t end) const {
  std::vector<Made> made(actions.size());
  for (int64_t strip = first; strip < end; ++strip) {
    for (int64_t row = FirstRow(strip); row < FirstRow(strip + 1);) {
      const int64_t next = std::min(FirstRow(strip + 1), (row / height + 1) * height);
      RunRows(data, mine, row, next - row, made.data());
      row = next;
    }
  }
}

void Strips::RunRows(void* const* data, float* mine, int64_t first, int64_t count, Made* made) const {
  const int64_t pixels = count * width;
  const auto at = [&](const StripPlace& place) {
    float* const base = place.tensor == StripPlace::kScratch
                            ? mine + place.offset
                            : static_cast<float*>(data[place.tensor]) + first * width * place.pixel;
    return base + place.channel;
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    const StripAction& a = actions[i];
    if (a.ahead.seen > 0) {
      RunAhead(a, data, mine, first, count, made[i]);
      continue;
    }
    float* const out = at(a.out);
    if (a.factors >= 0) {
      RunFactors(a, static_cast<const float*>(data[a.other.tensor]), at(a.in), out, first, count);
      continue;
    }
    const Operand other{a.reads_other ? at(a.other) : nullptr, a.other.pixel};
    if (a.source >= 0) {
      RunWindowAhead(a, at(a.in), made[a.source], other, out, first, count);
    } else if (a.kind == StripAction::Kind::kWindow) {
      RunWindows(a, static_cast<const float*>(data[a.in.tensor]) + a.in.channel, other, out, first, count);
    } else if (a.kind == StripAction::Kind::kProduct) {
      RunProduct(a, at(a.in), other, out, pixels);
    } else {
      Apply({at(a.in), a.in.pixel, out, a.out.pixel, pixels, a.channels_out, a.posts.data(),
             static_cast<int>(a.posts.size()), &other});
    }
  }
}

// The rows that windows of these results see, but for those that are there from the results before. The place
// begins with the first one.
void Strips::RunAhead(const StripAction& a, void* const* data, float* mine, int64_t first, int64_t count,
                      Made& made) const {
  const int64_t image = first / height, row = first - image * height;
  const int64_t begin = a.ahead.First(row), end = a.ahead.End(row + count);
  const int64_t line = a.ahead.width * a.out.pixel;
  float* const place = mine + a.out.offset;
  int64_t from = begin;
  if (made.image == image && made.first <= begin && begin < made.end) {
    from = std::min(made.end, end);
    std::memmove(place, place + (begin - made.first) * line, (from - begin) * line * sizeof(float));
  }
  made = {image, begin, end};
  if (from >= end) return;
  const int64_t pixel = (image * a.ahead.height + from) * a.ahead.width;
  const auto at = [&](const StripPlace& read) {
    return static_cast<const float*>(data[read.tensor]) + pixel * read.pixel + read.channel;
  };
  const Operand other{a.reads_other ? at(a.other) : nullptr, a.other.pixel};
  RunProduct(a, at(a.in), other, place + (from - begin) * line, (end - from) * a.ahead.width);
}

// Each channel times its factor, image by image.
void Strips::RunFactors(const StripAction& a, const float* factors, const float* in, float* out,
                        int64_t first, int64_t count) const {
  for (int64_t row = first; row < first + count;) {
    const int64_t image = row / height, end = std::min(first + count, (image + 1) * height);
    const int64_t done = (row - first) * width;
    const Operand operand{factors + image * a.factors, 0};
    Apply({in + done * a.in.pixel, a.in.pixel, out + done * a.out.pixel, a.out.pixel, (end - row) * width,
           a.channels_out, a.posts.data(), static_cast<int>(a.posts.size()), &operand});
    row = end;
  }
}

// A window's results, image by image.
void Strips::RunWindows(const StripAction& a, const float* image, const Operand& other, float* out,
                        int64_t first, int64_t count) const {
  Window window = a.window;
  window.posts = a.posts.data();
  window.num_posts = static_cast<int>(a.posts.size());
  for (int64_t row = first; row < first + count;) {
    const int64_t number = row / height, end = std::min(first + count, (number + 1) * height);
    const int64_t done = (row - first) * width;
    const Operand operand{a.reads_other ? other.data + done * other.row : nullptr, other.row};
    WindowRowsWork work;
    work.window = &window;
    work.image = image + number * window.height * window.width * a.in.pixel;
    work.pixel = a.in.pixel;
    work.first = row - number * height;
    work.rows = end - row;
    work.operands = &operand;
    work.out = out + done * a.out.pixel;
    work.out_pixel = a.out.pixel;
    RunWindow(work);
    row = end;
  }
}

void Strips::RunWindowAhead(const StripAction& a, const float* rows, const Made& made, const Operand& other,
                            float* out, int64_t first, int64_t count) const {
  // What is there is taken for a whole image, and the rows that lie before it for padding: there are none but
  // those of the padding that is left.
  const int64_t row = first % height;
  Window window = a.window;
  window.posts = a.posts.data();
  window.num_posts = static_cast<int>(a.posts.size());
  window.height = made.end - made.first;
  window.pad_top = a.window.pad_top + made.first - row * a.window.stride_height;
  WindowRowsWork work;
  work.window = &window;
  work.image = rows;
  work.pixel = a.in.pixel;
  work.rows = count;
  work.operands = &other;
  work.out = out;
  work.out_pixel = a.out.pixel;
  RunWindow(work);
}

}  // namespace collage::native
