// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices: dense layers, whose right sides are constant and packed once, and batches of products
// whose right sides may be computed.
//
// The weights of a layer on few rows are read once, so that they come from the third-level cache or from
// memory about as fast as they are used; this kernel fetches the next piece of them while it works on one,
// which oneDNN's does not.
#ifndef COLLAGE_NATIVE_PRODUCT_H_
#define COLLAGE_NATIVE_PRODUCT_H_

#include <functional>
#include <memory>
#include <vector>

#include "native/crew.h"
#include "native/gemm.h"
#include "native/unpacked.h"
#include "native/workspace.h"

namespace collage::native {

// Weights as they are read: panels, each with all rows, one after the other. Products of one left side follow
// one another in it.
class PackedWeights {
 public:
  struct Panel {
    const float* weights;
    const float* bias;       // null without one
    int result;              // to which of the products it belongs
    int64_t column;          // its first column there
    int64_t columns, width;  // that are wanted, and that lie there
  };

  // rows: of each of the weights, which all begin in this memory; columns: of each of them.
  PackedWeights(int64_t rows, std::vector<int64_t> columns);

  // Adds the next product's weights, the element (r, c) of which is at data[r * row_step + c * column_step],
  // and its bias or null.
  void Add(const float* data, int64_t row_step, int64_t column_step, const float* bias);

  // Holds the weights together with others who have the same, by a function as collage::Shared
  // (shared_constants.h). After the last Add, and before anybody reads them.
  void Share(const std::function<std::shared_ptr<void>(std::shared_ptr<void> made, size_t bytes)>& share);

  int64_t rows() const { return rows_; }
  const std::vector<int64_t>& columns() const { return columns_; }
  const std::vector<Panel>& panels() const { return panels_; }

  // What is read after the last panel: those of the product that runs next. The weights must outlive this.
  const PackedWeights* next = nullptr;

 private:
  const int64_t rows_;
  const std::vector<int64_t> columns_;
  std::shared_ptr<void> memory_;
  float* end_;
  std::vector<Panel> panels_;
  std::vector<std::vector<float>> biases_;
};

// How the work is cut: docs/native.md, "Blocking".
struct ProductBlocking {
  // A panel's rows that are worked on at a time, which stay in the second cache beside the rows of the left
  // side.
  int64_t depth = 1024;
  // Elements of the left side that are to stay in the second cache while all panels run past it.
  int64_t left_elements = 96 * 1024;
};

// Dense layers with one left side.
class Product {
 public:
  struct Arguments {
    int64_t rows = 0;
    const float* left = nullptr;      // [rows, weights.rows()]
    int64_t left_row = 0;             // from row to row
    float* const* results = nullptr;  // [rows, columns of the weights], row-major, in memory of their own
    const Operand* operands = nullptr;
  };

  // The posts are done to all results, and read operands of the results' size.
  Product(std::shared_ptr<const PackedWeights> weights, std::vector<Post> posts,
          const ProductBlocking& blocking = {});

  // In how many pieces so many rows are worked on by so many threads.
  int Pieces(int64_t rows, int threads) const;
  void Run(const Arguments& arguments, int piece, int threads) const;

 private:
  // How the rows and the panels are divided: so many pieces of each, a thread for each pair.
  struct Division {
    int64_t rows = 1, panels = 1;
  };
  Division Divide(int64_t rows, int threads) const;
  const float* Following(int64_t panel, int64_t end, int64_t part, int64_t parts) const;
  void Panel(const Arguments& a, const PackedWeights::Panel& panel, const float* following, int64_t top,
             int64_t rows) const;

  const std::shared_ptr<const PackedWeights> weights_;
  const std::vector<Post> posts_;
  const ProductBlocking blocking_;
};

// A product of so many rows as a step. data: the left side, the operands of the posts in the order of their
// numbers, and the results, each row-major.
PieceWork ProductKernel(std::shared_ptr<const PackedWeights> weights, int64_t rows, std::vector<Post> posts,
                        int threads);

// For each i below batch, left[i] right[i], with what the posts say done to it.
struct BatchProduct {
  int64_t batch = 1, length = 0, columns = 0;
  // From matrix to matrix (0: the same one for all) and from element to element. The left side's and the
  // result's columns lie one after the other.
  int64_t left_batch = 0, left_row = 0;
  int64_t right_batch = 0, right_row = 0, right_column = 0;
  int64_t result_batch = 0, result_row = 0;
  std::vector<Post> posts;
  UnpackedBlocking blocking;

  struct Arguments {
    int64_t rows = 0;
    const float *left = nullptr, *right = nullptr;
    float* result = nullptr;
    // The first matrix's; the next one's is so many rows further on.
    const Operand* operands = nullptr;
    int64_t operand_rows = 0;
    // As many elements as Scratch says.
    float* scratch = nullptr;
  };

  int Pieces(int64_t rows, int threads) const;
  // However many rows there are. Each thread packs a panel of a right side at a time, but where there are few
  // rows (native/unpacked.h).
  int64_t Scratch(int threads) const;
  void Run(const Arguments& arguments, int piece, int pieces) const;

 private:
  void RunPacked(const Arguments& arguments, int piece, int pieces) const;
  void RunUnpacked(const Arguments& arguments, int piece, int pieces) const;
  std::vector<Operand> OperandsOf(const Arguments& arguments, int64_t matrix) const;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PRODUCT_H_
