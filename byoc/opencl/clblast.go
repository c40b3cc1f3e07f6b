// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/device"
	"github.com/collage-tvm/collage/byoc/product"
	"github.com/collage-tvm/collage/relay"
)

// CLBlastName is what users write in --backends, and the first part of composites ("clblast.gemm_dense").
const CLBlastName = "clblast"

// The kernels of CLBlast's that are offered, for --pin and --forbid: a product of matrices, one of a matrix with a
// vector, and a convolution as a product whose one side is gathered on the way.
const (
	gemmKernel     = "gemm"
	gemvKernel     = "gemv"
	convgemmKernel = "convgemm"
)

type clblast struct{ *device.Remote }

// NewCLBlast gives the backend clblast. It needs neither TVM nor OpenCL nor CLBlast; Probe says whether they are there.
func NewCLBlast() byoc.Backend { return &clblast{device.NewRemote(&kind)} }

func (*clblast) Name() string { return CLBlastName }
func (*clblast) Description() string {
	return "CLBlast: matrix products and convolutions on an OpenCL device, in one region with tvm_opencl"
}
func (*clblast) Level() byoc.Level        { return byoc.OperatorLevel }
func (*clblast) Patterns() []byoc.Pattern { return clblastPatterns() }

var clblastPlaces = byoc.Library{
	Env:   "COLLAGE_CLBLAST_LIBRARY",
	Names: []string{"libclblast.so.1", "libclblast.so"},
}

// Probe looks for what tvm_opencl needs, and for CLBlast, without loading any of it.
func (*clblast) Probe() byoc.Probe {
	return device.ProbeBeside(New().Probe(), "CLBlast", clblastPlaces, "",
		"make backends BACKENDS=clblast, or on Debian apt-get install libclblast1")
}

// call is how CLBlast runs a pattern.
type call struct {
	// line is what byoc/runtime/opencl_clblast.cc reads, without the operands' numbers; operands are the arguments of the
	// operator that these are, in the order in which the line has them, and steps what follows them.
	line     []any
	operands []int
	steps    []any
}

// caller reads an operator as a call, or says which limit was met.
type caller func(g *relay.Graph, operator relay.NodeID) (*call, error)

// clblastRule is one pattern: an operator as a kernel runs it.
type clblastRule struct {
	operator, kernel string
	limits           string
	read             caller
}

const productLimits = "float32, static shapes"

var clblastRules = sync.OnceValue(func() []clblastRule {
	rules := []clblastRule{
		{"nn.conv2d", convgemmKernel, "float32, static shapes, NCHW and OIHW, one group, equal padding on both sides", asConvgemm},
		{"nn.conv2d", gemmKernel, "as convgemm; 1x1, without strides and padding", asPointwise},
	}
	for _, operator := range product.Operators {
		rules = append(rules, clblastRule{operator, gemmKernel, productLimits, asGemm})
		if operator != "nn.batch_matmul" {
			rules = append(rules, clblastRule{operator, gemvKernel, productLimits + "; one row, the right side transposed", asGemv})
		}
	}
	return rules
})

// composite is the rule's name: "clblast.gemm_dense".
func (r *clblastRule) composite() string {
	return CLBlastName + "." + r.kernel + "_" + strings.TrimPrefix(r.operator, "nn.")
}

const roleOperator = "operator"

var clblastPatterns = sync.OnceValue(func() []byoc.Pattern {
	var all []byoc.Pattern
	for _, r := range clblastRules() {
		all = append(all, byoc.Pattern{
			Composite: r.composite(),
			Shape:     relay.Named(roleOperator, relay.Op(r.operator, relay.Wildcard(), relay.Wildcard())),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				_, err := r.read(g, m.Named[roleOperator])
				return err
			},
			LimitsText: r.limits,
			Kernel:     r.kernel,
		})
	}
	return all
})

// asGemm is a product of matrices, or of as many as there are in the batch.
func asGemm(g *relay.Graph, operator relay.NodeID) (*call, error) {
	p, err := singlePrecision(g, operator)
	if err != nil {
		return nil, err
	}
	step := func(batched bool, elements int64) int64 {
		if batched {
			return elements
		}
		return 0
	}
	return &call{
		line:     []any{gemmKernel, p.M, p.N, p.K, p.Batch, flag(p.LeftT), flag(p.RightT)},
		operands: []int{0, 1},
		steps:    []any{step(p.LeftBatch, p.M*p.K), step(p.RightBatch, p.K*p.N)},
	}, nil
}

// asGemv is a product of one row: the right side, transposed, with a vector.
func asGemv(g *relay.Graph, operator relay.NodeID) (*call, error) {
	p, err := singlePrecision(g, operator)
	switch {
	case err != nil:
		return nil, err
	case p.M != 1 || p.Batch != 1:
		return nil, fmt.Errorf("%s has %d rows; a vector is one", g.Nodes[operator].Op, p.M*p.Batch)
	case !p.RightT:
		return nil, fmt.Errorf("the right side of %s is not transposed", g.Nodes[operator].Op)
	}
	return &call{line: []any{gemvKernel, p.N, p.K}, operands: []int{1, 0}}, nil
}

func singlePrecision(g *relay.Graph, operator relay.NodeID) (*product.Product, error) {
	p, err := product.Of(g, operator)
	if err == nil && p.DType != "float32" {
		err = fmt.Errorf("%s computes with %s; only float32 is supported", g.Nodes[operator].Op, p.DType)
	}
	return p, err
}

// convolution2D is a convolution as convgemm takes it: NCHW, one group.
type convolution2D struct {
	batch, channels, height, width, kernels int64
	kernel, padding, strides, dilation      [2]int64
}

func convolutionOf(g *relay.Graph, operator relay.NodeID) (*convolution2D, error) {
	node := &g.Nodes[operator]
	shapes := [2][]int64{}
	for i, what := range []string{"data", "weight"} {
		t, err := product.Tensor(g, node.Inputs[i], "the "+what+" of "+node.Op)
		if err != nil {
			return nil, err
		}
		if t.DType != "float32" || len(t.Shape) != 4 {
			return nil, fmt.Errorf("the %s of %s is %s%s; only float32 of 4 dimensions is supported", what, node.Op, t.DType,
				relay.ShapeText(t.Shape))
		}
		shapes[i] = t.Shape
	}
	if out, err := product.Tensor(g, operator, "the result of "+node.Op); err != nil {
		return nil, err
	} else if out.DType != "float32" {
		return nil, fmt.Errorf("the result of %s is %s; only float32 is supported", node.Op, out.DType)
	}
	for _, layout := range [][2]string{{"data_layout", "NCHW"}, {"kernel_layout", "OIHW"}, {"out_layout", "NCHW"}} {
		if text, _ := node.Attrs.String(layout[0]); text != "" && text != layout[1] {
			return nil, fmt.Errorf("%s has the %s %s; only %s is supported", node.Op, layout[0], text, layout[1])
		}
	}
	data, weight := shapes[0], shapes[1]
	if groups, _ := node.Attrs.Int("groups"); groups > 1 || weight[1] != data[1] {
		return nil, fmt.Errorf("%s has %d groups; only one is supported", node.Op, groups)
	}
	c := &convolution2D{batch: data[0], channels: data[1], height: data[2], width: data[3], kernels: weight[0],
		kernel: [2]int64{weight[2], weight[3]}}
	for _, pair := range []struct {
		name string
		to   *[2]int64
	}{{"padding", &c.padding}, {"strides", &c.strides}, {"dilation", &c.dilation}} {
		given, ok := node.Attrs.Ints(pair.name)
		if !ok || len(given) != 1 && len(given) != 2 && len(given) != 4 {
			return nil, fmt.Errorf("%s has no usable attribute %s", node.Op, pair.name)
		}
		if len(given) == 4 && (given[0] != given[2] || given[1] != given[3]) {
			return nil, errors.New("the padding is not the same on both sides")
		}
		*pair.to = [2]int64{given[0], given[min(1, len(given)-1)]}
	}
	return c, nil
}

// asConvgemm is a convolution by CLBlast's convgemm.
func asConvgemm(g *relay.Graph, operator relay.NodeID) (*call, error) {
	c, err := convolutionOf(g, operator)
	if err != nil {
		return nil, err
	}
	return &call{
		line: []any{convgemmKernel, c.batch, c.channels, c.height, c.width, c.kernels, c.kernel[0], c.kernel[1],
			c.padding[0], c.padding[1], c.strides[0], c.strides[1], c.dilation[0], c.dilation[1]},
		operands: []int{0, 1},
	}, nil
}

// asPointwise is a convolution of 1x1 as what it is: the weights times the image, once for each image.
func asPointwise(g *relay.Graph, operator relay.NodeID) (*call, error) {
	c, err := convolutionOf(g, operator)
	if err != nil {
		return nil, err
	}
	one := [2]int64{1, 1}
	if c.kernel != one || c.strides != one || c.padding != [2]int64{} {
		return nil, errors.New("the convolution is no product of two matrices: it has a window, strides or padding")
	}
	pixels := c.height * c.width
	return &call{
		line:     []any{gemmKernel, c.kernels, pixels, c.channels, c.batch, 0, 0},
		operands: []int{1, 0},
		steps:    []any{0, c.channels * pixels},
	}, nil
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
