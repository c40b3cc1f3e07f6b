// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

func TestWhatIsRunAsAWhole(t *testing.T) {
	rig.WithLibraries(t)
	for text, want := range map[string]string{
		`def @main(%x: Tensor[(4, 8), float32]) { nn.relu(%x) }`:                                                       "",
		`def @main(%x: Tensor[(4, 8), float32]) { (tanh(%x), split(%x, indices_or_sections=2)).0 }`:                    "",
		`def @main(%x: Tensor[(?, 8), float32]) { nn.relu(%x) }`:                                                       "has the type Tensor[(?, 8), float32]",
		`def @other(%x: Tensor[(4, 8), float32]) { nn.relu(%x) }`:                                                      "the module has no function main",
		`def @main(%x: Tensor[(4, 8), float32], %c: bool) { if (%c) { nn.relu(%x) } else { tanh(%x) } }`:               "is a branch",
		`def @main(%x: Tensor[(4, 8), float32]) { let %f = fn (%y: Tensor[(4, 8), float32]) { nn.relu(%y) }; %f(%x) }`: "is a loop, or a function",
		`def @main(%x: Tensor[(4, 8), float32]) { @other(%x) }
def @other(%x: Tensor[(4, 8), float32]) -> Tensor[(4, 8), float32] { nn.relu(%x) }`: "calls the function other of the module",
	} {
		network, err := network.Open(tvmtest.Parse(t, text), settings.Config{Backends: []string{"tvm", "lib"},
			Target: "llvm"})
		require.NoError(t, err, text)
		if err = network.Whole(); want == "" {
			assert.NoError(t, err, text)
			continue
		}
		var part *placing.NotWholeError
		require.ErrorAs(t, err, &part, text)
		assert.ErrorContains(t, err, want, text)
	}
}
