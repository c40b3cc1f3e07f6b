// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// flops counts what an operator has to compute. Only contractions count, and only those of a floating point type that
// the calibration stands for: narrower ones run several times as fast on some machines.
func (a *analysis) flops(v relay.NodeID) float64 {
	n := &a.g.Nodes[v]
	out := n.Type
	if out == nil || out.Kind != relay.TypeTensor || len(n.Inputs) < 2 {
		return 0
	}
	data, weight := a.g.Nodes[n.Inputs[0]].Type, a.g.Nodes[n.Inputs[1]].Type
	for _, t := range []*relay.Type{out, data, weight} {
		if t == nil || t.Kind != relay.TypeTensor || t.DType != "float32" && t.DType != "float64" ||
			elements(t.Shape) == 0 {
			return 0
		}
	}
	switch {
	case isConvolution(n.Op):
		w := a.window(v)
		if w == nil {
			return 0
		}
		if a.direct {
			return 2 * w.products(out, data, weight)
		}
		return 2 * w.multiplications(out, data, weight) * a.distinct(n.Inputs[0])
	default:
		return 2 * elements(out.Shape) * float64(contracted(n, data))
	}
}

// distinct is the share of a value that is not a repetition of the rest. Who knows that a convolution reads a tensor
// that has been enlarged need not multiply with each of its elements (byoc/onednn/upsampling.go).
func (a *analysis) distinct(v relay.NodeID) float64 {
	n := &a.g.Nodes[v]
	if !a.inside[v] || !isResize(n.Op) || len(n.Inputs) == 0 {
		return 1
	}
	small, large := a.g.Nodes[n.Inputs[0]].Type, n.Type
	if small == nil || large == nil || elements(large.Shape) == 0 {
		return 0
	}
	return min(1, elements(small.Shape)/elements(large.Shape))
}

func isResize(op string) bool {
	return strings.HasPrefix(op, "nn.upsampling") || strings.HasPrefix(op, "image.resize")
}

// Multiplies says that an operator's work is sums of products of its first two arguments.
func Multiplies(op string) bool { return isConvolution(op) || isProduct(op) }

func isProduct(op string) bool {
	return op == "nn.dense" || op == "nn.matmul" || op == "nn.batch_matmul"
}

// contracted is the length of the sums of a matrix product; 0 for other operators.
func contracted(n *relay.Node, data *relay.Type) int64 {
	rank := len(data.Shape)
	transposed := false
	if n.Attrs != nil {
		transposed, _ = n.Attrs.Bool("transpose_a")
	}
	switch {
	case !isProduct(n.Op) || rank == 0:
		return 0
	case n.Op != "nn.dense" && rank > 1 && transposed:
		return data.Shape[rank-2]
	}
	return data.Shape[rank-1]
}

// window is the geometry of a convolution or a pooling, one entry for each spatial dimension.
type window struct {
	transposed                               bool
	in, out, kernel, stride, dilation, begin []int64
	// channels of the result, and of the data
	outChannels, inChannels float64
}

// window reads the geometry of node v; nil where its layouts are not understood.
func (a *analysis) window(v relay.NodeID) *window {
	n := &a.g.Nodes[v]
	if n.Attrs == nil || len(n.Inputs) == 0 {
		return nil
	}
	data, out := a.g.Nodes[n.Inputs[0]].Type, n.Type
	if data == nil || out == nil || data.Kind != relay.TypeTensor || out.Kind != relay.TypeTensor {
		return nil
	}
	layout, ok := n.Attrs.String("data_layout")
	if !ok {
		layout, _ = n.Attrs.String("layout")
	}
	outLayout, _ := n.Attrs.String("out_layout")
	if outLayout == "" {
		outLayout = layout
	}
	w := &window{transposed: strings.HasSuffix(n.Op, "_transpose"), outChannels: 1, inChannels: 1}
	inAxes, outAxes := axes(layout), axes(outLayout)
	if len(inAxes) != len(data.Shape) || len(outAxes) != len(out.Shape) {
		return nil
	}
	for i, axis := range inAxes {
		if axis == 'C' || axis == 'c' {
			w.inChannels *= float64(data.Shape[i])
		}
	}
	for i, axis := range outAxes {
		if axis == 'C' || axis == 'c' {
			w.outChannels *= float64(out.Shape[i])
		}
	}
	for _, axis := range "DHW" {
		i, o := strings.IndexRune(inAxes, axis), strings.IndexRune(outAxes, axis)
		if i >= 0 && o >= 0 {
			w.in, w.out = append(w.in, data.Shape[i]), append(w.out, out.Shape[o])
		}
	}
	dims := len(w.in)
	w.kernel, _ = n.Attrs.Ints("kernel_size")
	if len(w.kernel) == 0 {
		w.kernel, _ = n.Attrs.Ints("pool_size")
	}
	w.stride, _ = n.Attrs.Ints("strides")
	w.dilation, _ = n.Attrs.Ints("dilation")
	padding, _ := n.Attrs.Ints("padding")
	switch {
	case len(padding) == 1:
		for range dims {
			w.begin = append(w.begin, padding[0])
		}
	case len(padding) >= dims:
		w.begin = padding[:dims]
	}
	for len(w.dilation) < dims {
		w.dilation = append(w.dilation, 1)
	}
	if dims == 0 || len(w.kernel) != dims || len(w.stride) != dims || len(w.begin) != dims {
		return nil
	}
	return w
}

// axes gives a layout's letters without the sizes of blocks: "NCHW16c" is "NCHWc".
func axes(layout string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, layout)
}

// taps counts, in one dimension, the pairs of an output and a kernel element that meet an input and not padding.
func (w *window) taps(d int) float64 {
	// A transposed convolution is one in the other direction.
	from, to := w.out[d], w.in[d]
	if w.transposed {
		from, to = to, from
	}
	count := int64(0)
	for k := range w.kernel[d] {
		// 0 <= o*stride + shift < to
		shift := k*w.dilation[d] - w.begin[d]
		low, high := ceilDiv(-shift, w.stride[d]), ceilDiv(to-shift, w.stride[d])
		count += max(0, min(high, from)-max(low, 0))
	}
	return float64(count)
}

func ceilDiv(a, b int64) int64 {
	if a >= 0 {
		return (a + b - 1) / b
	}
	return -(-a / b)
}

// products is how often the direct algorithm multiplies, padding included.
func (w *window) products(out, data, weight *relay.Type) float64 {
	if w.transposed {
		return elements(data.Shape) * elements(weight.Shape) / w.inChannels
	}
	return elements(out.Shape) * elements(weight.Shape) / w.outChannels
}

// multiplications is what a convolution has to multiply. A library may know better than to multiply with padding, and
// may use Winograd's algorithms: F(6, k) is the largest tile that is in use anywhere, and saves a factor of
// 6k/(6+k-1) in each dimension (5.06 for 3x3).
func (w *window) multiplications(out, data, weight *relay.Type) float64 {
	points, sizes := 1.0, w.out
	if w.transposed {
		sizes = w.in
	}
	for d := range w.kernel {
		points *= float64(sizes[d] * w.kernel[d])
	}
	for d, k := range w.kernel {
		points /= w.taps(d)
		if k > 1 {
			points *= 6 * float64(k) / float64(6+k-1)
		}
	}
	return w.products(out, data, weight) / points
}

// windowShare is the share of the data that some window covers.
func (a *analysis) windowShare(v relay.NodeID) float64 {
	w := a.window(v)
	if w == nil {
		return 0
	}
	if w.transposed {
		return 1
	}
	share := 1.0
	for d := range w.kernel {
		covered := make([]bool, max(w.in[d], 0))
		count := 0
		for o := range w.out[d] {
			for k := range w.kernel[d] {
				if at := o*w.stride[d] + k*w.dilation[d] - w.begin[d]; at >= 0 && at < w.in[d] && !covered[at] {
					covered[at] = true
					count++
				}
			}
		}
		if w.in[d] > 0 {
			share *= float64(count) / float64(w.in[d])
		}
	}
	return share
}
