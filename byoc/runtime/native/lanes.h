// SPDX-License-Identifier: Apache-2.0
//
// The vectors of one level of instructions (native/level.h), and what can be done with them: loads and stores
// of the first few elements, the greater and the less as native/post.h has them, e^x, sums of all lanes.
#ifndef COLLAGE_NATIVE_LANES_H_
#define COLLAGE_NATIVE_LANES_H_

#ifndef COLLAGE_LANES
#error "only level_*.cc include this"
#endif

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// Vectors that are wider than what every x86 has are passed between functions of one file only.
#pragma GCC diagnostic ignored "-Wpsabi"

#define COLLAGE_ALWAYS inline __attribute__((always_inline))

// Has a vector in a register, which the compiler would rather read from memory for each use.
#if defined(__x86_64__) && !defined(__clang__)
#define COLLAGE_KEEP(vector) asm("" : "+v"(vector))
#define COLLAGE_KEEP_ADDRESS(pointer) asm("" : "+r"(pointer))
#else
#define COLLAGE_KEEP(vector)
#define COLLAGE_KEEP_ADDRESS(pointer)
#endif

namespace collage::native {
namespace {

constexpr int kWidth = COLLAGE_LANES;
typedef float Vector __attribute__((vector_size(COLLAGE_LANES * 4)));
typedef float Anywhere __attribute__((vector_size(COLLAGE_LANES * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(COLLAGE_LANES * 4)));
typedef uint32_t Bits __attribute__((vector_size(COLLAGE_LANES * 4)));

constexpr float kInfinity = __builtin_inff();
constexpr float kLowest = -__FLT_MAX__;

COLLAGE_ALWAYS Vector Load(const float* from) { return *reinterpret_cast<const Anywhere*>(from); }
COLLAGE_ALWAYS void Store(float* to, Vector v) { *reinterpret_cast<Anywhere*>(to) = v; }
COLLAGE_ALWAYS Vector All(float value) { return value - Vector{}; }

// Which lanes a shuffle takes, of one vector or of two, one behind the other.
struct LaneNumbers {
  alignas(COLLAGE_LANES * 4) int32_t of[COLLAGE_LANES];
};
COLLAGE_ALWAYS Integers NumbersOf(const LaneNumbers& lanes) {
  return *reinterpret_cast<const Integers*>(lanes.of);
}

constexpr LaneNumbers Ascending() {
  LaneNumbers lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.of[i] = i;
  return lanes;
}

constexpr LaneNumbers kNumbers = Ascending();

// Which of a vector's lanes are used: the first so many.
#if COLLAGE_LANES == 16
struct Lanes {
  __mmask16 mask;
};
COLLAGE_ALWAYS Lanes FirstLanes(int64_t count) {
  return {count >= kWidth ? __mmask16(0xffff) : static_cast<__mmask16>((1U << count) - 1U)};
}
COLLAGE_ALWAYS Vector LoadLanes(const float* from, Lanes lanes) {
  return _mm512_maskz_loadu_ps(lanes.mask, from);
}
// A whole vector is stored as one: a masked one cannot be read again before it has arrived.
COLLAGE_ALWAYS void StoreLanes(float* to, Vector v, Lanes lanes) {
  if (lanes.mask == 0xffff) {
    Store(to, v);
  } else {
    _mm512_mask_storeu_ps(to, lanes.mask, v);
  }
}
#else
struct Lanes {
  int count;
};
#if COLLAGE_LANES == 8
COLLAGE_ALWAYS Vector LoadFirst(const float* from, int count) {
  return _mm256_maskload_ps(from, reinterpret_cast<__m256i>(NumbersOf(kNumbers) < count));
}
#else
__attribute__((noinline)) Vector LoadFirst(const float* from, int count) {
  alignas(COLLAGE_LANES * 4) float all[COLLAGE_LANES] = {};
  for (int i = 0; i < count; ++i) all[i] = from[i];
  return Load(all);
}
#endif
__attribute__((noinline)) void StoreFirst(float* to, Vector v, int count) {
  alignas(COLLAGE_LANES * 4) float all[COLLAGE_LANES];
  Store(all, v);
  for (int i = 0; i < count; ++i) to[i] = all[i];
}
COLLAGE_ALWAYS Lanes FirstLanes(int64_t count) {
  return {count >= kWidth ? kWidth : static_cast<int>(count)};
}
COLLAGE_ALWAYS Vector LoadLanes(const float* from, Lanes lanes) {
  return lanes.count == kWidth ? Load(from) : LoadFirst(from, lanes.count);
}
COLLAGE_ALWAYS void StoreLanes(float* to, Vector v, Lanes lanes) {
  if (lanes.count == kWidth) {
    Store(to, v);
  } else {
    StoreFirst(to, v, lanes.count);
  }
}
#endif

// Bytes as whole numbers, of which so many are there; the other lanes are 0.
COLLAGE_ALWAYS Integers AllBytes(const uint8_t* from) {
#if COLLAGE_LANES == 16
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Integers>(_mm512_maskz_cvtepu8_epi32(0xffff, bytes));
#elif COLLAGE_LANES == 8
  return reinterpret_cast<Integers>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Integers all;
  for (int i = 0; i < kWidth; ++i) all[i] = from[i];
  return all;
#endif
}
__attribute__((noinline)) Integers FirstBytes(const uint8_t* from, int64_t count) {
  uint8_t all[COLLAGE_LANES] = {};
  for (int64_t i = 0; i < count; ++i) all[i] = from[i];
  return AllBytes(all);
}
COLLAGE_ALWAYS Integers LoadBytes(const uint8_t* from, int64_t count) {
  return count >= kWidth ? AllBytes(from) : FirstBytes(from, count);
}

// a > b ? a : b and a < b ? a : b, which is what the instructions do. (With a mask, as GCC 12 warns of its
// own header otherwise, its bug 105593; the mask costs nothing.)
COLLAGE_ALWAYS Vector Greater(Vector a, Vector b) {
#if COLLAGE_LANES == 16
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif COLLAGE_LANES == 8
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
COLLAGE_ALWAYS Vector Less(Vector a, Vector b) {
#if COLLAGE_LANES == 16
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif COLLAGE_LANES == 8
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// scale * clip(round(x / scale), least, least + 255), halves away from 0; least is a whole number.
COLLAGE_ALWAYS Vector OnGrid(Vector x, Vector scale, Vector least) {
  const Vector inside = Greater(Less(x / scale, least + 255.0F), least);
  // The greatest number below a half: with it, what is below a half by less than half a bit stays below.
  const Vector half = All(0.49999997F);
  const Integers whole = __builtin_convertvector(inside + (inside < 0.0F ? -half : half), Integers);
  return __builtin_convertvector(whole, Vector) * scale;
}

// e^x for x <= 0, to 4e-7 of it: x = n ln 2 + r, 2^n by the exponent's bits and e^r by a polynomial, fitted
// for the least relative error. What is less than half of the least denormal number is 0; what is not a
// number stays.
COLLAGE_ALWAYS Vector Exp(Vector x) {
  // Added to a number, it leaves the nearest whole number, and 64 more, in the last bits: the exponent of
  // 2^64 e^x has room where that of e^x would be a denormal number's.
  constexpr float kShift = 12582912.0F + 64;  // 1.5 * 2^23
  const Vector shifted = x * 1.44269504F + kShift;
  const Vector n = shifted - kShift;
  const Vector r = x - n * 0.69314718F;
  Vector p = r * 0.00138145988F + 0.00836871658F;
  p = p * r + 0.0416683890F;
  p = p * r + 0.166665211F;
  p = p * r + 0.499999940F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // 2^(n + 64) times p: n + 64 is added to p's exponent.
  const Bits bits = reinterpret_cast<Bits>(p) + (reinterpret_cast<Bits>(shifted) << 23);
  const Vector power = reinterpret_cast<Vector>(bits);
  // The last product alone is rounded to a denormal number, and not of what is 0 anyway: processors take long
  // for denormal numbers.
  return (x >= -104.0F ? power : x < -104.0F ? Vector{} : x) * 0x1p-64F;
}

// 1 / (1 + e^-x), by the power of e that does not overflow.
COLLAGE_ALWAYS Vector Sigmoid(Vector x) {
  const Vector power = Exp(x > 0.0F ? -x : x);
  return (x > 0.0F ? All(1.0F) : power) / (1.0F + power);
}

// The error function: a quotient of polynomials in the square of its argument, fitted on [-4, 4]; beyond, it
// is 1 to float's precision. Its error is below 4e-7.
COLLAGE_ALWAYS Vector Erf(Vector x) {
  const Vector z = x > 4.0F ? All(4.0F) : x < -4.0F ? All(-4.0F) : x;
  const Vector u = z * z;
  Vector p = 1.97482964e-6F * u + 2.88041837e-4F;
  p = p * u + 4.00365759e-3F;
  p = p * u + 5.34675131e-2F;
  p = p * u + 1.96249231e-1F;
  p = p * u + 1.12837898F;
  Vector q = 3.74808806e-5F * u + 1.21636308e-3F;
  q = q * u + 1.54444446e-2F;
  q = q * u + 1.16476533e-1F;
  q = q * u + 5.07252511e-1F;
  q = q * u + 1.0F;
  const Vector near = z * p / q;
  return x >= 4.0F ? All(1.0F) : x <= -4.0F ? All(-1.0F) : near;
}

// Each lane's partner at a distance that is a power of two.
constexpr LaneNumbers Partners(int distance) {
  LaneNumbers lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.of[i] = i ^ distance;
  return lanes;
}

// The lanes of two vectors in turn, from the given one on.
constexpr LaneNumbers InTurn(int first) {
  LaneNumbers lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.of[i] = first + i / 2 + i % 2 * kWidth;
  return lanes;
}

constexpr LaneNumbers kPartners[] = {Partners(1), Partners(2), Partners(4), Partners(8)};
constexpr LaneNumbers kLower = InTurn(0), kUpper = InTurn(kWidth / 2);

// The greatest of the lanes, and their sum, in all lanes.
COLLAGE_ALWAYS Vector GreatestLane(Vector v) {
  for (int i = 0; 1 << i < kWidth; ++i) v = Greater(v, __builtin_shuffle(v, NumbersOf(kPartners[i])));
  return v;
}
COLLAGE_ALWAYS Vector SumOfLanes(Vector v) {
  for (int i = 0; 1 << i < kWidth; ++i) v += __builtin_shuffle(v, NumbersOf(kPartners[i]));
  return v;
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_LANES_H_
