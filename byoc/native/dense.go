// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// ProductKernel is the kernel of dense layers with packed weights (byoc/runtime/native/product.h). The code generator
// makes one step of several that read the same tensor.
const ProductKernel = "product"

// productRules offers dense layers of any number of rows, and batches of products, whose right sides may be computed.
func productRules() []*onednn.Rule {
	form := onednn.Form{
		Composite: "native.product_dense", Kernel: ProductKernel,
		Limits:     checkProduct,
		LimitsText: "constant weights and bias",
	}
	batches := onednn.Form{
		Composite: "native.product_batch_matmul", Kernel: ProductKernel,
		Limits: func(_ *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
			if layer.(*onednn.Product).TransposeA {
				return fmt.Errorf("the kernel product reads the rows of its left side as they lie, this one is " +
					"transposed")
			}
			return nil
		},
		LimitsText: "the left side not transposed",
	}
	return append(form.Dense(), batches.Of(onednn.BatchMatmulRules()[0]))
}

func checkProduct(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
	if !ConstantOperands(g, layer.(*onednn.Product)) {
		return fmt.Errorf("the kernel product needs a weight and a bias that are constants")
	}
	return nil
}

// ConstantOperands says that what data are multiplied by is a constant, and the bias, where there is one.
func ConstantOperands(g *relay.Graph, l *onednn.Product) bool {
	return isConstant(g, l.Right) && isConstantOrAbsent(g, l.Epilogue.Bias)
}
