// SPDX-License-Identifier: Apache-2.0
//
// What stands before a source of kernels that the emulator compiles: the part of CUDA's C++ that TVM's
// kernels use. The threads of a block are fibers of one thread of the processor (threads.cc), of which one
// runs at a time.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#define __CUDACC_RTC__
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
#define __global__
#define __device__
#define __launch_bounds__(...)
// Blocks run one after the other.
#define __shared__ static
#define __forceinline__ inline

struct EmulatedPlace {
  unsigned int x, y, z;
};
// Of the fiber that runs.
extern "C" EmulatedPlace emulated_thread, emulated_block;
extern "C" void emulated_syncthreads();
// Gives `mine` to the other threads of the warp, and gives what the thread of that lane gave; what this
// thread gave where there is no such lane.
extern "C" uint64_t emulated_shuffle(uint64_t mine, int lane);
extern "C" int emulated_lane();
extern "C" unsigned int emulated_active();

#define threadIdx emulated_thread
#define blockIdx emulated_block
#define __syncthreads emulated_syncthreads
#define __activemask emulated_active

template <typename T>
T emulated_exchange(T mine, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &mine, sizeof(T));
  word = emulated_shuffle(word, lane);
  std::memcpy(&mine, &word, sizeof(T));
  return mine;
}
// Lanes outside of a thread's group of `width` are not there: it keeps what it has.
template <typename T>
T __shfl_sync(unsigned int, T mine, int lane, int width = 32) {
  return emulated_exchange(mine, emulated_lane() / width * width + lane % width);
}
template <typename T>
T __shfl_down_sync(unsigned int, T mine, unsigned int by, int width = 32) {
  const int own = emulated_lane(), lane = own + static_cast<int>(by);
  return emulated_exchange(mine, own / width == lane / width ? lane : own);
}
template <typename T>
T __shfl_up_sync(unsigned int, T mine, unsigned int by, int width = 32) {
  const int own = emulated_lane(), lane = own - static_cast<int>(by);
  return emulated_exchange(mine, lane >= 0 && own / width == lane / width ? lane : own);
}

template <typename T>
T atomicAdd(T* to, T by) {
  const T before = *to;
  *to += by;
  return before;
}

#define EMULATED_VECTORS(T, name)                                    \
  struct name##2 { T x, y; };                                        \
  struct name##3 { T x, y, z; };                                     \
  struct name##4 { T x, y, z, w; };                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTORS(signed char, char)
EMULATED_VECTORS(unsigned char, uchar)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(unsigned short, ushort)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned int, uint)
EMULATED_VECTORS(long long, longlong)
EMULATED_VECTORS(unsigned long long, ulonglong)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
#undef EMULATED_VECTORS

// The device's functions of these names take numbers of one type, whichever that is; NaN is passed over.
template <typename T>
T emulated_least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(a, b);
  else
    return b < a ? b : a;
}
template <typename T>
T emulated_most(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(a, b);
  else
    return a < b ? b : a;
}
template <typename A, typename B>
auto min(A a, B b) {
  return emulated_least<std::common_type_t<A, B>>(a, b);
}
template <typename A, typename B>
auto max(A a, B b) {
  return emulated_most<std::common_type_t<A, B>>(a, b);
}

template <typename To, typename From>
To emulated_bits(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0F, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __cosf(float x) { return std::cos(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __dp4a(int a, int b, int sum) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
  }
  return sum;
}
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int sum) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<unsigned char>(a >> shift) * static_cast<unsigned char>(b >> shift);
  }
  return sum;
}
template <typename T>
T __ldg(const T* from) {
  return *from;
}

// Calls a kernel with its arguments as the driver is given them: where each of them lies.
template <typename... A, size_t... I>
void emulated_call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}
template <typename... A>
void emulated_call(void (*kernel)(A...), void** arguments) {
  emulated_call(kernel, arguments, std::index_sequence_for<A...>());
}
