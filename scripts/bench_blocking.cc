// SPDX-License-Identifier: Apache-2.0
//
// How much the numbers by which kernels of our own cut their work matter (docs/native.md, "Blocking"): each
// kernel with a number at half of what it is, as it is, and at twice, and Winograd's with tiles of either
// side, beside the side that it takes by itself. scripts/bench_blocking.sh builds and runs it:
//
//   bench_blocking [--threads N] [--rounds N] [--only WORD]
//
// Times are medians of rounds in which the variants take turns. Weights are read from memory, as in a
// network: each call takes the next of so many copies that no cache holds them.
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "native/attention.h"
#include "native/level.h"
#include "native/norm.h"
#include "native/product.h"
#include "native/strips.h"
#include "native/upsampling.h"
#include "native/upsampling_axis.h"
#include "native/winograd.h"
#include "native/workers.h"
#include "native/workspace.h"

namespace collage::native {
namespace {

using Calls = std::vector<std::function<void()>>;  // which take turns

// More than third-level caches hold.
constexpr int64_t kColdBytes = 128 << 20;
constexpr double kLeastSeconds = 2e-3;  // of a sample

struct Options {
  int threads = oneapi::tbb::info::default_concurrency();
  int rounds = 31;
  std::string only;
};

// So many random numbers, in memory as the runtime has it.
class Numbers {
 public:
  explicit Numbers(int64_t count) : memory_(AllocateAligned(static_cast<size_t>(count) * sizeof(float))) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> distribution(-1, 1);
    constexpr int64_t kDifferent = 1 << 16;
    for (int64_t i = 0; i < count; ++i) {
      data()[i] = i < kDifferent ? distribution(random) : data()[i - kDifferent];
    }
  }
  float* data() const { return static_cast<float*>(memory_.get()); }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  std::shared_ptr<void> memory_;
};

// How many copies of so many weights no cache holds.
int64_t ColdCopies(int64_t weights) {
  return std::max<int64_t>(1, kColdBytes / (weights * static_cast<int64_t>(sizeof(float))));
}

double Microseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// The median time of a call of each variant, in microseconds.
std::vector<double> Times(const std::vector<Calls>& variants, const Options& options, int threads) {
  oneapi::tbb::task_arena arena(threads);
  std::vector<std::vector<double>> samples(variants.size());
  std::vector<size_t> turn(variants.size(), 0), calls(variants.size(), 1);
  const auto sample = [&](size_t i) {
    return Microseconds([&] {
      arena.execute([&] {
        for (size_t n = 0; n < calls[i]; ++n) variants[i][turn[i]++ % variants[i].size()]();
      });
    });
  };
  for (size_t i = 0; i < variants.size(); ++i) {
    sample(i);
    calls[i] = std::max<size_t>(1, static_cast<size_t>(kLeastSeconds * 1e6 / std::max(sample(i), 0.01)));
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      samples[i].push_back(sample(i) / static_cast<double>(calls[i]));
    }
  }
  std::vector<double> medians;
  for (auto& of : samples) {
    std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
    medians.push_back(of[of.size() / 2]);
  }
  return medians;
}

// A number of a kernel, on one shape. make: the kernel with a number, for so many threads.
struct Case {
  const char* kernel;
  const char* number;
  int64_t standard;
  std::string shape;
  bool divides;  // what it says shows with several threads only
  std::function<Calls(int64_t value, int threads)> make;
};

WinogradShape Square(int64_t batch, int64_t channels, int64_t side, int64_t depth = 1) {
  WinogradShape s;
  s.batch = batch;
  s.in_channels = s.out_channels = channels;
  s.in_height = s.out_height = s.in_width = s.out_width = side;
  s.in_depth = s.out_depth = depth;
  if (depth > 1) {
    s.kernel_depth = 3;
    s.pad_depth = 1;
  }
  s.pad_top = s.pad_left = 1;
  return s;
}

std::string Named(const WinogradShape& s) {
  std::string name = std::to_string(s.batch) + "x" + std::to_string(s.in_channels) + " to " +
                     std::to_string(s.out_channels) + ", ";
  if (s.out_depth > 1) name += std::to_string(s.out_depth) + "x";
  return name + std::to_string(s.out_height) + "x" + std::to_string(s.out_width);
}

Calls WinogradCalls(const WinogradShape& s, int threads, const WinogradBlocking& blocking) {
  const auto kernel = std::make_shared<WinogradKernel>(s, std::vector<Post>{}, threads, blocking);
  const int64_t pixels = s.batch * s.in_depth * s.in_height * s.in_width, taps = 9 * s.kernel_depth;
  const auto packed = static_cast<int64_t>(kernel->PackedSize());
  const int64_t copies = ColdCopies(packed);
  const Numbers src(pixels * s.in_channels), dst(pixels * s.out_channels),
      weight(s.in_channels * s.out_channels * taps), all(packed * copies),
      scratch(static_cast<int64_t>(kernel->ScratchSize()));
  const int64_t strides[5] = {s.in_channels * taps, taps, 9, 3, 1};
  kernel->Pack(weight.data(), strides, all.data());
  for (int64_t copy = 1; copy < copies; ++copy) std::copy_n(all.data(), packed, all.data() + copy * packed);
  Calls calls;
  for (int64_t copy = 0; copy < copies; ++copy) {
    calls.push_back([=] {
      kernel->Run(src.data(), all.data() + copy * packed, nullptr, nullptr, scratch.data(), dst.data());
    });
  }
  return calls;
}

// A number that is a field of how a kernel's work is cut; calls: the kernel with such a blocking, for so many
// threads.
template <typename Blocking>
Case Field(const char* kernel, const char* number, int64_t Blocking::* field, std::string shape, bool divides,
           std::function<Calls(const Blocking&, int threads)> calls) {
  return {kernel,
          number,
          Blocking().*field,
          std::move(shape),
          divides,
          [field, calls = std::move(calls)](int64_t value, int threads) {
            Blocking blocking;
            blocking.*field = value;
            return calls(blocking, threads);
          }};
}

void AddWinograd(std::vector<Case>* cases) {
  using Blocking = WinogradBlocking;
  const auto add = [cases](const WinogradShape& s, const char* number, int64_t Blocking::* field) {
    cases->push_back(Field<Blocking>(
        "winograd", number, field, Named(s), false,
        [s](const Blocking& blocking, int threads) { return WinogradCalls(s, threads, blocking); }));
  };
  for (const WinogradShape& s :
       {Square(1, 64, 56), Square(1, 64, 112), Square(8, 128, 28), Square(1, 64, 28, 8)}) {
    add(s, "block_floats", &Blocking::block_floats);
  }
  for (const WinogradShape& s : {Square(8, 256, 14), Square(8, 512, 14), Square(8, 512, 7)}) {
    add(s, "least_tiles", &Blocking::least_tiles);
  }
}

void AddAttention(std::vector<Case>* cases) {
  using Blocking = AttentionBlocking;
  struct Shape {
    int64_t heads, tokens, size;
  };
  const auto add = [cases](const Shape& s, const char* number, int64_t Blocking::* field) {
    const std::string name = std::to_string(s.heads) + " heads, " + std::to_string(s.tokens) + " tokens, " +
                             std::to_string(s.size);
    cases->push_back(
        Field<Blocking>("attention", number, field, name, false, [s](const Blocking& blocking, int threads) {
          AttentionShape shape;
          shape.heads = s.heads;
          shape.queries = shape.keys = s.tokens;
          shape.size = shape.value_size = s.size;
          shape.scale = 0.125F;
          shape.query = shape.key = shape.value = shape.result = {0, 0, s.size, s.heads * s.size, 1};
          const int64_t each = s.heads * s.tokens * s.size;
          const Numbers query(each), key(each), others(each), result(each),
              scratch(AttentionScratch(shape, threads, blocking) / static_cast<int64_t>(sizeof(float)));
          const PieceWork work = AttentionKernel(shape, threads, blocking);
          return Calls{[=] {
            void* const data[] = {query.data(), key.data(), others.data(), result.data(), scratch.data()};
            DivideAmongWorkers(threads, work.pieces,
                               [&](int64_t piece, int64_t) { work.work(data, static_cast<int>(piece)); });
          }};
        }));
  };
  for (const Shape& s : {Shape{12, 128, 64}, Shape{8, 1024, 64}, Shape{4, 2048, 40}}) {
    if (s.tokens > Blocking().keys / 2) add(s, "keys", &Blocking::keys);
    add(s, "scores", &Blocking::scores);
  }
}

void AddProduct(std::vector<Case>* cases) {
  using Blocking = ProductBlocking;
  struct Shape {
    int64_t rows, length, columns;
  };
  const auto add = [cases](const Shape& s, const char* number, int64_t Blocking::* field) {
    const std::string name =
        std::to_string(s.rows) + " rows, " + std::to_string(s.length) + " to " + std::to_string(s.columns);
    cases->push_back(
        Field<Blocking>("product", number, field, name, false, [s](const Blocking& blocking, int threads) {
          const Numbers left(s.rows * s.length), result(s.rows * s.columns), weights(s.length * s.columns);
          Calls calls;
          for (int64_t copy = 0; copy < ColdCopies(s.length * s.columns); ++copy) {
            const auto packed = std::make_shared<PackedWeights>(s.length, std::vector<int64_t>{s.columns});
            packed->Add(weights.data(), s.columns, 1, nullptr);
            const auto product = std::make_shared<Product>(packed, std::vector<Post>{}, blocking);
            calls.push_back([=] {
              float* const results[] = {result.data()};
              Product::Arguments a;
              a.rows = s.rows;
              a.left = left.data();
              a.left_row = s.length;
              a.results = results;
              DivideAmongWorkers(threads, product->Pieces(s.rows, threads), [&](int64_t piece, int64_t) {
                product->Run(a, static_cast<int>(piece), threads);
              });
            });
          }
          return calls;
        }));
  };
  for (const Shape& s : {Shape{128, 768, 768}, Shape{128, 3072, 768}, Shape{16, 4096, 1024}}) {
    if (s.length > Blocking().depth / 2) add(s, "depth", &Blocking::depth);
  }
  for (const Shape& s : {Shape{384, 768, 3072}, Shape{512, 1024, 1024}}) {
    add(s, "left_elements", &Blocking::left_elements);
  }
}

// One matrix for each head, as where few tokens attend to all that came before them.
void AddUnpacked(std::vector<Case>* cases) {
  using Blocking = UnpackedBlocking;
  struct Shape {
    int64_t batch, rows, length, columns;
    bool transposed;
  };
  const auto add = [cases](const Shape& s, const char* number, int64_t Blocking::* field) {
    const std::string name = std::to_string(s.batch) + "x" + std::to_string(s.rows) + "x" +
                             std::to_string(s.length) + " to " + std::to_string(s.columns) +
                             (s.transposed ? " transp." : "");
    cases->push_back(
        Field<Blocking>("unpacked", number, field, name, false, [s](const Blocking& blocking, int threads) {
          BatchProduct b;
          b.batch = s.batch;
          b.length = b.left_row = s.length;
          b.columns = b.result_row = s.columns;
          b.left_batch = s.rows * s.length;
          b.right_row = s.transposed ? 1 : s.columns;
          b.right_column = s.transposed ? s.length : 1;
          b.right_batch = s.length * s.columns;
          b.result_batch = s.rows * s.columns;
          b.blocking = blocking;
          const Numbers left(s.batch * b.left_batch), result(s.batch * b.result_batch),
              scratch(b.Scratch(threads));
          Calls calls;
          for (int64_t copy = 0; copy < ColdCopies(s.batch * b.right_batch); ++copy) {
            const Numbers right(s.batch * b.right_batch);
            calls.push_back([=] {
              BatchProduct::Arguments a;
              a.rows = s.rows;
              a.left = left.data();
              a.right = right.data();
              a.result = result.data();
              a.scratch = scratch.data();
              const int pieces = b.Pieces(s.rows, threads);
              DivideAmongWorkers(threads, pieces,
                                 [&](int64_t piece, int64_t) { b.Run(a, static_cast<int>(piece), pieces); });
            });
          }
          return calls;
        }));
  };
  for (const int64_t rows : {5, 8, 12}) {
    add({12, rows, 64, 512, true}, "rows", &Blocking::rows);
    add({12, rows, 512, 64, false}, "rows", &Blocking::rows);
  }
  for (const int64_t rows : {1, 4}) {
    for (const Shape& s : {Shape{12, rows, 512, 64, false}, Shape{8, rows, 1024, 128, false},
                           Shape{1, rows, 1024, 2048, false}}) {
      add(s, "length", &Blocking::length);
    }
  }
}

void AddNorm(std::vector<Case>* cases) {
  for (const auto& [rows, length] :
       {std::pair<int64_t, int64_t>{16, 256}, {128, 768}, {1, 32768}, {3, 12288}}) {
    cases->push_back(
        {"norm", "piece", kNormPiece, std::to_string(rows) + " rows of " + std::to_string(length), true,
         [rows = rows, length = length](int64_t value, int threads) {
           NormShape shape;
           shape.length = shape.channels = length;
           shape.gain = shape.shift = true;
           shape.epsilon = 1e-5F;
           const auto norm = std::make_shared<Norm>(shape, std::vector<Post>{}, value);
           const Numbers data(rows * length), gain(length), shift(length), out(rows * length);
           const auto scratch = std::make_shared<std::vector<NormMoments>>(norm->Scratch(rows, threads));
           return Calls{[=] {
             Norm::Arguments a;
             a.rows = rows;
             a.data = data.data();
             a.gain = gain.data();
             a.shift = shift.data();
             a.out = out.data();
             a.scratch = scratch->data();
             const int pieces = norm->Pieces(rows, threads);
             const int64_t parts = norm->Parts(rows, threads);
             const auto each = [&](const auto& work) {
               DivideAmongWorkers(threads, pieces,
                                  [&](int64_t piece, int64_t) { work(static_cast<int>(piece)); });
             };
             if (parts == 1) return each([&](int piece) { norm->WholeRows(a, piece, pieces); });
             each([&](int piece) { norm->Measure(a, parts, piece, pieces); });
             each([&](int piece) { norm->Write(a, parts, piece, pieces); });
           }};
         }});
  }
}

void AddUpsampling(std::vector<Case>* cases) {
  struct Shape {
    int64_t in, out, side;
  };
  for (const Shape& s : {Shape{64, 64, 64}, Shape{256, 128, 28}, Shape{512, 256, 60}}) {
    cases->push_back({"upsampled", "operands", kUpsampledOperands,
                      std::to_string(s.in) + " to " + std::to_string(s.out) + ", twice " +
                          std::to_string(s.side) + "x" + std::to_string(s.side),
                      false, [s](int64_t value, int threads) {
                        const UpsampledAxis axis(s.side, 2, 3, 1, 2 * s.side);
                        const auto kernel = std::make_shared<UpsampledConvolutionKernel>(
                            1, s.in, s.out, axis, axis, threads, value);
                        const int64_t pixels = s.side * s.side;
                        const Numbers src(s.in * pixels), dst(4 * s.out * pixels), weights(9 * s.in * s.out),
                            packed(static_cast<int64_t>(kernel->PackedSize())),
                            scratch(static_cast<int64_t>(kernel->ScratchSize()));
                        kernel->Pack(weights.data(), {9 * s.in, 9, 3, 1}, packed.data());
                        UpsampledConvolutionKernel::Arguments a;
                        a.src_layout = {s.in * pixels, kLanes * pixels, kLanes * s.side, kLanes};
                        a.dst_layout = {4 * s.out * pixels, 4 * kLanes * pixels, 2 * kLanes * s.side, kLanes};
                        return Calls{[=]() mutable {
                          a.src = src.data();
                          a.packed = packed.data();
                          a.dst = dst.data();
                          a.scratch = scratch.data();
                          kernel->Run(a);
                        }};
                      }});
  }
}

// A depthwise convolution of 3x3 and a 1x1 convolution of its result, as in inverted residuals.
void AddStrips(std::vector<Case>* cases) {
  struct Shape {
    int64_t side, wide, out;
  };
  for (const Shape& s : {Shape{112, 32, 16}, Shape{56, 144, 24}, Shape{28, 192, 32}, Shape{14, 576, 96}}) {
    cases->push_back({"strips", "bytes", kStripBytes,
                      std::to_string(s.wide) + " to " + std::to_string(s.out) + ", " +
                          std::to_string(s.side) + "x" + std::to_string(s.side),
                      false, [s](int64_t value, int threads) {
                        enum Tensor { kScratch, kImage, kResult };
                        const int64_t pixels = s.side * s.side, row = s.side * s.wide;
                        const Numbers taps(TapsSize(s.wide, 9)), weights(PackedElements(s.wide, s.out)),
                            image(pixels * s.wide), result(pixels * s.out);
                        const auto step = std::make_shared<Strips>();
                        step->images = 1;
                        step->height = step->width = s.side;
                        step->threads = threads;
                        const auto bytes = [=](int64_t rows) {
                          return rows * s.side * (s.wide + s.out) * static_cast<int64_t>(sizeof(float));
                        };
                        step->strips = StripsFor(s.side, threads, bytes, value);
                        step->scratch = DivideUp(s.side, step->strips) * row;
                        StripAction window;
                        window.kind = StripAction::Kind::kWindow;
                        window.in = {kImage, 0, 0, s.wide};
                        window.out = {StripPlace::kScratch, 0, 0, s.wide};
                        window.window.channels = s.wide;
                        window.window.height = window.window.width = window.window.out_width = s.side;
                        window.window.kernel_height = window.window.kernel_width = 3;
                        window.window.pad_top = window.window.pad_left = 1;
                        window.window.taps = taps.data();
                        window.posts = {{Post::Kind::kClip, 0, 6, -1}};
                        StripAction product;
                        product.kind = StripAction::Kind::kProduct;
                        product.in = window.out;
                        product.out = {kResult, 0, 0, s.out};
                        product.channels_in = s.wide;
                        product.channels_out = s.out;
                        product.weight = weights.data();
                        step->actions = {window, product};
                        step->owned = {taps.memory(), weights.memory()};
                        const Numbers scratch(step->scratch * threads);
                        return Calls{[=] {
                          void* const data[] = {scratch.data(), image.data(), result.data()};
                          step->Run(data);
                        }};
                      }});
  }
}

// A line for each number and shape, on one thread and on all. Numbers that say what is worth dividing among
// threads show with several only.
void RunCases(const std::vector<Case>& cases, const Options& options) {
  std::printf("%-11s %-14s %8s  %-28s %7s %10s %10s %10s %6s %6s\n", "kernel", "number", "is", "shape",
              "threads", "us at half", "as it is", "at twice", "half", "twice");
  for (const Case& one : cases) {
    if ((std::string(one.kernel) + " " + one.number).find(options.only) == std::string::npos) continue;
    std::vector<int> counts = {options.threads};
    if (options.threads > 1 && !one.divides) counts.insert(counts.begin(), 1);
    for (const int threads : counts) {
      std::vector<Calls> variants;
      for (const int64_t value : {one.standard / 2, one.standard, one.standard * 2}) {
        variants.push_back(one.make(value, threads));
      }
      const std::vector<double> us = Times(variants, options, threads);
      std::printf("%-11s %-14s %8lld  %-28s %7d %10.1f %10.1f %10.1f %6.2f %6.2f\n", one.kernel, one.number,
                  static_cast<long long>(one.standard), one.shape.c_str(), threads, us[0], us[1], us[2],
                  us[0] / us[1], us[2] / us[1]);
      std::fflush(stdout);
    }
  }
}

// Winograd's kernel with tiles of either side, and which side it takes with its weight_cost at half, once and
// twice.
void RunSides(const Options& options) {
  if (std::string("winograd side").find(options.only) == std::string::npos) return;
  const WinogradBlocking standard;
  std::printf(
      "\nTiles of Winograd's kernel, and the side that it takes where a weight costs as much as so many"
      " multiplications\n%-28s %7s %10s %10s %6s",
      "shape", "threads", "us of 2x2", "of 4x4", "ratio");
  const int64_t costs[] = {standard.weight_cost / 2, standard.weight_cost, standard.weight_cost * 2};
  for (const int64_t cost : costs) std::printf(" %5lld", static_cast<long long>(cost));
  std::printf("\n");
  for (const WinogradShape& s :
       {Square(1, 64, 56), Square(1, 128, 28), Square(1, 256, 14), Square(1, 512, 13), Square(1, 512, 14),
        Square(1, 256, 7), Square(1, 512, 7), Square(1, 256, 10), Square(8, 256, 14), Square(8, 512, 7),
        Square(1, 256, 14, 4), Square(1, 512, 7, 2)}) {
    std::vector<int> counts = {1};
    if (options.threads > 1) counts.push_back(options.threads);
    for (const int threads : counts) {
      std::vector<Calls> variants;
      for (const int64_t side : {2, 4}) {
        WinogradBlocking blocking;
        blocking.side = side;
        variants.push_back(WinogradCalls(s, threads, blocking));
      }
      const std::vector<double> us = Times(variants, options, threads);
      std::printf("%-28s %7d %10.1f %10.1f %6.2f", Named(s).c_str(), threads, us[0], us[1], us[0] / us[1]);
      for (const int64_t cost : costs) {
        WinogradBlocking blocking;
        blocking.weight_cost = cost;
        std::printf(" %5lld", static_cast<long long>(WinogradKernel(s, {}, threads, blocking).side()));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--threads")
      options.threads = std::atoi(value);
    else if (name == "--rounds")
      options.rounds = std::atoi(value);
    else if (name == "--only")
      options.only = value;
    else
      options.rounds = 0;
  }
  if (options.threads < 1 || options.rounds < 1) {
    std::fprintf(stderr, "usage: bench_blocking [--threads N] [--rounds N] [--only WORD]\n");
    return 2;
  }
  std::printf(
      "Numbers by which kernels cut their work (docs/native.md): vectors of %d lanes, %d threads, medians of "
      "%d"
      " rounds.\nhalf, twice: the time to that with the number as it is; below 1 it would be faster so.\n\n",
      BestLevel().lanes, options.threads, options.rounds);
  std::vector<Case> cases;
  AddWinograd(&cases);
  AddAttention(&cases);
  AddProduct(&cases);
  AddUnpacked(&cases);
  AddNorm(&cases);
  AddUpsampling(&cases);
  AddStrips(&cases);
  RunCases(cases, options);
  RunSides(options);
  return 0;
}

}  // namespace
}  // namespace collage::native

int main(int argc, char** argv) { return collage::native::Main(argc, argv); }
