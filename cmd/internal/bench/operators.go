// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// baseline is the backend whose time is 1.
const baseline = "tvm"

// Convolutions and Matmuls are the operators of `collage bench convs` and `collage bench matmuls`.
var (
	Convolutions = []string{"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
		"nn.conv3d_transpose"}
	Matmuls = []string{"nn.dense", "nn.batch_matmul", "nn.matmul"}
)

// OperatorReport is what each different operator of a network costs on each backend.
type OperatorReport struct {
	Model   string       `json:"model"`
	Machine machine.Info `json:"machine"`
	Taken   time.Time    `json:"taken"`
	Target  string       `json:"target"`
	TVM     string       `json:"tvm"`
	Threads int          `json:"threads"`
	Measurements
	// Backends are the columns, TVM first.
	Backends  []OperatorBackend `json:"backends"`
	Absent    []AbsentBackend   `json:"absent"`
	Operators []OperatorRow     `json:"operators"`
}

// OperatorBackend is a column of the report.
type OperatorBackend struct {
	Name    string `json:"name"`
	Library string `json:"library"`
	// Best is how many of the operators run fastest here.
	Best int `json:"best_of"`
	// Mean is the geometric mean of its times to TVM's, over the operators that both run; 0 of none.
	Mean float64 `json:"geometric_mean_to_tvm"`
	Runs int     `json:"operators"`
}

// AbsentBackend is one that could not be measured here.
type AbsentBackend struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// OperatorRow is one operator with its shapes.
type OperatorRow struct {
	// Number counts from 1, in the order of the network.
	Number     int      `json:"number"`
	Operator   string   `json:"operator"`
	Summary    string   `json:"summary"`
	Inputs     []string `json:"inputs"`
	Output     string   `json:"output"`
	Attributes string   `json:"attributes"`
	// Count is how often the network has it.
	Count int            `json:"count"`
	Cells []OperatorCell `json:"backends"`
	// Fastest is the backend with the least time; "" where none could run it.
	Fastest string `json:"fastest"`
}

// OperatorCell is one operator on one backend.
type OperatorCell struct {
	Backend string `json:"backend"`
	// Kernel is the backend's pattern whose time this is, its fastest; "" for TVM.
	Kernel string `json:"kernel,omitempty"`
	// Milliseconds is the lower quartile of the samples, and Low and High its 90 % interval; 0 where there is none.
	Milliseconds float64 `json:"ms,omitempty"`
	Low          float64 `json:"low_ms,omitempty"`
	High         float64 `json:"high_ms,omitempty"`
	Samples      int     `json:"samples,omitempty"`
	// Relative is Milliseconds to TVM's.
	Relative float64 `json:"relative,omitempty"`
	// Absent says why there is no time: the backend refuses the operator, offers nothing, or failed.
	Absent string `json:"absent,omitempty"`
	// Kernels are all ways that the backend has, where there are several: milliseconds by pattern.
	Kernels map[string]float64 `json:"kernels,omitempty"`
}

// OperatorOptions say what to measure.
type OperatorOptions struct {
	// Compile has the model and how its operators are measured (Backends, Store, Samples, Threads, ...).
	Compile compile.Options
	// Operators are the names of those that are wanted.
	Operators []string
}

// MeasureOperators measures the different operators of a network. The error says it if there is none.
func MeasureOperators(ctx context.Context, o OperatorOptions) (*OperatorReport, error) {
	report := &OperatorReport{Model: o.Compile.Model, Machine: machine.Here(),
		Taken: time.Now().UTC().Truncate(time.Second)}
	var costs *placing.OperatorCosts
	measure := func(module *bridge.Object, config settings.Config) (err error) {
		costs, err = placing.MeasureOperators(module, config, o.Operators)
		return err
	}
	if err := report.Measurements.take(ctx, &o.Compile, "operators", measure); err != nil {
		return nil, err
	}
	if len(costs.Operators) == 0 {
		return nil, fmt.Errorf("%s has none of the operators %s", o.Compile.Model, strings.Join(o.Operators, ", "))
	}
	report.fill(costs)
	return report, nil
}

func withBaseline(backends []string) []string {
	return append([]string{baseline}, slices.DeleteFunc(slices.Clone(backends),
		func(name string) bool { return name == baseline })...)
}

// fill makes rows and columns of the costs.
func (r *OperatorReport) fill(costs *placing.OperatorCosts) {
	r.Target, r.TVM, r.Threads = costs.Environment.Target, costs.Environment.TVM, costs.Environment.Threads
	r.Absent = []AbsentBackend{}
	for _, a := range costs.Absent {
		r.Absent = append(r.Absent, AbsentBackend{a.Backend, a.Reason, a.Remedy})
	}
	for _, b := range costs.Backends {
		probe := b.Probe()
		r.Backends = append(r.Backends, OperatorBackend{Name: b.Name(),
			Library: strings.TrimSpace(probe.Library + " " + probe.Version)})
	}
	for i := range costs.Operators {
		r.Operators = append(r.Operators, r.row(i+1, &costs.Operators[i]))
	}
	for i := range r.Backends {
		r.Backends[i].sum(i, r.Operators)
	}
}

func (r *OperatorReport) row(number int, o *placing.OperatorCost) OperatorRow {
	node := &o.Graph.Nodes[o.Node]
	row := OperatorRow{Number: number, Operator: node.Op, Summary: describe(o.Graph, o.Node), Inputs: []string{},
		Attributes: node.Attrs.Text(), Count: o.Count}
	for _, in := range node.Inputs {
		row.Inputs = append(row.Inputs, o.Graph.Nodes[in].Type.String())
	}
	row.Output = node.Type.String()
	reference := math.NaN()
	if best := o.Best(baseline); best != nil && best.Cost.Known() {
		reference = best.Cost.Estimate()
	}
	fastest := math.Inf(1)
	for _, b := range r.Backends {
		cell := OperatorCell{Backend: b.Name}
		best := o.Best(b.Name)
		switch {
		case best == nil && o.Refusals[b.Name] != "":
			cell.Absent = "refused: " + o.Refusals[b.Name]
		case best == nil:
			cell.Absent = "has no kernel for it alone"
		case best.Cost.Failed():
			cell.Kernel, cell.Absent = best.Composite, best.Cost.Failure.String()
		case best.Cost.Known():
			cell.Kernel, cell.Milliseconds, cell.Samples = best.Composite, best.Cost.Estimate(), len(best.Cost.Samples)
			cell.Low, cell.High = best.Cost.Interval()
			if relative := cell.Milliseconds / reference; !math.IsNaN(relative) {
				cell.Relative = relative
			}
			if cell.Milliseconds < fastest {
				fastest, row.Fastest = cell.Milliseconds, b.Name
			}
		}
		cell.Kernels = kernels(o, b.Name)
		row.Cells = append(row.Cells, cell)
	}
	return row
}

func kernels(o *placing.OperatorCost, backend string) map[string]float64 {
	all := map[string]float64{}
	for _, k := range o.Kernels {
		if k.Backend == backend && k.Cost.Known() {
			all[k.Composite] = k.Cost.Estimate()
		}
	}
	if len(all) < 2 {
		return nil
	}
	return all
}

// sum fills in the foot of column i.
func (b *OperatorBackend) sum(i int, rows []OperatorRow) {
	logs := 0.0
	for _, row := range rows {
		if row.Fastest == b.Name {
			b.Best++
		}
		if relative := row.Cells[i].Relative; relative > 0 {
			logs += math.Log(relative)
			b.Runs++
		}
	}
	if b.Runs > 0 {
		b.Mean = math.Exp(logs / float64(b.Runs))
	}
}

// describe says in a few words what an operator works on: "64x56x56 -> 128x56x56, 3x3, stride 2, 32 groups".
func describe(g *relay.Graph, id relay.NodeID) string {
	node := &g.Nodes[id]
	shape := func(t *relay.Type, from int) string {
		if t == nil || len(t.Shape) < from {
			return "?"
		}
		words := make([]string, 0, len(t.Shape))
		for _, d := range t.Shape[from:] {
			words = append(words, fmt.Sprint(d))
		}
		return strings.Join(words, "x")
	}
	if !strings.Contains(node.Op, "conv") || len(node.Inputs) < 2 {
		var in []string
		for _, i := range node.Inputs {
			if text := shape(g.Nodes[i].Type, 0); text != "" { // of a number, there is nothing to say
				in = append(in, text)
			}
		}
		return strings.Join(in, " by ")
	}
	from := 1 // batch 1 goes without saying
	data := g.Nodes[node.Inputs[0]].Type
	if data != nil && len(data.Shape) > 0 && data.Shape[0] != 1 {
		from = 0
	}
	text := shape(data, from) + " -> " + shape(node.Type, from)
	if kernel, ok := node.Attrs.Ints("kernel_size"); ok {
		text += ", " + times(kernel)
	}
	if strides, ok := node.Attrs.Ints("strides"); ok &&
		slices.ContainsFunc(strides, func(s int64) bool { return s != 1 }) {
		text += ", stride " + same(strides)
	}
	if dilation, ok := node.Attrs.Ints("dilation"); ok &&
		slices.ContainsFunc(dilation, func(d int64) bool { return d != 1 }) {
		text += ", dilation " + same(dilation)
	}
	if groups, ok := node.Attrs.Int("groups"); ok && groups > 1 {
		text += fmt.Sprintf(", %d groups", groups)
	}
	return text
}

func times(sizes []int64) string {
	words := make([]string, len(sizes))
	for i, s := range sizes {
		words[i] = fmt.Sprint(s)
	}
	return strings.Join(words, "x")
}

// same is one number where all are that, else "2x1".
func same(sizes []int64) string {
	if len(slices.Compact(slices.Clone(sizes))) == 1 {
		return fmt.Sprint(sizes[0])
	}
	return times(sizes)
}
