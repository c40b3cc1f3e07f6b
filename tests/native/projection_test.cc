// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of one pixel.
//
// ctest: levels threads kernel
#include "native/projection.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "post_check.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

void CheckProjection(int64_t pixels, int64_t inputs, int64_t outputs, bool with_bias,
                     const std::vector<Post>& posts, int threads, const Magnitudes& magnitudes = {}) {
  const std::vector<float> src = Sample(pixels * inputs, 1, magnitudes.data),
                           weight = Sample(outputs * inputs, 2, magnitudes.weights),
                           bias = Sample(outputs, 3, magnitudes.results()),
                           first = Sample(pixels * outputs, 4, magnitudes.results()),
                           second = Sample(pixels * outputs, 5, magnitudes.results());
  const float* addends[] = {first.data(), second.data()};
  const ProjectionKernel kernel(pixels, inputs, outputs, posts, threads);
  std::vector<float> packed(kernel.PackedSize()), dst(pixels * outputs, 1e9F);
  kernel.Pack(weight.data(), inputs, 1, packed.data());
  kernel.Run(src.data(), packed.data(), with_bias ? bias.data() : nullptr, addends, dst.data());
  std::vector<double> want;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = with_bias ? bias[o] : 0;
      for (int64_t k = 0; k < inputs; ++k)
        sum += static_cast<double>(src[p * inputs + k]) * weight[o * inputs + k];
      for (const Post& post : posts) {
        sum = PostOf(post, sum, post.operand >= 0 ? addends[post.operand][want.size()] : 0);
      }
      want.push_back(sum);
    }
  }
  ExpectClose(dst, want, 1e-4, std::to_string(pixels) + " pixels, " + std::to_string(outputs) + " channels",
              magnitudes.results());
}

TEST(Projection, AtSizesAroundTheTiles) {
  for (const int64_t pixels : {1, 5, 6, 7, 13, 95, 96, 97, 200}) {
    for (const int64_t outputs : {1, 15, 16, 33, 48, 64, 80})
      CheckProjection(pixels, 7, outputs, true, PostsWithOperands(), 2);
  }
  CheckProjection(11, 1, 16, false, {}, 1);
}

TEST(Projection, OnSeveralThreads) {
  for (const int threads : {1, 2, 3, 8}) CheckProjection(500, 64, 128, true, PostsWithOperands(), threads);
}

// The posts are such as leave small numbers small.
TEST(Projection, OfDenormalNumbers) {
  const std::vector<Post> posts = {
      {Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kRelu, 0.125F, 0, -1}, {Post::Kind::kAdd, 0, 0, 1}};
  for (const Magnitudes& magnitudes : kDenormalMagnitudes)
    CheckProjection(37, 19, 70, true, posts, 2, magnitudes);
}

TEST(Projection, OfWhatIsNotANumber) {
  ExpectPosts([](const Post& post, float x) {
    const std::vector<float> src(1, x), weight(17, 1);
    const ProjectionKernel kernel(1, 1, 17, {post}, 1);
    std::vector<float> packed(kernel.PackedSize()), dst(17);
    kernel.Pack(weight.data(), 1, 1, packed.data());
    kernel.Run(src.data(), packed.data(), nullptr, nullptr, dst.data());
    return dst;
  });
}

}  // namespace
}  // namespace collage::native
