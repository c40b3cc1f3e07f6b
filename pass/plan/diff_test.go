// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

// slowLibrary is the plan of the same network where dnnl, in a newer version, takes twice TVM's time.
func slowLibrary(t *testing.T) *Plan {
	t.Helper()
	newer := backends()
	newer[1] = library{"dnnl", "oneDNN", "3.0.0", newer[1].Patterns()}
	b := NewBuilder(Module{Name: "workload:example", Hash: "5e1f"},
		cost.Environment{Target: "llvm -mcpu=skylake-avx512",
			Device: "a processor", TVM: "0.19.0", Threads: 2, Options: "O3"}, newer)
	b.Constrain(Constraints{Forbid: []string{"nn.softmax=dnnl"}})
	require.NoError(t, b.Add(placedAt(t, network(), newer, 2)))
	p, err := b.Plan()
	require.NoError(t, err)
	return p
}

func TestDiffSaysWhatWentWhere(t *testing.T) {
	t.Parallel()
	a, b := example(t), slowLibrary(t)
	text, err := b.Encode()
	require.NoError(t, err)
	const golden = "testdata/slow-library.json" // pass/report and the command line show it
	if *update {
		require.NoError(t, os.WriteFile(golden, text, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))

	d := Diff(a, b)
	assert.True(t, d.SameModule)
	assert.False(t, d.Identical)
	assert.Equal(t, []FieldChange{{"backend dnnl", "oneDNN 2.6.0", "oneDNN 3.0.0"},
		{"forbidden", "", "nn.softmax=dnnl"}}, d.Fields)
	operators := 0
	for _, m := range d.Moves {
		assert.True(t, m.Backends())
		assert.Equal(t, "dnnl", m.From.Backend)
		assert.Equal(t, "tvm", m.To.Backend)
		operators += len(m.Operators)
	}
	assert.Equal(t, 3, operators)
	require.Len(t, d.Costs, 1)
	assert.Equal(t, [2]float64{0.75, 6}, d.Costs[0].Estimate)
	assert.Equal(t, [2]bool{true, false}, d.Costs[0].Chosen)
	assert.Equal(t, [2]int{}, d.Only)
	assert.Equal(t, [2]float64{0.75, 0}, d.Shares[1].Estimate)
}

func TestDiffOfTheSame(t *testing.T) {
	t.Parallel()
	d := Diff(example(t), example(t))
	assert.True(t, d.Identical)
	assert.Empty(t, d.Fields)
	assert.Empty(t, d.Moves)
	assert.Empty(t, d.Costs)
}

func TestDiffOfOtherModules(t *testing.T) {
	t.Parallel()
	other := example(t)
	other.Module.Hash = "beef"
	d := Diff(example(t), other)
	assert.False(t, d.SameModule)
	assert.False(t, d.Identical)
	assert.Empty(t, d.Moves)
}

func TestDiffOfFailures(t *testing.T) {
	t.Parallel()
	a, b := example(t), example(t)
	f := b.Candidates.Failures[0]
	b.Candidates.Failures = nil
	b.Candidates.Rejected = append(b.Candidates.Rejected,
		Rejected{Function: "main", Backend: f.Backend, Composite: f.Composite,
			Key: f.Key, Nodes: []int{2}, Milliseconds: 9})
	d := Diff(a, b)
	require.Len(t, d.Fates, 1)
	assert.NotNil(t, d.Fates[0].From)
	assert.Nil(t, d.Fates[0].To)
	assert.Equal(t, [2]int{0, 1}, d.Only)
	d = Diff(b, a)
	require.Len(t, d.Fates, 1)
	assert.NotNil(t, d.Fates[0].To)
}

func TestDiffSaysWhatIsProven(t *testing.T) {
	t.Parallel()
	plans := map[string]*Plan{}
	for name, change := range map[string]func(p *Plan){
		"proven": func(*Plan) {},
		"not searched": func(p *Plan) {
			p.Estimate.Optimal, p.Estimate.Bound, p.Estimate.Gap, p.Level = false, 0, 0, "operator"
			for i := range p.Regions {
				for k := range p.Regions[i].Candidates {
					for n := range p.Regions[i].Candidates[k].Nodes {
						p.Regions[i].Candidates[k].Nodes[n].Price = 0
					}
				}
			}
		},
		"wrong": func(p *Plan) { p.Estimate.Milliseconds *= 2 },
	} {
		p := example(t)
		change(p)
		plans[name] = p
	}
	proven := func(name string) (changes []FieldChange) {
		for _, f := range Diff(plans["proven"], plans[name]).Fields {
			if f.Field == "proven" || f.Field == "level" {
				changes = append(changes, f)
			}
		}
		return changes
	}
	assert.Empty(t, proven("proven"))
	assert.Equal(t, []FieldChange{{"level", "", "operator"}, {"proven", "the cheapest", "nothing"}},
		proven("not searched"))
	require.Len(t, proven("wrong"), 1)
	assert.Contains(t, proven("wrong")[0].To, "its proof does not hold: ")
	assert.Equal(t, "within 0.25 ms of the cheapest", Proof{Milliseconds: 4, Bound: 3.75}.text())
}

func TestDiffSaysInWhichTypesPartsMayBe(t *testing.T) {
	t.Parallel()
	a, b := example(t), example(t)
	b.Precision = &Precision{Allowed: "int8", MaxError: 0.1, Measure: "l2"}
	b.Regions[0].Rounded = []Rounded{{Value: 1, Scale: 0.5}, {Value: 2, Scale: 0.25}}
	assert.Equal(t, []FieldChange{{"precision", "f32", "int8"}, {"error allowed", "", "0.1 (l2)"},
		{"calibration", "", "random inputs"},
		{"scales", "0 values", "2 values, 2 by other steps: %1 by 0.5"}}, Diff(a, b).Fields)
	c := example(t)
	precision := *b.Precision
	c.Precision, precision.Calibration = &precision, "0123456789ab"
	c.Regions[0].Rounded = []Rounded{{Value: 1, Scale: 0.5}, {Value: 2, Scale: 0.125}}
	assert.Equal(t, []FieldChange{{"calibration", "random inputs", "0123456789ab"},
		{"scales", "2 values, 1 by other steps: %2 by 0.25", "2 values, 1 by other steps: %2 by 0.125"}}, Diff(b, c).Fields)
	assert.Empty(t, Diff(b, b).Fields)
	with := func(l *Lagrangian) *Plan {
		p, of := *b, *b.Precision
		of.Lagrangian = l
		p.Precision = &of
		return &p
	}
	paid := with(&Lagrangian{Price: 25, Milliseconds: 5, Error: 0.08, Allowed: 0.09, Bound: 4.5, Gap: 0.5})
	missed := with(&Lagrangian{Price: 1e9, Milliseconds: 5, Error: 0.2, Allowed: 0.09, Bound: 5})
	assert.Equal(t, []FieldChange{{"price of errors", "25 ms a unit, within 0.5 ms of the fastest",
		"nothing within 0.09, at best 0.2"}}, Diff(paid, missed).Fields)
	require.NoError(t, paid.Validate())
	paid.Precision.Lagrangian.Gap = 0.25
	require.ErrorContains(t, paid.Validate(), "the price of errors")
}
