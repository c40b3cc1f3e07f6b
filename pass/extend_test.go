// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
)

// longChain is a function of 42 operators, one after the other; the library takes the tanh in the middle.
func longChain() string {
	var text strings.Builder
	text.WriteString("def @main(%x: Tensor[(4, 32), float32]) {\n")
	last := "%x"
	for i := range 41 {
		op := "exp"
		if i == 20 {
			op = "tanh"
		}
		fmt.Fprintf(&text, "  %%%d = %s(%s);\n", i, op, last)
		last = fmt.Sprintf("%%%d", i)
	}
	fmt.Fprintf(&text, "  sqrt(%s)\n}", last)
	return text.String()
}

// dearTogether is what computations of longChain cost: a kernel of TVM's 1 ms whatever is in it, but for the one with
// everything in it, which is dearer than one by one.
func dearTogether(r cost.Request) cost.Cost {
	switch {
	case r.Key.Backend == "lib":
		return cost.FromMilliseconds(0.1)
	case len(r.Candidate.Nodes) == 42:
		return cost.FromMilliseconds(50)
	}
	return cost.FromMilliseconds(1)
}

// A group that is too large to be cut in all ways beforehand is cut where it was learnt to pay.
func TestBackendsProposeFromWhatWasLearnt(t *testing.T) {
	withLibraries(t)
	mod := tvmtest.Parse(t, longChain())

	e := &estimator{rule: dearTogether}
	_, p, err := Partition(mod, Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: e})
	require.NoError(t, err)
	assert.InDelta(t, 2.1, p.Estimate.Milliseconds, 1e-9)
	assert.True(t, p.Estimate.Optimal)
	assert.Equal(t, 41, p.Backend("tvm").Operators)
	assert.Equal(t, 1, p.Backend("lib").Operators)
	asked := map[cost.Key]bool{}
	for _, r := range e.requests {
		assert.False(t, asked[r.Key], "%s is estimated twice", r.Label)
		asked[r.Key] = true
	}

	// A rule that forbids the library forbids what is proposed for its sake only as far as it says so.
	_, p, err = Partition(mod, Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Forbid: []string{"tanh=lib"},
		Estimator: &estimator{rule: e.rule}})
	require.NoError(t, err)
	assert.Equal(t, 0, p.Backend("lib").Operators)
	assert.InDelta(t, 22, p.Estimate.Milliseconds, 1e-9)
}
