// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/relay"
)

// WinogradRules offers oneDNN 2.6's f32 Winograd convolution (AVX-512) as candidates of their own, beside the direct
// algorithm: oneDNN does not choose it by itself. It is up to 1.75 times as fast and less exact; the search's check of
// results against TVM's judges that, as for any candidate.
func WinogradRules() []*Rule {
	c := convolution{op: "nn.conv2d", composite: "dnnl.winograd_conv2d", dims: 2, winograd: true,
		layouts: [][2]string{{"NCHW", "OIHW"}}}
	all := make([]*Rule, 0, 32)
	for _, e := range append(epilogues(true), epilogue{}) {
		r := c.fused(e)
		r.LimitsText = "float32, static shapes, NCHW/OIHW, 3x3, stride 1, padding at most 1, one group, 16 channels or more, AVX-512"
		r.Own = true
		all = append(all, r)
	}
	return all
}

// winogradChannels is the least number of channels that is offered: the kernels work on blocks of 16, and what is padded
// up to a block is multiplied, too.
const winogradChannels = 16

// hasAVX512 says that the processor has what oneDNN's Winograd kernels are written for.
var hasAVX512 = sync.OnceValue(func() bool { return slices.Contains(cpuFeatures(), "avx512_core") })

// checkWinograd is the limits of oneDNN's f32 Winograd kernels; the convolution has passed all others.
func checkWinograd(c *Call) error {
	out, in, kernel := c.In[1].Shape[0], c.In[1].Shape[1], c.In[1].Shape[2:]
	if groups, _ := c.Node.Attrs.Int("groups"); groups != 1 {
		return fmt.Errorf("a Winograd convolution has no groups, this one has %d", groups)
	}
	if !slices.Equal(kernel, []int64{3, 3}) {
		return fmt.Errorf("a Winograd convolution has kernels of 3x3, this one has %s", relay.IntsText(kernel))
	}
	for _, name := range []string{"strides", "dilation"} {
		if list, _ := spatial(c.Node, name, 2); !slices.Equal(list, []int64{1, 1}) {
			return fmt.Errorf("a Winograd convolution has %s of 1, this one has %s", name, relay.IntsText(list))
		}
	}
	padding, _ := paddings(c.Node, 2)
	if slices.ContainsFunc(padding, func(p int64) bool { return p > 1 }) {
		return fmt.Errorf("a Winograd convolution has padding of at most 1, this one has %s", relay.IntsText(padding))
	}
	if in < winogradChannels || out < winogradChannels {
		return fmt.Errorf("a Winograd convolution works on blocks of %d channels, this one makes %d of %d", winogradChannels, out, in)
	}
	if !hasAVX512() {
		return fmt.Errorf("a Winograd convolution needs AVX-512, which this processor does not have")
	}
	return nil
}
