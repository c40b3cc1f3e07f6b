// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// KernelReport is what each kernel of a backend takes on a grid of shapes, beside other backends and the machine's
// limit.
type KernelReport struct {
	// Backend is whose kernels they are.
	Backend string       `json:"backend"`
	Model   string       `json:"model"`
	Machine machine.Info `json:"machine"`
	Taken   time.Time    `json:"taken"`
	Target  string       `json:"target"`
	TVM     string       `json:"tvm"`
	Threads int          `json:"threads"`
	Measurements
	// Others are the columns, with the library of each.
	Others  []OperatorBackend `json:"others"`
	Library string            `json:"library"`
	Absent  []AbsentBackend   `json:"absent"`
	Rows    []KernelRow       `json:"rows"`
	Kernels []KernelSummary   `json:"kernels"`
}

// KernelRow is a kernel on one shape.
type KernelRow struct {
	Number  int    `json:"number"`
	Kernel  string `json:"kernel"`
	Pattern string `json:"pattern"`
	// Operators are what the kernel does in one go, Summary what the main one works on.
	Operators []string `json:"operators"`
	Summary   string   `json:"summary"`
	// Milliseconds is the lower quartile, Low and High its 90 % interval; Failure says why there is none.
	Milliseconds float64 `json:"ms,omitempty"`
	Low          float64 `json:"low_ms,omitempty"`
	High         float64 `json:"high_ms,omitempty"`
	Failure      string  `json:"failure,omitempty"`
	// Limit is what the work takes at the machine's measured speeds of computing and reading, by the algorithm that the
	// operators spell out; a kernel that knows a better one can take less.
	Limit float64 `json:"limit_ms,omitempty"`
	// Others are in the order of the report's; Relative is their time to the kernel's: above 1, the kernel is faster.
	Others []OperatorCell `json:"others"`
	// Fastest is the name of the fastest; "" where nobody has a time.
	Fastest string `json:"fastest"`
}

// KernelSummary is a kernel over all its shapes.
type KernelSummary struct {
	Kernel string `json:"kernel"`
	Shapes int    `json:"shapes"`
	// Fastest is on how many of them it is the fastest.
	Fastest int `json:"fastest_on"`
	// Gain is the geometric mean of the best other's time to its own.
	Gain float64 `json:"best_other_to_own"`
}

// KernelOptions say what to measure.
type KernelOptions struct {
	// Compile has the model and how its parts are measured (Backends, Store, Samples, Threads, ...).
	Compile compile.Options
	// Backend is whose kernels are measured; it must be among the backends of Compile.
	Backend string
}

// MeasureKernels measures a backend's kernels on a network. The error says it if the network has nothing for them.
func MeasureKernels(ctx context.Context, o KernelOptions) (*KernelReport, error) {
	report := &KernelReport{Backend: o.Backend, Model: o.Compile.Model, Machine: machine.Here(),
		Taken: time.Now().UTC().Truncate(time.Second)}
	var costs *placing.KernelCosts
	measure := func(module *bridge.Object, config settings.Config) (err error) {
		costs, err = placing.MeasureKernels(module, config, o.Backend)
		return err
	}
	if err := report.Measurements.take(ctx, &o.Compile, "kernels", measure); err != nil {
		return nil, err
	}
	if len(costs.Kernels) == 0 {
		return nil, fmt.Errorf("%s has nothing for the kernels of %s", o.Compile.Model, o.Backend)
	}
	report.fill(costs)
	return report, nil
}

func (r *KernelReport) fill(costs *placing.KernelCosts) {
	r.Target, r.TVM, r.Threads = costs.Environment.Target, costs.Environment.TVM, costs.Environment.Threads
	r.Absent, r.Rows, r.Kernels = []AbsentBackend{}, []KernelRow{}, []KernelSummary{}
	for _, a := range costs.Absent {
		r.Absent = append(r.Absent, AbsentBackend{a.Backend, a.Reason, a.Remedy})
	}
	for _, b := range costs.Backends {
		probe := b.Probe()
		library := strings.TrimSpace(probe.Library + " " + probe.Version)
		if b.Name() == r.Backend {
			r.Library = library
			continue
		}
		r.Others = append(r.Others, OperatorBackend{Name: b.Name(), Library: library})
	}
	for i := range costs.Kernels {
		r.Rows = append(r.Rows, kernelRow(i+1, r.Backend, &costs.Kernels[i]))
	}
	r.summarise()
}

func kernelRow(number int, backend string, k *placing.KernelOffer) KernelRow {
	row := KernelRow{Number: number, Kernel: k.Kernel, Pattern: k.Candidate.Composite, Operators: []string{},
		Limit: k.Limit}
	anchor := k.Candidate.Root
	most := -1.0
	for _, v := range k.Candidate.Nodes {
		node := &k.Graph.Nodes[v]
		if !candidate.IsOperator(node) {
			continue
		}
		row.Operators = append(row.Operators, node.Op)
		if work := weight(k.Graph, v); work > most {
			anchor, most = v, work
		}
	}
	row.Summary = describe(k.Graph, anchor)
	best := math.Inf(1)
	if k.Own.Failed() {
		row.Failure = k.Own.Failure.String()
	} else if k.Own.Known() {
		row.Milliseconds = k.Own.Estimate()
		row.Low, row.High = k.Own.Interval()
		best, row.Fastest = row.Milliseconds, backend
	}
	for _, other := range k.Others {
		cell := OperatorCell{Backend: other.Backend, Kernel: other.Composite}
		switch {
		case other.Cost.Failed():
			cell.Absent = other.Cost.Failure.String()
		case other.Cost.Known():
			cell.Milliseconds, cell.Samples = other.Cost.Estimate(), len(other.Cost.Samples)
			cell.Low, cell.High = other.Cost.Interval()
			if row.Milliseconds > 0 {
				cell.Relative = cell.Milliseconds / row.Milliseconds
			}
			if cell.Milliseconds < best {
				best, row.Fastest = cell.Milliseconds, other.Backend
			}
		default:
			cell.Absent = "was not measured"
		}
		row.Others = append(row.Others, cell)
	}
	return row
}

// weight orders operators by how much they stand for what a group of them does: contractions before all others.
func weight(g *relay.Graph, v relay.NodeID) float64 {
	node := &g.Nodes[v]
	w := 0.0
	for _, in := range node.Inputs {
		if t := g.Nodes[in].Type; t != nil {
			w += float64(relay.Elements(t.Shape))
		}
	}
	for _, contraction := range []string{"conv", "dense", "matmul"} {
		if strings.Contains(node.Op, contraction) {
			w += 1e18
		}
	}
	return w
}

// summarise sums the rows up by kernel.
func (r *KernelReport) summarise() {
	at := map[string]int{}
	logs := map[string]float64{}
	compared := map[string]int{}
	for i := range r.Rows {
		row := &r.Rows[i]
		k, known := at[row.Kernel]
		if !known {
			k = len(r.Kernels)
			at[row.Kernel] = k
			r.Kernels = append(r.Kernels, KernelSummary{Kernel: row.Kernel})
		}
		r.Kernels[k].Shapes++
		if row.Fastest == r.Backend {
			r.Kernels[k].Fastest++
		}
		best := math.Inf(1)
		for _, cell := range row.Others {
			if cell.Relative > 0 {
				best = min(best, cell.Relative)
			}
		}
		if !math.IsInf(best, 1) {
			logs[row.Kernel] += math.Log(best)
			compared[row.Kernel]++
		}
	}
	for k := range r.Kernels {
		if name := r.Kernels[k].Kernel; compared[name] > 0 {
			r.Kernels[k].Gain = math.Exp(logs[name] / float64(compared[name]))
		}
	}
}
