// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
)

func TestWhatWasGained(t *testing.T) {
	s := &Summary{Reference: "dnnl", Finalists: []Finalist{{Name: "tvm", Median: 8}, {Name: "dnnl", Median: 5},
		{Name: "native", Median: 6}, {Name: "collage", Median: 4, Chosen: true}}}
	assert.Equal(t, "A run takes 4 ms; tvm alone takes 2.00 times as long, dnnl alone 1.25 times.", s.Gain())
	s.Finalists[0].Failure = &cost.Failure{Phase: "run"}
	assert.Equal(t, "A run takes 4 ms; dnnl alone takes 1.25 times as long.", s.Gain())
	s.Finalists[1].Chosen, s.Finalists[3].Chosen = true, false
	assert.Equal(t, "A run takes 5 ms.", s.Gain())
	assert.Empty(t, (&Summary{}).Gain(), "a plan that was only decided")
}

func TestWhatRunsWhere(t *testing.T) {
	s := &Summary{Backends: []Backend{{Name: "tvm", Operators: 1}, {Name: "mkl"}, {Name: "dnnl", Operators: 37},
		{Name: "native", Operators: 79}}}
	assert.Equal(t, "79 operators run on native, 37 on dnnl, 1 on tvm.", s.Where())
	s.Backends = s.Backends[:1]
	assert.Equal(t, "1 operator runs on tvm.", s.Where())
	assert.Equal(t, "There is no operator in it.", (&Summary{}).Where())
}
