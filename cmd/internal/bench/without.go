// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"slices"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/plan"
)

// WithoutReport is what kept networks take beside the fastest that is found without each kernel of a backend.
type WithoutReport struct {
	// Backend is whose kernels they are.
	Backend string       `json:"backend"`
	Machine machine.Info `json:"machine"`
	// Load is over all networks.
	Load    machine.Load `json:"load"`
	Taken   time.Time    `json:"taken"`
	Threads int          `json:"threads"`
	Rounds  int          `json:"rounds"`
	TurnMS  float64      `json:"turn_ms"`
	// SearchSeconds is the time that each search was given.
	SearchSeconds float64          `json:"search_seconds"`
	Networks      []WithoutNetwork `json:"networks"`
	Kernels       []WithoutKernel  `json:"kernels"`
}

// WithoutNetwork is a network as it was kept, and without each kernel that it has.
type WithoutNetwork struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// Failure says why it was not run; "" where it was. There is nothing else then.
	Failure string `json:"failure,omitempty"`
	// Chosen and Shares are as of NetworkRow.
	Chosen string         `json:"chosen,omitempty"`
	Shares map[string]int `json:"operators,omitempty"`
	Load   machine.Load   `json:"load"`
	// Kept is the network as it was kept; nil where nothing was run, since it has no such kernel.
	Kept *NetworkCell `json:"kept,omitempty"`
	// Alone is oneDNN alone, where bench all has built that: nothing of ours is in it.
	Alone *NetworkCell `json:"dnnl_alone,omitempty"`
	// Rows begin with the search that was made again with all kernels.
	Rows []WithoutRow `json:"without"`
}

// WithoutRow is a network without one kernel.
type WithoutRow struct {
	// Kernel is the one that is left out; "" for none: how far a search that is made again comes is in all other rows,
	// too.
	Kernel string `json:"kernel"`
	// Operators is how many the kernel does in what was kept.
	Operators int `json:"kernel_operators"`
	// The cell's Ratio is the time to that of what was kept: above 1, that is faster.
	NetworkCell
	// Shares are the operators by backend of what was found instead (NetworkCell.Kept).
	Shares map[string]int `json:"operators,omitempty"`
	// ToAgain is the time to that of the search with all kernels.
	ToAgain statistics.Ratio `json:"to_searched_again,omitzero"`
	// Earns says that the network is slower without the kernel beyond doubt of the measurement: than what was kept, and
	// than what the search with all kernels found; and that what was kept is faster than oneDNN alone.
	Earns bool `json:"earns"`
}

// WithoutKernel is a kernel over all networks.
type WithoutKernel struct {
	Kernel string `json:"kernel"`
	// Kept are the networks that have it, Earns those of them that are slower without it.
	Kept  []string `json:"kept_on"`
	Earns []string `json:"earns_on"`
	// Gain is the geometric mean of the time without it to what was kept.
	Gain statistics.GeometricMean `json:"without_to_kept"`
}

// Left is a network without a kernel, before it is run.
type Left struct {
	// Kernel and Operators are as of WithoutRow.
	Kernel    string
	Operators int
	// Found describes what was found instead, with its Executable; Failure says why there is none.
	Found   Network
	Failure string
}

// KernelOperators are the operators that each kernel of a backend does in a plan, by the kernel's name.
func KernelOperators(p *plan.Plan, backend string) map[string]int {
	counts := map[string]int{}
	for i := range p.Regions {
		region := &p.Regions[i]
		for k := range region.Candidates {
			c := &region.Candidates[k]
			if region.BackendOf(c) != backend || c.Kernel == "" {
				continue
			}
			for _, n := range c.Nodes {
				if n.IsOperator() {
					counts[c.Kernel]++
				}
			}
		}
	}
	return counts
}

// OperatorsOf are the names of all operators of a plan, sorted.
func OperatorsOf(p *plan.Plan) []string {
	var names []string
	for i := range p.Regions {
		for k := range p.Regions[i].Candidates {
			for _, n := range p.Regions[i].Candidates[k].Nodes {
				if n.IsOperator() {
					names = append(names, n.Operator)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// RunWithout runs networks, whose Executable is what was kept, in turn with the same without each kernel. leave gives
// what was found without each of them, that with all kernels first, and nothing where the network has none; kernels are
// all that the backend has. A network that fails has a row that says so. Errors: as of RunNetworks.
func RunWithout(ctx context.Context, backend string, kernels []string, networks []Network, search time.Duration,
	leave func(ctx context.Context, n *Network) ([]Left, error), o NetworkOptions) (*WithoutReport, error) {
	r := &WithoutReport{Backend: backend, Machine: machine.Here(), Taken: time.Now().UTC().Truncate(time.Second),
		Threads: o.Threads, Rounds: o.Rounds, TurnMS: float64(o.Turn) / float64(time.Millisecond),
		SearchSeconds: search.Seconds(), Networks: []WithoutNetwork{}}
	for i := range networks {
		n := &networks[i]
		left, err := leave(ctx, n)
		row := &WithoutNetwork{Rows: []WithoutRow{}}
		if err == nil && len(left) > 0 {
			row, err = runWithout(ctx, n, left, &o)
		}
		if ctx.Err() != nil {
			r.summarise(kernels)
			return r, ctx.Err()
		}
		if err != nil {
			o.Progress.Note("%s: %v", n.Name, err)
			row = &WithoutNetwork{Failure: err.Error(), Rows: []WithoutRow{}}
		}
		row.Name, row.Model, row.Chosen, row.Shares = n.Name, n.given(), n.Chosen, n.Shares
		r.Networks = append(r.Networks, *row)
	}
	r.summarise(kernels)
	return r, nil
}

// runWithout runs a network.
func runWithout(ctx context.Context, n *Network, left []Left, o *NetworkOptions) (*WithoutNetwork, error) {
	c := contest{NetworkOptions: o, network: n}
	c.contestants = []*contestant{{name: Ours, engine: Ours, python: o.Python, env: o.Env, executable: n.Executable,
		needed: true}}
	for i := range left {
		c.contestants = append(c.contestants, &contestant{name: left[i].name(), engine: Ours, python: o.Python,
			env: o.Env, executable: left[i].Found.Executable, failure: left[i].Failure})
	}
	row := &WithoutNetwork{}
	alone := n.Others[withoutNative]
	if alone.Executable != "" {
		c.contestants = append(c.contestants, &contestant{name: withoutNative, engine: Ours, python: o.Python, env: o.Env,
			executable: alone.Executable})
	}
	var err error
	if row.Load, err = c.run(ctx); err != nil {
		return nil, err
	}
	if alone.Executable != "" {
		row.Alone = &c.contestants[len(left)+1].cell
	}
	row.Kept = &c.contestants[0].cell
	row.Kept.SearchSeconds, row.Kept.Kept = n.SearchSeconds, n.Chosen
	for i, l := range left {
		one := WithoutRow{Kernel: l.Kernel, Operators: l.Operators, NetworkCell: c.contestants[1+i].cell,
			Shares: l.Found.Shares}
		one.SearchSeconds, one.NetworkCell.Kept = l.Found.SearchSeconds, l.Found.Chosen
		row.Rows = append(row.Rows, one)
	}
	row.compare()
	return row, nil
}

// name is the contestant's.
func (l *Left) name() string {
	if l.Kernel == "" {
		return "searched again"
	}
	return "without " + l.Kernel
}

// compare fills in ratios, and which kernels earn something.
func (n *WithoutNetwork) compare() {
	var again *WithoutRow
	faster := true // than oneDNN alone
	if n.Alone != nil && len(n.Alone.Turns) > 0 {
		n.Alone.Ratio = statistics.PairedRatio(n.Alone.Turns, n.Kept.Turns)
		faster = n.Alone.Wrong || n.Alone.Ratio.Low > 1
	}
	for i := range n.Rows {
		row := &n.Rows[i]
		if len(row.Turns) == 0 {
			continue
		}
		row.Ratio = statistics.PairedRatio(row.Turns, n.Kept.Turns)
		if row.Kernel == "" {
			again = row
			continue
		}
		row.Earns = faster && row.Ratio.Low > 1
		if again != nil && !again.Wrong {
			row.ToAgain = statistics.PairedRatio(row.Turns, again.Turns)
			row.Earns = row.Earns && row.ToAgain.Low > 1
		}
	}
}

// summarise sums the rows up by kernel.
func (r *WithoutReport) summarise(kernels []string) {
	r.Kernels = []WithoutKernel{}
	var loads []machine.Load
	for i := range r.Networks {
		if r.Networks[i].Kept != nil {
			loads = append(loads, r.Networks[i].Load)
		}
	}
	r.Load = machine.Together(loads)
	for _, kernel := range kernels {
		k := WithoutKernel{Kernel: kernel, Kept: []string{}, Earns: []string{}}
		var turns [][]float64
		for i := range r.Networks {
			n := &r.Networks[i]
			for j := range n.Rows {
				row := &n.Rows[j]
				if row.Kernel != kernel {
					continue
				}
				k.Kept = append(k.Kept, n.Name)
				if row.Earns {
					k.Earns = append(k.Earns, n.Name)
				}
				if len(row.Turns) > 0 && !row.Wrong {
					turns = append(turns, statistics.Ratios(row.Turns, n.Kept.Turns))
				}
			}
		}
		if len(turns) > 0 {
			k.Gain = statistics.GeometricMeanOf(turns)
		}
		r.Kernels = append(r.Kernels, k)
	}
}
