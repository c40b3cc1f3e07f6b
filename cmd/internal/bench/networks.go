// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/internal/statistics"
)

// Tolerance is how far an output may be from TVM's, as a share of the greatest value that TVM gives. Sums in another
// order stay far below it in float32, and bfloat16 is above it.
const Tolerance = 1e-3

// somethingElse is how far outputs may be off, by the length of the difference, where engines may compute in narrower
// types: what is further off is no rounding.
const somethingElse = 0.25

// NetworkOptions say what to run and how.
type NetworkOptions struct {
	// Peers are the names of the engines; what Collage made is always run.
	Peers []string
	// Rounds is how many turns each has, Turn how long one lasts at least, and Threads how many threads each may use.
	Rounds, Threads int
	Turn            time.Duration
	// Narrow says in which types Collage was allowed to compute, and how far off ("up to bf16, off by 0.01 (l2) at most"):
	// then outputs need not keep to Tolerance, and the report has how far each engine's are off. "" for float32.
	Narrow string
	// Others are columns of executables that are no peers: backends alone, an earlier Collage.
	Others []Other
	// Python runs Collage and TVM; EnginesPython, "" for none, has what Python has not.
	Python, EnginesPython string
	// Env is what the processes' environment has beside this one's.
	Env []string
	// Keep is a folder for what takes long to make: tvm-collage's searches, and what RunNetworks took of each network;
	// "" for none.
	Keep string
	// Resume has RunNetworks take what stands in Keep of a network, where it was taken in the same way.
	Resume bool
	// Make, where it is there, fills in a network's executables, just before it is run.
	Make func(ctx context.Context, n *Network) error
	// SearchLimit is how long TVM's CollagePartition may search.
	SearchLimit time.Duration
	// Temporary is a folder for models and inputs; the caller removes it.
	Temporary string
	Progress  *progress.Printer
}

// Other is a column of executables that this or another Collage made, beside those that are compared with the peers.
type Other struct {
	// Name is the column's, Version what it is.
	Name, Version string
	// Python loads the executables; "" for the Python that runs Collage. Env is what its environment has beside this
	// process's, in place of NetworkOptions.Env.
	Python string
	Env    []string
}

// NetworkReport is how whole networks run on each engine.
type NetworkReport struct {
	Machine machine.Info `json:"machine"`
	// Load is over all networks.
	Load    machine.Load `json:"load"`
	Taken   time.Time    `json:"taken"`
	Threads int          `json:"threads"`
	Rounds  int          `json:"rounds"`
	TurnMS  float64      `json:"turn_ms"`
	// Precision is that of all engines.
	Precision string         `json:"precision"`
	Peers     []PeerInfo     `json:"peers"`
	Networks  []NetworkRow   `json:"networks"`
	Summary   NetworkSummary `json:"summary"`
}

// PeerInfo is a column.
type PeerInfo struct {
	Name string `json:"name"`
	// Version is what the engine calls itself; "" where it ran nothing.
	Version string `json:"version,omitempty"`
	// Absent says why an engine that was asked for was not run, Remedy what to do about it.
	Absent string `json:"absent,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Other says that it is no engine that people use instead: a backend alone, an earlier Collage.
	Other  bool `json:"other,omitempty"`
	python string
	// installed is the version of its package.
	installed string
	env       []string
}

// hear takes in what an engine called itself when a network ran; "" where it did not run that one.
func (p *PeerInfo) hear(version string) {
	if version != "" {
		p.Version = version
	}
}

// NetworkRow is a network.
type NetworkRow struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// Taken is when it was run: rows of earlier runs, or of other reports, are older than the report.
	Taken time.Time `json:"taken,omitzero"`
	// Failure says why it could not be compiled or run; "" where it was. There are no Cells then.
	Failure string `json:"failure,omitempty"`
	// Chosen and Shares are what Collage kept: the finalist's name, and operators by backend.
	Chosen string         `json:"chosen,omitempty"`
	Shares map[string]int `json:"operators,omitempty"`
	// BestSingle and ToBestSingle are as of Network.
	BestSingle   string           `json:"best_single,omitempty"`
	ToBestSingle statistics.Ratio `json:"best_single_to_ours,omitzero"`
	// Borders is as of Network.
	Borders float64      `json:"with_borders_to_without,omitempty"`
	Load    machine.Load `json:"load"`
	// Cells are in the order of the report's Peers, without absent ones.
	Cells []NetworkCell `json:"peers"`
	// Best is the fastest of the others; "" where none ran.
	Best string `json:"best_peer,omitempty"`
}

// NetworkCell is a network on an engine.
type NetworkCell struct {
	Peer string `json:"peer"`
	// Median is of the turns, each of which is the median of its calls.
	Median float64   `json:"median_ms,omitempty"`
	Turns  []float64 `json:"turns_ms,omitempty"`
	// Ratio is this engine's time to that of what Collage made, turn by turn: above 1, Collage's is faster.
	Ratio statistics.Ratio `json:"to_ours,omitzero"`
	// LoadSeconds is what loading (for some, compiling) took.
	LoadSeconds float64 `json:"load_seconds,omitempty"`
	// MaxError is the greatest difference from TVM's outputs, Greatest the greatest value that TVM gives; Wrong says
	// that they differ by more than Tolerance.
	MaxError float64 `json:"max_abs_error"`
	Greatest float64 `json:"greatest_output"`
	Wrong    bool    `json:"wrong,omitempty"`
	// L2 is the length of the difference from TVM's outputs over their length, of the worst output.
	L2 float64 `json:"l2_error,omitempty"`
	// Absent says why it was not run.
	Absent string `json:"absent,omitempty"`
	// SearchSeconds is how long it took to find what is run, and Kept what that is; 0 and "" where nothing was
	// searched.
	SearchSeconds float64 `json:"search_seconds,omitempty"`
	Kept          string  `json:"kept,omitempty"`
	// other is PeerInfo.Other: nobody's best peer.
	other bool
}

// NetworkSummary is over all networks that Collage and a peer ran.
type NetworkSummary struct {
	// BestPeer is the geometric mean of the best peer's time to ours; BestOfTVMAndTorch that of the best of TVM untuned
	// and PyTorch in both modes.
	BestPeer          statistics.GeometricMean `json:"best_peer_to_ours"`
	BestOfTVMAndTorch statistics.GeometricMean `json:"best_of_tvm_and_torch_to_ours"`
	// NotSlower are the networks on which ours is at least as fast as every peer: the interval of the ratio is not
	// below 1.
	NotSlower []string `json:"not_slower"`
	// Mixed are the networks whose executable has operators on two or more backends. Gain is the geometric mean of the
	// best single backend's time to theirs, as measured when they were compiled; 0 where that is known of none.
	Mixed []string `json:"mixed"`
	Gain  float64  `json:"best_single_to_mixed,omitempty"`
	// Failed are the networks that could not be compiled or run.
	Failed []string `json:"failed,omitempty"`
	// Others are the geometric means of the times of columns that are no peers to ours.
	Others []OtherMean `json:"others_to_ours,omitempty"`
	// NoUse are the networks on which kernels of our own are of no use; nil where oneDNN alone was not run.
	NoUse []NoUse `json:"native_no_use,omitzero"`
}

// OtherMean is one column's, over the networks that it ran.
type OtherMean struct {
	Name string                   `json:"name"`
	Mean statistics.GeometricMean `json:"to_ours"`
}

// RunNetworks runs the networks on all engines that are there, one after another. A network that cannot be made, that
// TVM cannot run, or whose executable does not load has a row that says so. Where the context ends, the report has the
// networks before that, and there is an error beside it; with any other error there is no report.
func RunNetworks(ctx context.Context, networks []Network, o NetworkOptions) (*NetworkReport, error) {
	r := &NetworkReport{Machine: machine.Here(), Taken: time.Now().UTC().Truncate(time.Second), Threads: o.Threads,
		Rounds: o.Rounds, TurnMS: float64(o.Turn) / float64(time.Millisecond), Precision: cmp.Or(o.Narrow, "float32")}
	var err error
	if r.Peers, err = findPeers(ctx, &o); err != nil {
		return nil, err
	}
	for i := range networks {
		n := &networks[i]
		row, err := r.takeNetwork(ctx, n, &o)
		if ctx.Err() != nil {
			r.summarise()
			return r, ctx.Err()
		}
		if err != nil {
			o.Progress.Note("%s: %v", n.Name, err)
			row = &NetworkRow{Name: n.Name, Model: n.given(), Failure: err.Error(), Cells: []NetworkCell{}}
		}
		r.Networks = append(r.Networks, *row)
	}
	r.summarise()
	return r, nil
}

// findPeers says which of the peers can be run, and by which interpreter; Ours comes first.
func findPeers(ctx context.Context, o *NetworkOptions) ([]PeerInfo, error) {
	packages := map[string]bool{}
	for _, p := range Peers {
		if p.Package != "" {
			packages[p.Package] = true
		}
	}
	names := sortedKeys(packages)
	where, versions := map[string]string{}, map[string]string{} // package -> interpreter, version
	for _, python := range []string{o.EnginesPython, o.Python} {
		if python == "" {
			continue
		}
		found, err := installed(ctx, python, names)
		if err != nil {
			return nil, err
		}
		for name, version := range found {
			where[name], versions[name] = python, version
		}
	}
	infos := []PeerInfo{{Name: Ours, python: o.Python}}
	for _, other := range o.Others {
		info := PeerInfo{Name: other.Name, Version: other.Version, Other: true, python: other.Python, env: other.Env}
		if info.python == "" {
			info.python, info.env = o.Python, o.Env
		}
		infos = append(infos, info)
	}
	for _, p := range Peers {
		if !slices.Contains(o.Peers, p.Name) {
			continue
		}
		info := PeerInfo{Name: p.Name, python: o.Python}
		if p.Package != "" {
			info.python, info.installed = where[p.Package], versions[p.Package]
			if info.python == "" {
				info.Absent, info.Remedy = "the Python package "+p.Package+" is not installed", p.Remedy
			}
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// runNetwork runs a network on all engines that are there.
func (r *NetworkReport) runNetwork(ctx context.Context, n *Network, o *NetworkOptions) (*NetworkRow, error) {
	row := &NetworkRow{Name: n.Name, Model: n.given(), Taken: time.Now().UTC().Truncate(time.Second), Chosen: n.Chosen,
		Shares: n.Shares, BestSingle: n.BestSingle, ToBestSingle: n.ToBestSingle, Borders: n.Borders}
	c := contest{NetworkOptions: o, network: n}
	var columns []*PeerInfo
	for i := range r.Peers {
		info := &r.Peers[i]
		if info.Absent != "" {
			continue
		}
		one := &contestant{name: info.Name, engine: info.Name, python: info.python, env: o.Env,
			executable: n.Executable,
			needed:     info.Name == Ours}
		if info.Other {
			one.engine, one.env = Ours, info.env
			one.executable, one.failure = n.Others[info.Name].Executable, n.Others[info.Name].Failure
		}
		columns, c.contestants = append(columns, info), append(c.contestants, one)
	}
	var err error
	if row.Load, err = c.run(ctx); err != nil {
		return nil, err
	}
	for i, one := range c.contestants {
		if one.cell.other = columns[i].Other; one.cell.other {
			one.cell.SearchSeconds, one.cell.Kept = n.Others[one.name].SearchSeconds, n.Others[one.name].Kept
		} else {
			columns[i].hear(one.version)
		}
		if one.name == Ours {
			one.cell.SearchSeconds, one.cell.Kept = n.SearchSeconds, n.Chosen
		}
		row.Cells = append(row.Cells, one.cell)
	}
	row.compare()
	return row, nil
}

// compare fills in ratios, and who is the best.
func (n *NetworkRow) compare() {
	ours := n.Cells[0]
	best := math.Inf(1)
	for i := range n.Cells {
		cell := &n.Cells[i]
		if i == 0 || len(cell.Turns) == 0 {
			continue
		}
		cell.Ratio = statistics.PairedRatio(cell.Turns, ours.Turns)
		// An engine that computes something else (in another precision) is shown and beats nobody.
		if cell.Median < best && !cell.Wrong && !cell.other {
			best, n.Best = cell.Median, cell.Peer
		}
	}
}

// cell finds a peer's cell; nil where it was not run.
func (n *NetworkRow) cell(peer string) *NetworkCell {
	for i := range n.Cells {
		if n.Cells[i].Peer == peer && len(n.Cells[i].Turns) > 0 {
			return &n.Cells[i]
		}
	}
	return nil
}

// summarise fills in the summary.
func (r *NetworkReport) summarise() {
	var best, frameworks [][]float64
	r.Summary.NotSlower, r.Summary.Mixed = []string{}, []string{}
	var loads []machine.Load
	var gains [][]float64
	for i := range r.Networks {
		n := &r.Networks[i]
		if n.Failure != "" {
			r.Summary.Failed = append(r.Summary.Failed, n.Name)
			continue
		}
		loads = append(loads, n.Load)
		ours := n.cell(Ours)
		if len(n.Shares) > 1 {
			r.Summary.Mixed = append(r.Summary.Mixed, n.Name)
			if n.ToBestSingle.Median > 0 {
				gains = append(gains, []float64{n.ToBestSingle.Median})
			}
		}
		if n.Best == "" {
			continue
		}
		best = append(best, statistics.Ratios(n.cell(n.Best).Turns, ours.Turns))
		notSlower := true
		fastest := (*NetworkCell)(nil)
		for k := range n.Cells[1:] {
			cell := &n.Cells[1+k]
			if len(cell.Turns) == 0 || cell.Wrong || cell.other {
				continue
			}
			// What is asked for: no peer is faster beyond doubt of the measurement.
			notSlower = notSlower && cell.Ratio.Low >= 1
			if isFramework := cell.Peer == "tvm" || strings.HasPrefix(cell.Peer, "torch"); isFramework &&
				(fastest == nil || cell.Median < fastest.Median) {
				fastest = cell
			}
		}
		if notSlower {
			r.Summary.NotSlower = append(r.Summary.NotSlower, n.Name)
		}
		if fastest != nil {
			frameworks = append(frameworks, statistics.Ratios(fastest.Turns, ours.Turns))
		}
	}
	r.Summary.BestPeer, r.Summary.BestOfTVMAndTorch = statistics.GeometricMeanOf(best),
		statistics.GeometricMeanOf(frameworks)
	r.Summary.Others, r.Load, r.Summary.NoUse = r.others(), machine.Together(loads), r.noUse()
	r.Summary.Gain = statistics.GeometricMeanOf(gains).Mean
}

// others are the means of the columns that are no peers.
func (r *NetworkReport) others() []OtherMean {
	var means []OtherMean
	for _, p := range r.Peers {
		if !p.Other {
			continue
		}
		var turns [][]float64
		for i := range r.Networks {
			if cell := r.Networks[i].cell(p.Name); cell != nil && !cell.Wrong {
				turns = append(turns, statistics.Ratios(cell.Turns, r.Networks[i].cell(Ours).Turns))
			}
		}
		if len(turns) > 0 {
			means = append(means, OtherMean{p.Name, statistics.GeometricMeanOf(turns)})
		}
	}
	return means
}
