// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// kernel is one node of the graph JSON that computes something.
type kernel struct {
	// name is what the runtime chooses the primitive and its post-ops by.
	name string
	// inputs are the values that it reads, in the order the runtime wants.
	inputs []operand
	attrs  []attribute
	// sum is the index in inputs of the value that the primitive accumulates into; -1 without one. The runtime
	// may write the result over it.
	sum int
}

// operand is one input of a kernel: a value of the graph, or a number that the code generator adds as a
// constant of its own.
type operand struct {
	value relay.NodeID
	// shape, where it is not nil, is how the runtime is to see the tensor (a reshaping of the same bytes).
	shape []int64
	// number is the constant where value is NoNode.
	number float32
}

func constantOperand(v float64) operand { return operand{value: relay.NoNode, number: float32(v)} }

// attribute is one attribute of a kernel; the runtime reads lists of texts.
type attribute struct {
	name   string
	values []string
}

// kernelOf writes the layer of a rule's match as a kernel. composite is the rule's name, out of which the runtime reads
// the epilogue.
func kernelOf(g *relay.Graph, composite string, layer onednn.Layer) (*kernel, error) {
	switch l := layer.(type) {
	case *onednn.Convolution:
		return convolutionKernel(g, composite, l), nil
	case *onednn.Product:
		k := &kernel{name: composite, inputs: values(l.Left, l.Right), sum: -1}
		if l.Operator == "nn.batch_matmul" {
			k.attrs = []attribute{truth("transpose_a", l.TransposeA), truth("transpose_b", l.TransposeB)}
		}
		return k.with(l.Epilogue), nil
	case *onednn.Elementwise:
		k := &kernel{name: composite, inputs: values(l.Data), sum: -1}
		switch composite {
		case "dnnl.gelu":
			k.name = "gelu_erf"
		case "clip":
			k.attrs = clipBounds(l)
		case "nn.leaky_relu":
			k.attrs = []attribute{number("alpha", l.Alpha)}
		}
		return k, nil
	case *onednn.Binary:
		return &kernel{name: l.Function, inputs: values(l.Left, l.Right), sum: -1}, nil
	case *onednn.Softmax:
		return &kernel{name: "nn.softmax", inputs: values(l.Data), attrs: []attribute{ints("axis", l.Axis)}, sum: -1},
			nil
	case *onednn.Pool:
		return poolKernel(l), nil
	case *onednn.LayerNorm:
		return &kernel{name: "nn.layer_norm", inputs: values(l.Data, l.Gamma, l.Beta), attrs: normAttrs(-1, l.Epsilon),
			sum: -1}, nil
	case *onednn.BatchNorm:
		return &kernel{name: "nn.batch_norm", inputs: values(l.Data, l.Gamma, l.Beta, l.Mean, l.Variance),
			attrs: normAttrs(1, l.Epsilon), sum: -1}, nil
	}
	return nil, fmt.Errorf("TVM's oneDNN runtime has no kernel for %s", composite)
}

func values(ids ...relay.NodeID) []operand {
	list := make([]operand, len(ids))
	for i, id := range ids {
		list[i] = operand{value: id}
	}
	return list
}

func normAttrs(axis int64, epsilon float64) []attribute {
	return []attribute{ints("axis", axis), number("epsilon", epsilon), truth("center", true), truth("scale", true)}
}

func convolutionKernel(g *relay.Graph, composite string, l *onednn.Convolution) *kernel {
	weight, layout := operand{value: l.Weight}, l.KernelLayout
	if l.Transposed && l.Groups > 1 {
		// The runtime splits the output channels into groups, but the weights of a transposed convolution hold
		// the groups in the input channels. Naming the groups as a dimension of their own says what is meant.
		shape := g.Nodes[l.Weight].Type.Shape
		weight.shape = append([]int64{l.Groups, shape[0] / l.Groups}, shape[1:]...)
		layout = "G" + layout
	}
	k := &kernel{
		name:   composite,
		inputs: []operand{{value: l.Data}, weight},
		attrs: []attribute{
			ints("strides", l.Strides...), ints("dilation", l.Dilation...), ints("padding", l.Padding...),
			ints("groups", l.Groups),
			text("data_layout", l.DataLayout), text("kernel_layout", layout), text("out_layout", ""),
		},
		sum: -1,
	}
	return k.with(l.Epilogue)
}

func poolKernel(l *onednn.Pool) *kernel {
	k := &kernel{
		name:   fmt.Sprintf("nn.%s_pool%dd", l.Kind, l.Dims),
		inputs: values(l.Data),
		attrs: []attribute{
			ints("pool_size", l.Size...), ints("strides", l.Strides...), ints("dilation", l.Dilation...),
			ints("padding", l.Padding...), text("layout", l.Layout), text("out_layout", ""),
		},
		sum: -1,
	}
	if l.Kind == "avg" {
		k.attrs = append(k.attrs, truth("count_include_pad", l.IncludePadding))
	}
	return k
}

// with gives a kernel, which has data and weight already, the epilogue's inputs in the order in which the
// runtime wants them, and what it must be told of the epilogue beside the name.
func (k *kernel) with(e onednn.Epilogue) *kernel {
	if e.Bias != relay.NoNode {
		k.inputs = append(k.inputs, operand{value: e.Bias})
	}
	if e.Sum != relay.NoNode {
		k.sum = len(k.inputs)
		k.inputs = append(k.inputs, operand{value: e.Sum})
	}
	switch {
	case e.Activation == nil:
	case e.Activation.Function == "clip":
		k.attrs = append(k.attrs, clipBounds(e.Activation)...)
	case e.Activation.Function == "relu" && e.Activation.Alpha != 0 || strings.HasSuffix(k.name, "_leaky"):
		// The runtime knows no name for it, but a second way to say an activation: the elementwise function with
		// the inputs that hold its scale, alpha and beta. The name is not looked at then, so that the bias must be
		// pointed out too.
		if e.Bias != relay.NoNode {
			k.attrs = append(k.attrs, ints("bias_idx", int64(len(k.inputs)-1)))
		}
		at := len(k.inputs)
		k.inputs = append(k.inputs, constantOperand(1), constantOperand(e.Activation.Alpha), constantOperand(0))
		k.attrs = append(k.attrs, attribute{"activation",
			[]string{"nn.leaky_relu", strconv.Itoa(at), strconv.Itoa(at + 1), strconv.Itoa(at + 2)}})
	}
	return k
}

func clipBounds(l *onednn.Elementwise) []attribute {
	return []attribute{number("a_min", l.Alpha), number("a_max", l.Beta)}
}

// floatText writes a number so that the runtime's std::stof gives it back.
func floatText(v float64) string {
	f := float32(v)
	switch {
	case math.IsInf(float64(f), 1):
		return "inf"
	case math.IsInf(float64(f), -1):
		return "-inf"
	}
	return strconv.FormatFloat(float64(f), 'g', -1, 32)
}

// ints, text, number and truth write attribute values as the runtime reads them.
func ints(name string, list ...int64) attribute {
	a := attribute{name: name}
	for _, v := range list {
		a.values = append(a.values, strconv.FormatInt(v, 10))
	}
	return a
}

func text(name, value string) attribute { return attribute{name, []string{value}} }

func number(name string, value float64) attribute { return attribute{name, []string{floatText(value)}} }

func truth(name string, value bool) attribute {
	if value {
		return ints(name, 1)
	}
	return ints(name, 0)
}
