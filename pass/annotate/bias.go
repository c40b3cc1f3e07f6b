// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Bias finds the bias behind a product: a constant with a number for each of its channels, more than one, that is added
// to it by its only reader. channels is the axis of the channels in its result.
func Bias(g *relay.Graph, product relay.NodeID, channels int) (add, bias relay.NodeID, ok bool) {
	users, whole := g.Consumers(product), g.Nodes[product].Type
	if len(users) != 1 || !whole.IsTensor("float32") || channels < 0 || channels >= len(whole.Shape) {
		return 0, 0, false
	}
	add = users[0]
	n := &g.Nodes[add]
	if n.Op != "add" && n.Op != "nn.bias_add" || len(n.Inputs) != 2 {
		return 0, 0, false
	}
	bias = n.Inputs[1]
	if bias == product {
		bias = n.Inputs[0]
	}
	constant := g.Nodes[bias].Constant
	if constant == nil || constant.DType != "float32" || whole.Shape[channels] < 2 {
		return 0, 0, false
	}
	at := len(whole.Shape) - len(constant.Shape) // broadcasting aligns the last dimensions
	if n.Op == "nn.bias_add" {
		axis, given := n.Attrs.Int("axis")
		if !given {
			axis = 1
		}
		if axis < 0 {
			axis += int64(len(whole.Shape))
		}
		if len(constant.Shape) != 1 || axis != int64(channels) {
			return 0, 0, false
		}
		at = channels
	}
	found := false
	for d, extent := range constant.Shape {
		switch {
		case d+at == channels && extent == whole.Shape[channels]:
			found = true
		case extent != 1:
			return 0, 0, false
		}
	}
	return add, bias, found
}

// Channels is the axis of a product's channels in its result, where its weights' first axis is theirs and the second
// that of the data's; -1 for all other layouts.
func Channels(g *relay.Graph, product relay.NodeID) int {
	n := &g.Nodes[product]
	if n.Type == nil || n.Type.Kind != relay.TypeTensor {
		return -1
	}
	if n.Op == "nn.dense" {
		return len(n.Type.Shape) - 1
	}
	for attr, begins := range map[string]string{"data_layout": "NC", "kernel_layout": "OI"} {
		if layout, ok := n.Attrs.String(attr); ok && (len(layout) < 2 || layout[:2] != begins) {
			return -1
		}
	}
	return 1
}

// correct has a candidate's biases read without the shifts of what they stand behind.
func (o *outliner) correct(inside *relay.Rewriter, c *candidate.Candidate) {
	for product, shift := range o.shifts {
		add, bias, ok := Bias(o.g, product, Channels(o.g, product))
		if _, own := slices.BinarySearch(c.Nodes, add); !ok || !own {
			continue
		}
		reader := add
		if c.Composite != "" && !c.Bare {
			reader = c.Root // which the call of the composite stands for
		}
		inside.Read(reader, bias, func(expr *bridge.Object) (*bridge.Object, error) { return corrected(expr, shift) })
	}
}

// corrected is a constant bias without a shift.
func corrected(bias *bridge.Object, shift []float32) (*bridge.Object, error) {
	if key := bias.TypeKey(); key != "relay.Constant" {
		return nil, fmt.Errorf("a bias that is to be corrected is a %s, no constant", key)
	}
	data, err := bias.Attr("data")
	if err != nil {
		return nil, err
	}
	tensor, err := data.NDArray()
	if err != nil {
		return nil, err
	}
	defer tensor.Release()
	before, err := tensor.Bytes()
	if err != nil {
		return nil, err
	}
	now, err := rounding.Corrected(before, shift)
	if err != nil {
		return nil, err
	}
	made, err := bridge.Empty(tensor.Shape(), tensor.DType(), bridge.CPU())
	if err != nil {
		return nil, err
	}
	defer made.Release()
	if err := made.CopyFromBytes(now); err != nil {
		return nil, err
	}
	return relay.NewConstant(made)
}
