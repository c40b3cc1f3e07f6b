// SPDX-License-Identifier: Apache-2.0
//
// A region of the backends dnnl and native as their code generator (byoc/dnnl) wrote it: tensors and
// operators on them, in the order in which they run, each with the kernel that is to do it. In: JSON text,
// see ParseProgram. Out: the same as C++ values, checked so far that everything that is named is there.
#ifndef COLLAGE_DNNL_PROGRAM_H_
#define COLLAGE_DNNL_PROGRAM_H_

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

// Kernels, threads and memory that do without oneDNN.
namespace collage::native {
class RaggedRows;
}

namespace collage::onednn {

using namespace native;

using Dims = dnnl::memory::dims;

// A tensor of the program. A tensor without dimensions has dims {1} here: oneDNN knows no rank 0.
struct ValueType {
  dnnl::memory::data_type dtype = dnnl::memory::data_type::f32;
  Dims dims;
  // Bytes (u8) that say yes or no; oneDNN knows no such type, and only attention reads them.
  bool truth = false;
};

// scale * clip(x / scale, to the nearest whole number, least, least + 255), with the scale in alpha and the
// least in beta: what quantising to bytes and back leaves of a number. oneDNN has the rounding alone, and
// nobody else means that by it.
constexpr dnnl::algorithm kGrid = dnnl::algorithm::eltwise_round;

// What happens to an operator's result before it is stored.
struct PostOp {
  enum class Kind { kEltwise, kBinary };
  Kind kind = Kind::kEltwise;
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
  float alpha = 0, beta = 0;
  // kBinary: the value that is the right side; it has the result's dimensions or is broadcast to them.
  int operand = -1;
};

// A tensor, or a part of it, as another shape than its own: dims in oneDNN's order, and the strides and the
// offset, in elements, of the plain tensor. Weights come so, whatever layout Relay gave them.
struct View {
  Dims dims, strides;
  int64_t offset = 0;
};

// What attention does to the scores with one of its masks (native/attention.h): it adds float32 values, or
// keeps scores where a truth is `keeps` and replaces the others by `fill`.
struct MaskForm {
  bool chooses = false;
  bool keeps = true;
  float fill = 0;
  // It is known to leave to query i the keys 0 .. i + sees - 1, and to add `beyond` to all others, or replace
  // them by it.
  bool triangle = false;
  int64_t sees = 0;
  float beyond = 0;
};

struct Op {
  // "conv", "deconv", "upsampled_conv", "matmul", "attention", "pool", "eltwise", "binary", "softmax",
  // "layer_norm", "batch_norm", "standardise", "rms_norm", "group_norm", "channel_scale", "concat", "reduce",
  // "variance", "resample", "reshape", "transpose", "recurrent" (one direction of a layer, whose steps have
  // been put together), "gather_tokens" (rows of a padded tensor become packed
  // ones) and "clear_padding" (the way back: in[1] has a truth for each row, and rows where it is false
  // become 0), see Packed.
  std::string kind;
  // Which of our own kernels does it; empty for oneDNN. Which kinds a kernel can do stands in CheckProgram.
  // One that cannot run on this processor, or cannot do just this operator, leaves it to oneDNN; the step's
  // name says so. onednn_bytes are oneDNN's kernels of bytes.
  std::string kernel;
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
  std::vector<int> in;
  int out = -1;
  // matmul: results beside the first, each of the same left side and of weights (and bias) of its own, which
  // follow the first's in `in`. The kernel norm: the sum that it makes first, where that is wanted.
  // recurrent: see times.
  std::vector<int> more;
  // conv, deconv, pool, resample, batch_norm, group_norm: the axes of the tensor in the order batch,
  // channels, space; empty where they stand so. transpose: the result's axis i is the argument's axis
  // perm[i].
  std::vector<int> perm;
  Dims strides, dilation, pad_front, pad_back;
  Dims window;  // pool: its size
  // upsampled_conv: how often each pixel of the data is repeated before the convolution, along each axis.
  Dims scale;
  View weight;
  // attention: how query, key, value, the result and the masks (from in[3] on) are seen, each as batch,
  // groups, heads, rows and columns, and what the masks do, in order. alpha is the scale of the scores.
  std::vector<View> views;
  std::vector<MaskForm> masks;
  // attention: weights of a query that are no numbers become 0.
  bool cleared = false;
  // recurrent (native/recurrent.h; the algorithm says which): in[0] is [steps, batch, length]. parts are
  // places in `in`, -1 for zeros: the states before the first step, those of the cells (LSTM), and then for
  // each gate the weights of the input, for each those of the state, and likewise the biases that are added
  // with either. views has a view for each of these that is there, from the weights on: [units, length],
  // [units, units], [units]. times says of the result, and of each of `more`, what it is: the state at one
  // time, kAllTimes (a state for each step, [steps, batch, units]) or kCells, behind the last step.
  static constexpr int64_t kAllTimes = -2, kCells = -1;
  std::vector<int> parts;
  Dims times;
  bool backward = false;  // the first step reads the last of the sequence
  // matmul: the last two dimensions of a side are to be exchanged.
  bool transpose_a = false, transpose_b = false;
  // conv, deconv, matmul: in[2] is one value for each channel of the result. With the kernels bytes and
  // onednn_bytes in[1] is of signed bytes, and the last of `in` the scale of each of these channels: what a
  // byte of it stands for.
  bool bias = false;
  // conv, deconv, matmul: the data and the weights are rounded to bfloat16, sums are float32. Where the
  // processor has no instructions for that, it is done in float32. With the kernel pairs, which says so, too,
  // in[1] is of bfloat16; else no kernel of ours is named.
  bool bf16 = false;
  // variance, standardise: divide by one less than the number of elements.
  bool unbiased = false;
  // Normalisations read the data, a gain and a shift for each element, or each channel, along their axes (or
  // not), and then, by the kernel norm only, what is added to the data first.
  bool unscaled = false, unshifted = false;
  int64_t groups = 0;  // group_norm: of channels; those of a group and all pixels share mean and deviation
  // softmax, concat: the axis, from 0. reduce, variance: all axes, which follow one another. layer_norm,
  // rms_norm, standardise: all axes of a row, which are the last ones; empty for the last one alone.
  // channel_scale: that of the channels.
  std::vector<int> axes;
  float alpha = 0, beta = 0, epsilon = 0;
  std::vector<PostOp> post;

  // Whether in[1] is of signed bytes.
  bool InBytes() const { return kernel == "bytes" || kernel == "onednn_bytes"; }
  // Whether it is of bfloat16.
  bool InPairs() const { return kernel == "pairs"; }
};

// Values that have a row for each place of a padded batch of sequences, of which those of padding need not be
// computed. As the program stands, they are padded as all others are; what it is where they have the rows of
// tokens alone says AtTokens (dnnl_packed_program.h).
struct Packed {
  // The input that says which rows are tokens: batch, length, and axes of one element.
  int valid = -1;
  // How many axes of each of these values, the first ones, are its rows: batch times length of them.
  std::map<int, int> axes;
  // Those of them whose rows go place by place, and not sequence by sequence. Of tokens alone all are in the
  // order of sequences.
  std::set<int> turned;
};

// The form of programs that are read; no other is.
constexpr int kProgramForm = 5;

struct Program {
  std::vector<ValueType> values;
  std::vector<int> inputs, outputs;
  // The value that the i-th constant tensor of the region is.
  std::vector<int> constants;
  std::vector<Op> ops;
  // For profiles: the names of the composite functions and single operators that the region is made of, and
  // for each of ops which of these it does. Both may be empty.
  std::vector<std::string> groups;
  std::vector<std::vector<int>> of;
  // Operators whose kernel is "strips" or "expansion" and that run together: the first one's index and how
  // many follow one another.
  std::map<int, int> strips;
  Packed packed;
  // Where the packed values have the rows of tokens alone, which these are; else nullptr.
  std::shared_ptr<const native::RaggedRows> tokens;

  // Whether a value has the rows of tokens alone.
  bool IsPacked(int value) const { return tokens != nullptr && packed.axes.count(value) > 0; }
};

// Reads the text; throws std::runtime_error that says what is wrong with it.
//
//     {"format": "collage-dnnl", "version": 5,
//      "values": [["f32", [1, 64, 56, 56]], ...], "inputs": [0], "constants": [1, 2], "outputs": [4],
//      "ops": [{"op": "conv", "kernel": "winograd", "algorithm": "direct", "in": [0, 1, 2], "out": 3,
//      "bias": true, "strides": [1, 1],
//               "dilation": [1, 1], "padding": [1, 1, 1, 1], "weight": {"dims": [...], "strides": [...]},
//               "post": [{"op": "relu", "alpha": 0, "beta": 0}, {"op": "add", "in": 5}]}, ...],
//      "groups": ["dnnl.conv2d_relu", "add"], "of": [[0, 1]], "strips": [12, 5],
//      "packed": {"valid": 3, "axes": [7, 2, 8, 1]}}
Program ParseProgram(const std::string& text);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_PROGRAM_H_
