// SPDX-License-Identifier: Apache-2.0

// Command benchsolver measures the solver of pass/place: on networks shaped like chains, ResNet, NasNet-A and BERT, of
// a hundred to a hundred thousand operators, with options in proportion. It prints time and memory with the exponents
// that fit their growth, beside Dijkstra's algorithm over sets of covered operators (the oracle of the tests, and the
// way of TVM's CollagePartition) on the sizes that this can do; every answer is checked by its certificate and against
// the oracle. A second table is of placing with costs between neighbours, where a bound is proven and the gap stated.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/place/oracle"
	"github.com/collage-tvm/collage/relay"
)

// Row is one network.
type Row struct {
	Shape     string  `json:"shape"`
	Operators int     `json:"operators"`
	Options   int     `json:"options"`
	SolveMS   float64 `json:"solve_ms"`
	AllocMB   float64 `json:"solve_mb"`
	VerifyMS  float64 `json:"verify_ms"`
	RegretMS  float64 `json:"regret_ms"`
	// Dijkstra's; OracleLimit says why there is nothing.
	OracleMS     float64 `json:"oracle_ms,omitempty"`
	OracleMB     float64 `json:"oracle_mb,omitempty"`
	OracleStates int     `json:"oracle_states,omitempty"`
	OracleLimit  string  `json:"oracle_limit,omitempty"`
	// With costs between neighbours; nothing above the greatest size for it.
	NeighbourMS  float64 `json:"neighbour_ms,omitempty"`
	NeighbourGap float64 `json:"neighbour_gap_percent"`
	PlainGap     float64 `json:"neighbour_plain_bound_gap_percent,omitempty"`
}

// Fit is the growth over the sizes of one shape: quantity ~ operators^exponent.
type Fit struct {
	Shape  string  `json:"shape"`
	Time   float64 `json:"time_exponent"`
	Memory float64 `json:"memory_exponent"`
	Oracle float64 `json:"oracle_time_exponent,omitempty"`
}

// Result is what is written.
type Result struct {
	// Schema is the version of docs/schemas/files/solver.json.
	Schema int    `json:"schema"`
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
	Rows   []Row  `json:"rows"`
	Fits   []Fit  `json:"fits"`
}

type settings struct {
	sizes      []int
	shapes     []string
	repeats    int
	memory     int
	patience   time.Duration
	neighbours int
}

func main() {
	var s settings
	var out string
	pflag.IntSliceVar(&s.sizes, "sizes", []int{100, 1000, 10_000, 100_000}, "operators")
	pflag.StringSliceVar(&s.shapes, "shapes", nil, "only these shapes")
	pflag.IntVar(&s.repeats, "repeats", 15, "runs of the solver, of which the fastest counts")
	pflag.IntVar(&s.memory, "oracle-mb", 1024, "megabytes of covered sets after which the oracle gives up")
	pflag.DurationVar(&s.patience, "oracle-patience", 20*time.Second,
		"the oracle tries no larger size after a run that took longer")
	pflag.IntVar(&s.neighbours, "neighbours", 10_000, "the greatest size placed with costs between neighbours")
	pflag.StringVar(&out, "out", "", "folder to write solver.txt and solver.json to, beside printing")
	pflag.Parse()
	if err := run(s, out); err != nil {
		fmt.Fprintln(os.Stderr, "benchsolver: error:", err)
		os.Exit(2)
	}
}

func run(s settings, out string) error {
	result := &Result{Schema: 1, Go: runtime.Version(), CPUs: runtime.NumCPU()}
	for _, shape := range shapes {
		if len(s.shapes) > 0 && !slices.Contains(s.shapes, shape.name) {
			continue
		}
		stop := ""
		var rows []Row
		for _, size := range s.sizes {
			fmt.Fprintf(os.Stderr, "benchsolver: %s, %d operators\n", shape.name, size)
			row, err := measure(s, grown(shape.grow, size), &stop)
			if err != nil {
				return fmt.Errorf("%s of %d operators: %w", shape.name, size, err)
			}
			row.Shape = shape.name
			rows = append(rows, row)
		}
		result.Rows = append(result.Rows, rows...)
		result.Fits = append(result.Fits, fit(shape.name, rows))
	}
	text := render(result)
	fmt.Print(text)
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "solver.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "solver.txt"), []byte(text), 0o644)
}

// measure runs everything on one network. stop is why the oracle is not tried any more; "" while it is.
func measure(s settings, n *network, stop *string) (Row, error) {
	row := Row{Operators: n.operators, Options: len(n.options)}
	var p *place.Solution
	var err error
	row.SolveMS, row.AllocMB = timed(s.repeats, func() { p, err = place.Solve(n.options, n.tree) })
	if err != nil {
		return row, err
	}
	row.VerifyMS, _ = timed(min(3, s.repeats), func() { err = place.Verify(n.options, n.tree, p) })
	if err != nil {
		return row, err
	}
	row.RegretMS, _ = timed(min(3, s.repeats), func() { _, err = place.Regret(n.options, n.tree) })
	if err != nil {
		return row, err
	}
	if err := dijkstra(s, n, p, &row, stop); err != nil {
		return row, err
	}
	if n.operators <= s.neighbours+s.neighbours/10 {
		return row, neighbours(n, p, &row)
	}
	return row, nil
}

func dijkstra(s settings, n *network, p *place.Solution, row *Row, stop *string) error {
	if *stop != "" {
		row.OracleLimit = *stop
		return nil
	}
	// A set is kept twice: as it is and as a key.
	limit := s.memory << 20 / (2*len(n.tree.Needs)/8 + 200)
	var o *oracle.Result
	var err error
	row.OracleMS, row.OracleMB = timed(1, func() { o, err = oracle.Dijkstra(n.options, n.tree, limit) })
	var tooMany *oracle.LimitError
	if errors.As(err, &tooMany) {
		*stop = fmt.Sprintf("%d operators: > %d sets in %.1f s", n.operators, limit, row.OracleMS/1000)
		row.OracleLimit, row.OracleMS, row.OracleMB = *stop, 0, 0
		return nil
	}
	if err != nil {
		return err
	}
	if row.OracleMS > float64(s.patience.Milliseconds()) {
		*stop = fmt.Sprintf("%d operators took %.1f s", n.operators, row.OracleMS/1000)
	}
	row.OracleStates = o.States
	if o.Picoseconds != int64(math.Round(p.Cost*1e9)) {
		return fmt.Errorf("the solver found %v ms, the oracle %v ms", p.Cost, float64(o.Picoseconds)/1e9)
	}
	return nil
}

// neighbours places with a cost for each value that goes from one backend to the other. Each backend's share counts as
// one region, the first one's as inline.
func neighbours(n *network, plain *place.Solution, row *Row) error {
	problem := &place.Problem{Tree: n.tree, Options: n.options, Reads: n.reads}
	flow := &border.Flow{Readers: make([][]relay.NodeID, len(n.reads)), Made: n.tree.Needs,
		Result: make([]bool, len(n.reads))}
	for w, values := range n.reads {
		for _, u := range values {
			flow.Readers[u] = append(flow.Readers[u], relay.NodeID(w))
		}
	}
	problem.Borders = &place.Borders{Flow: flow,
		Ends: border.Rounded(func(u relay.NodeID, s border.Side) (in, out float64) {
			if s == 0 {
				return 0, 0
			}
			ms := 0.01 + 0.002*float64(u%20)
			return ms, ms
		}),
		Regions: func(chosen []int) *border.Regions {
			r := &border.Regions{Of: make([]int32, len(n.reads)), Sides: []border.Side{0, 1}}
			for _, i := range chosen {
				for _, v := range n.options[i].Nodes {
					r.Of[v] = int32(n.options[i].State)
				}
			}
			return r
		}}
	var p *place.Solution
	var err error
	row.NeighbourMS, _ = timed(1, func() { p, err = problem.Solve() })
	if err != nil {
		return err
	}
	if err := problem.Verify(p); err != nil {
		return err
	}
	row.NeighbourGap = 100 * p.Gap / p.Cost
	row.PlainGap = 100 * (p.Cost - plain.Cost) / p.Cost
	return nil
}

// timed gives the time of a call in milliseconds, the least of the repeats (what it computes is the same every time,
// and others on the machine only add to it), and what one call allocates in megabytes. Where it is to be repeated, a
// sample is of so many calls that they take two milliseconds.
func timed(repeats int, f func()) (ms, mb float64) {
	calls := 1
	ms = math.Inf(1)
	for taken := 0; taken < repeats; {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range calls {
			f()
		}
		took := float64(time.Since(start).Nanoseconds()) / 1e6
		runtime.ReadMemStats(&after)
		if repeats > 1 && took < 2 {
			calls *= 2
			continue
		}
		taken++
		ms = min(ms, took/float64(calls))
		mb = float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20) / float64(calls)
	}
	return ms, mb
}

// fit is the slope of the least squares through the logarithms.
func fit(shape string, rows []Row) Fit {
	slope := func(y func(Row) float64) float64 {
		var n, sx, sy, sxx, sxy float64
		for _, r := range rows {
			if y(r) > 0 {
				a, b := math.Log(float64(r.Operators)), math.Log(y(r))
				n, sx, sy, sxx, sxy = n+1, sx+a, sy+b, sxx+a*a, sxy+a*b
			}
		}
		if n < 2 {
			return 0
		}
		return (n*sxy - sx*sy) / (n*sxx - sx*sx)
	}
	return Fit{Shape: shape, Time: slope(func(r Row) float64 { return r.SolveMS }),
		Memory: slope(func(r Row) float64 { return r.AllocMB }),
		Oracle: slope(func(r Row) float64 { return r.OracleMS })}
}

func render(result *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The solver of pass/place (%s, one core of %d): time (the fastest of some runs), memory "+
		"allocated.\n\n", result.Go, result.CPUs)
	fmt.Fprintf(&b, "%-9s %9s %9s | %10s %9s %10s %10s | %11s %9s %9s  %s\n", "shape", "operators", "options",
		"solve ms", "MB", "verify ms", "regret ms", "Dijkstra ms", "MB", "sets", "")
	for _, r := range result.Rows {
		fmt.Fprintf(&b, "%-9s %9d %9d | %10.3f %9.2f %10.2f %10.2f | ", r.Shape, r.Operators, r.Options, r.SolveMS,
			r.AllocMB,
			r.VerifyMS, r.RegretMS)
		if r.OracleLimit != "" {
			fmt.Fprintf(&b, "%11s %9s %9s  gave up: %s\n", "-", "-", "-", r.OracleLimit)
		} else {
			fmt.Fprintf(&b, "%11.2f %9.1f %9d\n", r.OracleMS, r.OracleMB, r.OracleStates)
		}
	}
	fmt.Fprintf(&b, "\nGrowth: quantity ~ operators^exponent, least squares over all sizes.\n\n%-9s %11s %13s %13s\n",
		"shape",
		"solve time", "solve memory", "Dijkstra time")
	for _, f := range result.Fits {
		dijkstra := "-"
		if f.Oracle != 0 {
			dijkstra = fmt.Sprintf("%.2f", f.Oracle)
		}
		fmt.Fprintf(&b, "%-9s %11.2f %13.2f %13s\n", f.Shape, f.Time, f.Memory, dijkstra)
	}
	fmt.Fprintf(&b, "\nWith costs between neighbours (0.01 to 0.05 ms for each value that changes backends).\n\n%-9s "+
		"%9s %10s %9s  %s\n",
		"shape", "operators", "solve ms", "gap %", "gap % if the bound were the placement without them")
	for _, r := range result.Rows {
		if r.NeighbourMS > 0 {
			fmt.Fprintf(&b, "%-9s %9d %10.2f %9.4f  %.2f\n", r.Shape, r.Operators, r.NeighbourMS, r.NeighbourGap,
				r.PlainGap)
		}
	}
	return b.String()
}
