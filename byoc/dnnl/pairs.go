// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/byoc/rounding"
)

// pairWeights gives the operations that native's kernel computes in bfloat16 their weights rounded, in the same order:
// so they stand in the artefact, half as large. data gives the elements of a constant (region.Program.ConstantBytes).
func (l *lowering) pairWeights(data func(region.ValueID) ([]byte, error)) error {
	rounded := map[region.ValueID]region.ValueID{}
	for _, o := range l.ops {
		if o.kernel != native.PairsKernel {
			continue
		}
		weight := o.in[1]
		if _, there := rounded[weight]; !there {
			elements, err := data(weight)
			if err != nil {
				return err
			}
			rounded[weight] = l.constant("bfloat16", rounding.BF16(elements), l.types[weight].Shape...)
		}
		o.in[1] = rounded[weight]
	}
	return nil
}
