// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/statistics"
)

// OverheadAimed is the time that a backend alone may take to that of its library run directly: what is above 1 is what
// Collage and TVM's executor put around it.
const OverheadAimed = 1.05

// BackendReport is how whole networks run on each backend alone.
type BackendReport struct {
	Machine machine.Info `json:"machine"`
	// Load is over all networks.
	Load    machine.Load `json:"load"`
	Taken   time.Time    `json:"taken"`
	Threads int          `json:"threads"`
	Rounds  int          `json:"rounds"`
	TurnMS  float64      `json:"turn_ms"`
	// Precision is that of all engines.
	Precision string          `json:"precision"`
	Backends  []BackendColumn `json:"backends"`
	Networks  []BackendRow    `json:"networks"`
	// Overheads are of the backends whose libraries were run directly, too.
	Overheads []BackendOverhead `json:"overheads"`
}

// BackendColumn is a backend that was asked for.
type BackendColumn struct {
	Name string `json:"name"`
	// Library is what the backend runs on, Direct what the same library calls itself where it was run directly, too.
	Library string `json:"library,omitempty"`
	Direct  string `json:"direct,omitempty"`
	// Absent says why the backend was not run, and DirectAbsent why its library was not, which is among the peers; the
	// remedies say what to do about it.
	Absent       string `json:"absent,omitempty"`
	Remedy       string `json:"remedy,omitempty"`
	DirectAbsent string `json:"direct_absent,omitempty"`
	DirectRemedy string `json:"direct_remedy,omitempty"`

	// python runs the library directly; "" where it is not run.
	python string
}

// BackendRow is a network.
type BackendRow struct {
	Name  string       `json:"name"`
	Model string       `json:"model"`
	Load  machine.Load `json:"load"`
	// Cells are in the order of the report's Backends, without those that are absent.
	Cells []BackendCell `json:"backends"`
	// Fastest is the fastest backend alone; "" where none ran.
	Fastest string `json:"fastest,omitempty"`
	// Ours is what Collage chose among all backends, and Chosen and Shares what that is (as of Network); nil without
	// its executable. ToOurs is the fastest backend's time to it.
	Ours   *NetworkCell     `json:"collage,omitempty"`
	Chosen string           `json:"chosen,omitempty"`
	Shares map[string]int   `json:"operators,omitempty"`
	ToOurs statistics.Ratio `json:"fastest_to_ours,omitzero"`
}

// BackendCell is a network on one backend alone.
type BackendCell struct {
	NetworkCell
	// Operators and Regions are what the backend was given; the rest is TVM's.
	Operators int `json:"operators"`
	Regions   int `json:"regions"`
	// Direct is the library run directly on the whole network, and ToDirect the backend's time to its.
	Direct   *NetworkCell     `json:"direct,omitempty"`
	ToDirect statistics.Ratio `json:"to_direct,omitzero"`
}

// BackendOverhead is a backend beside its library, over all networks.
type BackendOverhead struct {
	Backend string `json:"backend"`
	// Mean is the geometric mean of ToDirect.
	Mean statistics.GeometricMean `json:"to_direct"`
	// Within are the networks on which the ratio's median is at most OverheadAimed.
	Within []string `json:"within"`
	Above  []string `json:"above"`
}

// RunBackends runs the networks on each of the backends alone, on what Collage chose where there is an Executable, and
// directly on those of the backends' libraries that are in o.Peers. build fills in a network's Alone, just before it is
// run, with executables in the folder, which is removed afterwards. Errors: that of build, and as of RunNetworks.
func RunBackends(ctx context.Context, networks []Network, backends []BackendColumn,
	build func(n *Network, folder string) error,
	o NetworkOptions) (*BackendReport, error) {
	r := &BackendReport{Machine: machine.Here(), Taken: time.Now().UTC().Truncate(time.Second), Threads: o.Threads,
		Rounds: o.Rounds, TurnMS: float64(o.Turn) / float64(time.Millisecond), Precision: "float32", Backends: backends}
	peers, err := findPeers(ctx, &o)
	if err != nil {
		return nil, err
	}
	for i := range r.Backends {
		b := &r.Backends[i]
		k := slices.IndexFunc(peers, func(p PeerInfo) bool { return p.Name == b.Name })
		if k >= 0 && b.Absent == "" {
			b.python, b.DirectAbsent, b.DirectRemedy = peers[k].python, peers[k].Absent, peers[k].Remedy
		}
	}
	meter := machine.StartMeter()
	for i := range networks {
		row, err := r.buildAndRun(ctx, &networks[i], build, &o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", networks[i].Name, err)
		}
		r.Networks = append(r.Networks, *row)
	}
	r.Load = meter.Stop()
	r.summarise()
	return r, nil
}

func (r *BackendReport) buildAndRun(ctx context.Context, n *Network, build func(*Network, string) error,
	o *NetworkOptions) (*BackendRow, error) {
	folder, err := os.MkdirTemp(o.Temporary, "alone-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := build(n, folder); err != nil {
		return nil, err
	}
	return r.runNetwork(ctx, n, o)
}

// runNetwork runs a network on all backends that are there.
func (r *BackendReport) runNetwork(ctx context.Context, n *Network, o *NetworkOptions) (*BackendRow, error) {
	row := &BackendRow{Name: n.Name, Model: n.Model, Chosen: n.Chosen, Shares: n.Shares}
	c := contest{NetworkOptions: o, network: n}
	var ours *contestant
	if n.Executable != "" {
		ours = &contestant{name: Ours, engine: Ours, python: o.Python, env: o.Env, executable: n.Executable,
			needed: true}
		c.contestants = append(c.contestants, ours)
	}
	alone, direct := map[string]*contestant{}, map[string]*contestant{}
	for i := range r.Backends {
		b := &r.Backends[i]
		if n.Alone[b.Name].Executable == "" {
			continue
		}
		alone[b.Name] = &contestant{name: b.Name, engine: Ours, python: o.Python, env: o.Env,
			executable: n.Alone[b.Name].Executable}
		c.contestants = append(c.contestants, alone[b.Name])
		if b.python != "" {
			direct[b.Name] = &contestant{name: b.Name, engine: b.Name, python: b.python, env: o.Env}
			c.contestants = append(c.contestants, direct[b.Name])
		}
	}
	var err error
	if row.Load, err = c.run(ctx); err != nil {
		return nil, err
	}
	for i := range r.Backends {
		b := &r.Backends[i]
		if b.Absent != "" {
			continue
		}
		built := n.Alone[b.Name]
		cell := BackendCell{NetworkCell: NetworkCell{Peer: b.Name, Absent: built.Failure}, Operators: built.Operators,
			Regions: built.Regions}
		if one := alone[b.Name]; one != nil {
			cell.NetworkCell = one.cell
		}
		if one := direct[b.Name]; one != nil {
			cell.Direct, b.Direct = &one.cell, one.version
		}
		row.Cells = append(row.Cells, cell)
	}
	if ours != nil {
		row.Ours = &ours.cell
	}
	row.compare()
	return row, nil
}

// compare fills in ratios, and who is the fastest.
func (row *BackendRow) compare() {
	best := math.Inf(1)
	for i := range row.Cells {
		cell := &row.Cells[i]
		if d := cell.Direct; d != nil {
			cell.ToDirect = statistics.PairedRatio(cell.Turns, d.Turns)
		}
		if len(cell.Turns) == 0 || cell.Wrong || cell.Median >= best {
			continue
		}
		best, row.Fastest = cell.Median, cell.Peer
		if row.Ours != nil {
			row.ToOurs = statistics.PairedRatio(cell.Turns, row.Ours.Turns)
		}
	}
}

// summarise fills in the overheads.
func (r *BackendReport) summarise() {
	r.Overheads = []BackendOverhead{}
	for i := range r.Backends {
		o := BackendOverhead{Backend: r.Backends[i].Name, Within: []string{}, Above: []string{}}
		var turns [][]float64
		for k := range r.Networks {
			n := &r.Networks[k]
			c := slices.IndexFunc(n.Cells, func(cell BackendCell) bool { return cell.Peer == o.Backend })
			if c < 0 || n.Cells[c].ToDirect.Median == 0 {
				continue
			}
			turns = append(turns, statistics.Ratios(n.Cells[c].Turns, n.Cells[c].Direct.Turns))
			if n.Cells[c].ToDirect.Median <= OverheadAimed {
				o.Within = append(o.Within, n.Name)
			} else {
				o.Above = append(o.Above, n.Name)
			}
		}
		if len(turns) > 0 {
			o.Mean = statistics.GeometricMeanOf(turns)
			r.Overheads = append(r.Overheads, o)
		}
	}
}
