// SPDX-License-Identifier: Apache-2.0
#include "native/strips.h"

#include <algorithm>

#include "native/gemm.h"
#include "native/workers.h"

namespace collage::native {

void Strips::Run(void* const* data) const {
  DivideAmongWorkers(threads, strips, [&](int64_t strip, int64_t worker) {
    RunStrip(data, static_cast<float*>(data[0]) + worker * scratch, strip);
  });
}

void Strips::RunStrip(void* const* data, float* mine, int64_t index) const {
  const int64_t rows = images * height;
  const int64_t first = index * rows / strips, count = (index + 1) * rows / strips - first;
  const int64_t pixels = count * width;
  const auto at = [&](const StripPlace& place) {
    float* const base = place.tensor == StripPlace::kScratch
                            ? mine + place.offset
                            : static_cast<float*>(data[place.tensor]) + first * width * place.pixel;
    return base + place.channel;
  };
  for (const StripAction& a : actions) {
    float* const out = at(a.out);
    if (a.factors >= 0) {
      RunFactors(a, static_cast<const float*>(data[a.other.tensor]), at(a.in), out, first, count);
      continue;
    }
    const Operand other{a.reads_other ? at(a.other) : nullptr, a.other.pixel};
    if (a.kind == StripAction::Kind::kWindow) {
      RunWindows(a, static_cast<const float*>(data[a.in.tensor]) + a.in.channel, other, out, first, count);
    } else if (a.kind == StripAction::Kind::kProduct) {
      GemmWork work;
      work.left = at(a.in);
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
    } else {
      Apply({at(a.in), a.in.pixel, out, a.out.pixel, pixels, a.channels_out, a.posts.data(),
             static_cast<int>(a.posts.size()), &other});
    }
  }
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

}  // namespace collage::native
