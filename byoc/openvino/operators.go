// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// operator is how one of Relay's operators is run by OpenVINO.
type operator struct {
	// check says what of a call OpenVINO cannot do, or does otherwise than Relay; nil where it can run it.
	check func(c *call) error
	// write appends the layers of a call that check has accepted and gives its results; those that are not used may be
	// left out at the end.
	write func(w *writer, c *call, in []port) []port
	// limits says in one line what check accepts.
	limits string
}

// operators are all that are supported, by Relay's names.
var operators = sync.OnceValue(func() map[string]*operator {
	all := map[string]*operator{}
	for _, family := range []map[string]*operator{
		convolutions(), pools(), products(), unaries(), binaries(), normalisations(), reductions(), movements(),
		selections(), scatters(), orders(), samplings(), resizes(), quantisations(),
	} {
		for name, o := range family {
			if _, twice := all[name]; twice {
				panic("openvino: two ways to write " + name)
			}
			all[name] = o.described(name)
		}
	}
	return all
})

// names are the supported operators in alphabetical order.
func names() []string { return slices.Sorted(maps.Keys(operators())) }

// check says why OpenVINO cannot run a call; nil where it can.
func check(c *call) error {
	o := operators()[c.op]
	if o == nil {
		return fmt.Errorf("%s has no counterpart in OpenVINO that Collage knows", c.op)
	}
	if want := max(1, arities[c.op]); len(c.in) < want && arities[c.op] >= 0 {
		return c.refuse("has %d arguments where %d are needed", len(c.in), want)
	}
	if len(c.out) == 0 || c.out[0] == nil {
		return c.refuse("gives something that is no tensor of known type")
	}
	// What OpenVINO's compiler does not fold (a pool, say) its CPU plug-in runs once, and then lets in-place kernels
	// write over the result: it is another one in the next call. A filled tensor the compiler does fold.
	if len(c.in) > 0 && !slices.Contains(c.constants, nil) && c.op != "full" {
		return c.refuse("reads nothing but constants; TVM computes that when it compiles")
	}
	if err := o.check(c); err != nil {
		return err
	}
	if c.isOpen() {
		return c.mayBeOpen()
	}
	return nil
}

// arities are how many arguments the checks may rely on where that is not one; -1 for none.
var arities = map[string]int{
	"nn.conv1d": 2, "nn.conv2d": 2, "nn.conv3d": 2, "nn.conv1d_transpose": 2, "nn.conv2d_transpose": 2,
	"nn.conv3d_transpose": 2,
	"nn.dense":            2, "nn.matmul": 2, "nn.batch_matmul": 2, "nn.bias_add": 2, "nn.prelu": 2,
	"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "power": 2, "maximum": 2, "minimum": 2,
	"equal": 2, "not_equal": 2, "less": 2, "less_equal": 2, "greater": 2, "greater_equal": 2,
	"logical_and": 2, "logical_or": 2, "logical_xor": 2, "where": 3,
	"nn.layer_norm": 3, "nn.instance_norm": 3, "nn.group_norm": 3, "nn.batch_norm": 5,
	"qnn.quantize": 3, "qnn.dequantize": 3,
	"variance": 2, "take": 2, "gather": 2, "zeros": -1, "ones": -1,
	"trunc_mod": 2, "floor_mod": 2,
	"scatter_nd": 3, "scatter_elements": 3, "gather_nd": 2, "one_hot": 3, "vision.roi_align": 2,
	"image.grid_sample": 2,
}

const float32Static = "float32, static shapes"

// floats checks that all tensors are float32.
func floats(c *call) error { return c.static("float32") }

// numbers checks that all tensors are float32, or all int32.
func numbers(c *call) error {
	if err := c.static("float32", "int32"); err != nil {
		return err
	}
	return c.alike()
}

// alike checks that all tensors have one dtype.
func (c *call) alike() error {
	for _, t := range c.in {
		if t.DType != c.out[0].DType {
			return c.refuse("reads %s and gives %s", t.DType, c.out[0].DType)
		}
	}
	return nil
}

// movable are the dtypes whose elements OpenVINO moves without changing them (it keeps int64 in 32 bits).
var movable = []string{"float32", "int32", "int8", "uint8", "bool"}

// moves checks that all tensors are of one dtype that may be moved.
func moves(c *call) error {
	if err := c.static(movable...); err != nil {
		return err
	}
	return c.alike()
}

const movableStatic = "float32, int32, int8, uint8 and bool, static shapes"
