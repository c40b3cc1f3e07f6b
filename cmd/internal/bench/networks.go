// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/cmd/internal/progress"
	"github.com/collage-tvm/collage/pass"
)

// Tolerance is how far an output may be from TVM's, as a share of the greatest value that TVM gives. Sums in another order
// stay far below it in float32, and bfloat16 is above it.
const Tolerance = 1e-3

// NetworkOptions say what to run and how.
type NetworkOptions struct {
	// Peers are the names of the engines; what Collage made is always run.
	Peers []string
	// Rounds is how many turns each has, Turn how long one lasts at least, and Threads how many threads each may use.
	Rounds, Threads int
	Turn            time.Duration
	// Python runs Collage and TVM; EnginesPython, "" for none, has what Python has not.
	Python, EnginesPython string
	// Env is what the processes' environment has beside this one's.
	Env []string
	// Keep is a folder for what takes long to make (tvm-collage's searches); "" for none.
	Keep string
	// SearchLimit is how long TVM's CollagePartition may search.
	SearchLimit time.Duration
	// Temporary is a folder for models and inputs; the caller removes it.
	Temporary string
	Progress  *progress.Printer
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
	python string
}

// NetworkRow is a network.
type NetworkRow struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// Chosen and Shares are what Collage kept: the finalist's name, and operators by backend.
	Chosen string         `json:"chosen,omitempty"`
	Shares map[string]int `json:"operators,omitempty"`
	// BestSingle and ToBestSingle are as of Network.
	BestSingle   string       `json:"best_single,omitempty"`
	ToBestSingle Ratio        `json:"best_single_to_ours,omitzero"`
	Load         machine.Load `json:"load"`
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
	Ratio Ratio `json:"to_ours,omitzero"`
	// LoadSeconds is what loading (for some, compiling) took.
	LoadSeconds float64 `json:"load_seconds,omitempty"`
	// MaxError is the greatest difference from TVM's outputs, Greatest the greatest value that TVM gives; Wrong says that
	// they differ by more than Tolerance.
	MaxError float64 `json:"max_abs_error"`
	Greatest float64 `json:"greatest_output"`
	Wrong    bool    `json:"wrong,omitempty"`
	// Absent says why it was not run.
	Absent string `json:"absent,omitempty"`
}

// NetworkSummary is over all networks that Collage and a peer ran.
type NetworkSummary struct {
	// BestPeer is the geometric mean of the best peer's time to ours; BestOfTVMAndTorch that of the best of TVM untuned and
	// PyTorch in both modes.
	BestPeer          GeometricMean `json:"best_peer_to_ours"`
	BestOfTVMAndTorch GeometricMean `json:"best_of_tvm_and_torch_to_ours"`
	// NotSlower are the networks on which ours is at least as fast as every peer: the interval of the ratio is not below 1.
	NotSlower []string `json:"not_slower"`
	// Mixed are the networks whose executable has operators on two or more backends.
	Mixed []string `json:"mixed"`
}

// RunNetworks runs the networks on all engines that are there. Its errors are those that leave nothing to report: the
// context ended, TVM cannot run a network, Collage's executable does not load.
func RunNetworks(ctx context.Context, networks []Network, o NetworkOptions) (*NetworkReport, error) {
	r := &NetworkReport{Machine: machine.Here(), Taken: time.Now().UTC().Truncate(time.Second), Threads: o.Threads,
		Rounds: o.Rounds, TurnMS: float64(o.Turn) / float64(time.Millisecond), Precision: "float32"}
	if err := r.findPeers(ctx, &o); err != nil {
		return nil, err
	}
	meter := machine.StartMeter()
	for i := range networks {
		row, err := r.runNetwork(ctx, &networks[i], &o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", networks[i].Name, err)
		}
		r.Networks = append(r.Networks, *row)
	}
	r.Load = meter.Stop()
	r.summarise()
	return r, nil
}

// findPeers says which of the peers can be run, and by which interpreter.
func (r *NetworkReport) findPeers(ctx context.Context, o *NetworkOptions) error {
	packages := map[string]bool{}
	for _, p := range Peers {
		if p.Package != "" {
			packages[p.Package] = true
		}
	}
	names := sortedKeys(packages)
	where := map[string]string{} // package -> interpreter
	for _, python := range []string{o.EnginesPython, o.Python} {
		if python == "" {
			continue
		}
		found, err := installed(ctx, python, names)
		if err != nil {
			return err
		}
		for name, there := range found {
			if there {
				where[name] = python
			}
		}
	}
	r.Peers = []PeerInfo{{Name: Ours, python: o.Python}}
	for _, p := range Peers {
		if !slices.Contains(o.Peers, p.Name) {
			continue
		}
		info := PeerInfo{Name: p.Name, python: o.Python}
		if p.Package != "" {
			if info.python = where[p.Package]; info.python == "" {
				info.Absent, info.Remedy = "the Python package "+p.Package+" is not installed", p.Remedy
			}
		}
		r.Peers = append(r.Peers, info)
	}
	return nil
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// runner is one network at work.
type runner struct {
	*NetworkOptions
	report  *NetworkReport
	network *Network
	files   map[string]any
	row     *NetworkRow
	// processes are those of the row's cells; nil for one that did not come so far.
	processes []*process
	greatest  float64
	// unsupported says why the network cannot be given to engines that know no Relay; "" where it can.
	unsupported string
}

func (r *NetworkReport) runNetwork(ctx context.Context, n *Network, o *NetworkOptions) (row *NetworkRow, err error) {
	folder := filepath.Join(o.Temporary, n.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	at := func(name string) string { return filepath.Join(folder, name) }
	row = &NetworkRow{Name: n.Name, Model: n.Model, Chosen: n.Chosen, Shares: n.Shares, BestSingle: n.BestSingle,
		ToBestSingle: n.ToBestSingle}
	w := &runner{NetworkOptions: o, report: r, network: n, row: row, files: map[string]any{
		"model": n.Model, "params": orNull(n.Params), "format": orNull(n.Format), "input_shapes": n.InputShapes,
		"inputs": at("inputs.npz"), "onnx": at("model.onnx"), "program": at("program.pickle"), "reference": at("reference.npz"),
		"executable": n.Executable, "seconds": o.SearchLimit.Seconds(), "disabled_passes": pass.DefaultDisabledPasses(),
	}}
	if o.Keep != "" {
		w.files["keep"] = filepath.Join(o.Keep, n.Name+".tvm-collage")
	}
	defer w.end()
	meter := machine.StartMeter()
	if err := w.loadAll(ctx); err != nil {
		return nil, err
	}
	if err := w.runAll(ctx); err != nil {
		return nil, err
	}
	w.end()
	row.Load = meter.Stop()
	w.compare()
	return row, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (w *runner) end() {
	for _, p := range w.processes {
		if p != nil {
			p.end()
		}
	}
}

// Time limits of the parts of a peer's work. torch.compile takes minutes for its first call.
const (
	loadLimit = 10 * time.Minute
	callLimit = 10 * time.Minute
	turnLimit = 2 * time.Minute
)

// loadAll starts every engine and has it load the network and run it once. TVM comes first: it writes the network for the
// others, and its outputs are the reference. Where TVM is not among the peers it is ended then.
func (w *runner) loadAll(ctx context.Context) error {
	step := w.Progress.Start("loading "+w.network.Name, len(w.report.Peers)+1)
	reference, cell, err := w.load(ctx, PeerInfo{Name: "tvm", python: w.Python}, true)
	if err != nil {
		return err
	}
	timed := slices.ContainsFunc(w.report.Peers, func(p PeerInfo) bool { return p.Name == "tvm" })
	if !timed {
		reference.end()
	}
	for i := range w.report.Peers {
		info := &w.report.Peers[i]
		if info.Absent != "" {
			continue
		}
		if info.Name == "tvm" {
			w.row.Cells, w.processes = append(w.row.Cells, *cell), append(w.processes, reference)
			step.At(i+1, info.Name)
			continue
		}
		p, cell, err := w.load(ctx, *info, false)
		var unable *peerError
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case info.Name == Ours:
			return fmt.Errorf("the executable %s: %w", w.network.Executable, err)
		case errors.As(err, &unable):
			cell = &NetworkCell{Peer: info.Name, Absent: unable.text}
		default:
			cell = &NetworkCell{Peer: info.Name, Absent: err.Error()}
		}
		w.row.Cells, w.processes = append(w.row.Cells, *cell), append(w.processes, p)
		step.At(i+1, info.Name)
	}
	step.Done("%d engines", len(w.row.Cells))
	return nil
}

// load starts an engine. The process is nil with an error.
func (w *runner) load(ctx context.Context, info PeerInfo, reference bool) (p *process, cell *NetworkCell, err error) {
	if w.unsupported != "" && !usesTVM(info.Name) {
		if _, err := os.Stat(w.files["onnx"].(string)); err != nil || info.Name == "torch" || info.Name == "torch-compile" {
			return nil, nil, &peerError{w.unsupported}
		}
	}
	if p, err = startPeer(info.python, info.Name, w.Threads, w.Env); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			p.end()
			p = nil
		}
	}()
	limit := loadLimit
	if info.Name == "tvm-collage" {
		limit += w.SearchLimit
	}
	var loaded struct {
		Version     string  `json:"version"`
		Seconds     float64 `json:"seconds"`
		Unsupported string  `json:"unsupported"`
	}
	request := map[string]any{"op": "load", "files": w.files, "threads": w.Threads, "prepare": reference}
	if err := p.ask(ctx, limit, request, &loaded); err != nil {
		return p, nil, err
	}
	request = map[string]any{"op": "check", "inputs": w.files["inputs"], "reference": w.files["reference"]}
	if reference {
		w.unsupported = loaded.Unsupported
		request["reference"], request["outputs"] = nil, w.files["reference"]
	}
	var checked struct {
		MaxError float64 `json:"max_abs_error"`
		Greatest float64 `json:"greatest"`
		Mismatch string  `json:"mismatch"`
	}
	if err := p.ask(ctx, callLimit, request, &checked); err != nil {
		return p, nil, err
	}
	cell = &NetworkCell{Peer: info.Name, LoadSeconds: loaded.Seconds, MaxError: checked.MaxError, Greatest: checked.Greatest}
	switch {
	case checked.Mismatch != "":
		cell.Wrong, cell.Absent = true, "its outputs are wrong: "+checked.Mismatch
		p.end()
		return nil, cell, nil
	case reference:
		w.greatest = checked.Greatest
	default:
		cell.Wrong = checked.MaxError > Tolerance*w.greatest
	}
	for i := range w.report.Peers {
		if w.report.Peers[i].Name == info.Name {
			w.report.Peers[i].Version = loaded.Version
		}
	}
	return p, cell, nil
}

// leastCalls is how many calls a turn has at least.
const leastCalls = 3

// runAll gives every engine its turns. Each round begins with another one, so that none always follows the same.
func (w *runner) runAll(ctx context.Context) error {
	step := w.Progress.Start("running "+w.network.Name+" in turn", w.Rounds)
	n := len(w.processes)
	for round := range w.Rounds {
		for k := range n {
			i := (k + round) % n
			p, cell := w.processes[i], &w.row.Cells[i]
			if p == nil {
				continue
			}
			var took struct {
				Samples []float64 `json:"samples_ms"`
			}
			request := map[string]any{"op": "sample", "seconds": w.Turn.Seconds(), "least": leastCalls}
			if err := p.ask(ctx, turnLimit, request, &took); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if cell.Peer == Ours {
					return fmt.Errorf("the executable %s: %w", w.network.Executable, err)
				}
				p.end()
				w.processes[i], cell.Turns, cell.Absent = nil, nil, err.Error()
				continue
			}
			cell.Turns = append(cell.Turns, median(took.Samples))
		}
		step.At(round+1, "")
	}
	step.Done("%d rounds", w.Rounds)
	return nil
}

// compare fills in medians and ratios.
func (w *runner) compare() {
	ours := w.row.Cells[0]
	best := math.Inf(1)
	for i := range w.row.Cells {
		cell := &w.row.Cells[i]
		if len(cell.Turns) == 0 {
			continue
		}
		cell.Median = median(cell.Turns)
		if i == 0 {
			continue
		}
		cell.Ratio = pairedRatio(cell.Turns, ours.Turns)
		// An engine that computes something else (in another precision) is shown and beats nobody.
		if cell.Median < best && !cell.Wrong {
			best, w.row.Best = cell.Median, cell.Peer
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
	for i := range r.Networks {
		n := &r.Networks[i]
		ours := n.cell(Ours)
		if len(n.Shares) > 1 {
			r.Summary.Mixed = append(r.Summary.Mixed, n.Name)
		}
		if n.Best == "" {
			continue
		}
		best = append(best, ratios(n.cell(n.Best).Turns, ours.Turns))
		notSlower := true
		fastest := (*NetworkCell)(nil)
		for k := range n.Cells[1:] {
			cell := &n.Cells[1+k]
			if len(cell.Turns) == 0 || cell.Wrong {
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
			frameworks = append(frameworks, ratios(fastest.Turns, ours.Turns))
		}
	}
	r.Summary.BestPeer, r.Summary.BestOfTVMAndTorch = geometricMean(best), geometricMean(frameworks)
}
