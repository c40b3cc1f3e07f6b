// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrimmedKernelsSeeTheSame compares, for every small convolution along one axis, which element of the data each tap
// meets for each result before and after trimming.
func TestTrimmedKernelsSeeTheSame(t *testing.T) {
	// meetings lists result, element of the data, and offset of the weight.
	meetings := func(o *operation, in, out int64) map[[3]int64]bool {
		all := map[[3]int64]bool{}
		for result := range out {
			for tap := range o.weightDims[2] {
				if at := result*o.strides[0] - o.padding[0] + tap*o.dilation[0]; at >= 0 && at < in {
					all[[3]int64{result, at, o.weightOffset + tap*o.weightStrides[2]}] = true
				}
			}
		}
		return all
	}
	trimmed, cases := 0, 0
	for in := int64(1); in <= 4; in++ {
		for kernel := int64(1); kernel <= 5; kernel++ {
			for stride := int64(1); stride <= 3; stride++ {
				for dilation := int64(1); dilation <= 2; dilation++ {
					for front := int64(0); front <= 5; front++ {
						for back := int64(0); back <= 5; back++ {
							reach := in + front + back - (kernel-1)*dilation - 1
							if reach < 0 {
								continue
							}
							out := reach/stride + 1
							o := &operation{
								strides: []int64{stride}, dilation: []int64{dilation}, padding: []int64{front, back},
								weightDims: []int64{8, 4, kernel}, weightStrides: []int64{4 * kernel, kernel, 1},
							}
							what := fmt.Sprintf("%d elements, kernel %d, stride %d, dilation %d, padding %d %d", in,
								kernel, stride, dilation, front, back)
							want := meetings(o, in, out)
							o.trim([]int64{in}, []int64{out}, []bool{false})
							require.Equal(t, want, meetings(o, in, out), what)
							after := (in+o.padding[0]+o.padding[1]-(o.weightDims[2]-1)*dilation-1)/stride + 1
							require.Equal(t, out, after, what)
							require.GreaterOrEqual(t, o.weightDims[2], int64(1), what)
							if o.weightDims[2] < kernel {
								trimmed++
							}
							cases++
						}
					}
				}
			}
		}
	}
	require.Greater(t, trimmed, cases/8, "of %d", cases)
}

// TestFreeAxes leaves the kernel whole along axes that are longer at other sizes.
func TestFreeAxes(t *testing.T) {
	o := &operation{strides: []int64{1, 1}, dilation: []int64{1, 1}, padding: []int64{2, 2, 2, 2},
		weightDims: []int64{8, 4, 5, 5}, weightStrides: []int64{100, 25, 5, 1}}
	o.trim([]int64{2, 2}, []int64{2, 2}, []bool{true, false})
	require.Equal(t, []int64{8, 4, 5, 3}, o.weightDims)
	require.Equal(t, []int64{2, 1, 2, 1}, o.padding)
	require.EqualValues(t, 1, o.weightOffset)
}

func TestTrimmedDepth(t *testing.T) {
	// Depth 1, and depth 2 with stride 2: a third, and two thirds, of the kernel meet data.
	r := newRegion()
	x := r.Var([]int64{1, 16, 2, 8, 8}, f32)
	first := r.Call("nn.conv3d", f(1, 16, 1, 4, 4), with(conv3dAttrs(), "strides", []int64{2, 2, 2}), x,
		r.Const([]int64{16, 16, 3, 3, 3}, f32))
	second := r.Call("nn.conv3d", f(1, 16, 1, 4, 4), conv3dAttrs(), first, r.Const([]int64{16, 16, 3, 3, 3}, f32))
	golden(t, "trimmed_depth.json", r.Finish(second))
}

func TestChannelsLastKernelsAreTrimmed(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{1, 1, 8, 8, 4}, f32)
	conv := r.Call("nn.conv3d", f(1, 1, 8, 8, 8), with(conv3dAttrs(), "data_layout", "NDHWC", "kernel_layout", "DHWIO"),
		x, r.Const([]int64{3, 3, 3, 4, 8}, f32))
	got, _ := text(t, r.Finish(conv))
	require.Contains(t, got, `"padding": [0, 1, 1, 0, 1, 1], "weight": {"dims": [8, 4, 1, 3, 3], "strides": [1, 8, 288, 96, 32], "offset": 288}`)
}

func TestTransposedKernelsAreNotTrimmed(t *testing.T) {
	r := newRegion()
	attrs := with(conv2dAttrs(), "output_padding", []int64{0, 0}, "kernel_layout", "IOHW")
	x := r.Var([]int64{1, 4, 1, 1}, f32)
	got, _ := text(t, r.Finish(r.Call("nn.conv2d_transpose", f(1, 4, 1, 1), attrs, x,
		r.Const([]int64{4, 4, 3, 3}, f32))))
	require.Contains(t, got, `"dims": [4, 4, 3, 3]`)
}
