// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/relay"
)

// WinogradRules offers f32 Winograd convolutions (AVX-512) as candidates of their own, beside the direct algorithm. Where
// the weights are constant and the numbers of channels multiples of 16 they are the runtime's own kernel
// (byoc/runtime/native/winograd.h), two- and three-dimensional; other two-dimensional ones are oneDNN 2.6's, which does
// not choose that algorithm by itself. They are up to 3.3 and 1.75 times as fast as the direct algorithm, and less exact; the search's
// check of results against TVM's judges that, as for any candidate.
func WinogradRules() []*Rule {
	var all []*Rule
	for _, c := range []convolution{
		{op: "nn.conv2d", composite: "dnnl.winograd_conv2d", dims: 2, winograd: true,
			layouts: [][2]string{{"NCHW", "OIHW"}, {"NHWC", "HWIO"}}},
		{op: "nn.conv3d", composite: "dnnl.winograd_conv3d", dims: 3, winograd: true,
			layouts: [][2]string{{"NCDHW", "OIDHW"}, {"NDHWC", "DHWIO"}}},
	} {
		text := c.limitsText() + ", rows and columns with a kernel of 3x3 and stride 1, one group, AVX-512, constant weights and multiples of 16 channels"
		if c.dims == 2 {
			text += " (or padding of at most 1 and 16 channels or more)"
		}
		for _, e := range append(epilogues(true), epilogue{}) {
			r := c.fused(e)
			r.LimitsText = text
			r.Own = true
			all = append(all, r)
		}
	}
	return all
}

// winogradChannels is the number of channels in a block of the kernels, and the least number that is offered: oneDNN's
// multiply what is padded up to a block, too; the runtime's own do whole blocks only.
const winogradChannels = 16

// hasAVX512 says that the processor has what the Winograd kernels are written for.
var hasAVX512 = sync.OnceValue(func() bool { return slices.Contains(cpuFeatures(), "avx512_core") })

// checkWinograd is the limits of f32 Winograd kernels; the convolution, whose weight is a constant or not, has passed all
// others.
func checkWinograd(c *Call, dims int, constant bool) error {
	layout, _ := c.Node.Attrs.String("kernel_layout")
	shape := c.In[1].Shape
	out, in := shape[strings.IndexByte(layout, 'O')], shape[strings.IndexByte(layout, 'I')]
	kernel := []int64{shape[strings.IndexByte(layout, 'H')], shape[strings.IndexByte(layout, 'W')]}
	if groups, _ := c.Node.Attrs.Int("groups"); groups != 1 {
		return fmt.Errorf("a Winograd convolution has no groups, this one has %d", groups)
	}
	if !slices.Equal(kernel, []int64{3, 3}) {
		return fmt.Errorf("a Winograd convolution has kernels of 3x3 in rows and columns, this one has %s", relay.IntsText(kernel))
	}
	for _, name := range []string{"strides", "dilation"} {
		// What goes on along the depth is a sum over slices.
		if list, _ := spatial(c.Node, name, dims); !slices.Equal(list[dims-2:], []int64{1, 1}) {
			return fmt.Errorf("a Winograd convolution has %s of 1 along rows and columns, this one has %s", name, relay.IntsText(list))
		}
	}
	if in < winogradChannels || out < winogradChannels {
		return fmt.Errorf("a Winograd convolution works on blocks of %d channels, this one makes %d of %d", winogradChannels, out, in)
	}
	if !constant || in%winogradChannels != 0 || out%winogradChannels != 0 {
		if err := checkLibraryWinograd(c, dims, constant); err != nil {
			return err
		}
	}
	if !hasAVX512() {
		return fmt.Errorf("a Winograd convolution needs AVX-512, which this processor does not have")
	}
	return nil
}

// checkLibraryWinograd is the limits of oneDNN's own kernels, for what is not for the runtime's.
func checkLibraryWinograd(c *Call, dims int, constant bool) error {
	why := fmt.Sprintf("numbers of channels that are no multiples of %d", winogradChannels)
	if !constant {
		why = "a weight that is not a constant"
	}
	if dims != 2 {
		return fmt.Errorf("a Winograd convolution in %d dimensions cannot have %s", dims, why)
	}
	if padding, _ := paddings(c.Node, dims); slices.ContainsFunc(padding, func(p int64) bool { return p > 1 }) {
		return fmt.Errorf("a Winograd convolution with %s has padding of at most 1, this one has %s", why, relay.ShapeText(padding))
	}
	return nil
}
