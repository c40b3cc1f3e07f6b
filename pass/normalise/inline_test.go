// SPDX-License-Identifier: Apache-2.0

package normalise_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/rig"
)

// What main calls stands in main: called twice, through others, with a tuple; what comes back to itself, or is a
// backend's, stays a function.
func TestNormaliseInlinesWhatIsCalled(t *testing.T) {
	mod := tvmtest.Parse(t, `def @inner(%a: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(%a) }
def @helper(%a: Tensor[(4), float32], %b: Tensor[(4), float32], Inline=1) -> (Tensor[(4), float32], Tensor[(4), float32]) {
  (tanh(@inner(%a)), @inner(%b))
}
def @once(%a: Tensor[(4), float32]) -> Tensor[(4), float32] { let %c = exp(%a); add(%c, %c) }
def @twice(%a: Tensor[(4), float32]) -> Tensor[(4), float32] { let %c = log(%a); add(%c, %c) }
def @lib_main_0(%a: Tensor[(4), float32], Compiler="lib", Primitive=1, global_symbol="lib_main_0") -> Tensor[(4), float32] { sqrt(%a) }
def @loop(%a: Tensor[(4), float32], %c: bool) -> Tensor[(4), float32] { if (%c) { @loop(%a, %c) } else { %a } }
def @main(%x: Tensor[(4), float32], %c: bool) -> Tensor[(4), float32] {
  %0 = @helper(%x, @once(%x));
  %1 = @helper(%0.0, %0.1);
  add(add(@twice(%1.0), @twice(%1.1)), add(@lib_main_0(%x), @loop(%x, %c)))
}`)
	out, err := normalise.Normalise(mod, normalise.Options{})
	require.NoError(t, err)
	functions := rig.OperatorsOf(t, out)
	assert.NotContains(t, functions, "inner")
	assert.NotContains(t, functions, "helper")
	assert.NotContains(t, functions, "once")
	assert.Equal(t, "log add", functions["twice"], "its variable would be bound twice")
	assert.Equal(t, "sqrt", functions["lib_main_0"])
	assert.Contains(t, functions, "loop")
	count := map[string]int{}
	for _, name := range strings.Fields(functions["main"]) {
		count[name]++
	}
	assert.Equal(t, map[string]int{"exp": 1, "nn.relu": 4, "tanh": 2, "add": 4}, count)
	kept, err := normalise.Normalise(mod, normalise.Options{DisabledPasses: []string{"Inline"}})
	require.NoError(t, err)
	assert.Contains(t, rig.OperatorsOf(t, kept), "helper")
}
