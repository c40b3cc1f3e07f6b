// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestAFormHasItsOwnNameKernelAndLimits(t *testing.T) {
	refusal := errors.New("not today")
	form := Form{Composite: "x.conv", Kernel: "quick", Reassociates: true, LimitsText: "today",
		Limits: func(_ *relay.Graph, _ *relay.Match, l Layer) error {
			if l.(*Convolution).Groups != 1 {
				return refusal
			}
			return nil
		}}
	rules := form.Convolutions("nn.conv2d", 2, false, [2]string{"NCHW", "OIHW"})
	names := map[string]*Rule{}
	for _, r := range rules {
		require.True(t, strings.HasPrefix(r.Composite, "x.conv"), r.Composite)
		require.Equal(t, "quick", r.Kernel)
		require.True(t, r.Reassociates && r.Own && !r.Bare)
		require.True(t, strings.HasSuffix(r.LimitsText, ", today"), r.LimitsText)
		require.Nil(t, names[r.Composite], r.Composite)
		names[r.Composite] = r
	}
	for _, name := range []string{"", "_bias_relu", "_tanh", "_bias_sum_relu"} {
		require.NotNil(t, names["x.conv"+name], name)
	}
	grouped := conv2d(f(1, 16, 8, 8), f(32, 4, 3, 3), f(1, 32, 8, 8), with(conv2dAttrs(), "groups", 4))
	bare := names["x.conv"]
	m := grouped.Match(bare.Shape, grouped.Root())
	require.Len(t, m, 1)
	require.ErrorIs(t, bare.Limits(grouped, m[0]), refusal)
	require.NoError(t, bare.Correct(grouped, m[0]), "what is placed can be written")

	form.Without = []string{"tanh"}
	for _, r := range form.Dense() {
		require.NotContains(t, []string{"x.conv_tanh", "x.conv_bias_tanh"}, r.Composite)
	}
	require.Len(t, form.Dense(), 28)
	one := form.Of(ConcatenateRule())
	require.Equal(t, "x.conv", one.Composite)
	require.False(t, one.Bare)
}
