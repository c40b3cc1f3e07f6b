// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/settings"
)

// contest is one network on several engines, in turn.
type contest struct {
	*NetworkOptions
	network     *Network
	contestants []*contestant
	// files are what the engines read and write.
	files map[string]any
	// greatest is the greatest value that TVM gives.
	greatest float64
	// unsupported says why the network cannot be given to engines that know no Relay; "" where it can.
	unsupported string
}

// contestant is one way to run the network.
type contestant struct {
	// name is what it is called in a report; engine is what collage.peers calls the engine, python the interpreter that
	// has it.
	name, engine, python string
	// env is what the interpreter's environment has beside this one's.
	env []string
	// executable is what the engine Ours runs; failure says why there is none.
	executable, failure string
	// needed says that the contest ends where it cannot run.
	needed bool

	// version and cell are the results; process is nil for one that did not come so far.
	version string
	cell    NetworkCell
	process *process
}

// Time limits of the parts of an engine's work. torch.compile takes minutes for its first call.
const (
	loadLimit = 10 * time.Minute
	callLimit = 10 * time.Minute
	turnLimit = 2 * time.Minute
)

// leastCalls is how many calls a turn has at least.
const leastCalls = 3

// run loads the network into every engine, holds its outputs against TVM's, and gives it its turns. Every contestant
// has its cell then, without ratios. The error is that of the context, of TVM, or of a contestant that is needed.
func (c *contest) run(ctx context.Context) (load machine.Load, err error) {
	folder := filepath.Join(c.Temporary, c.network.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return load, err
	}
	defer os.RemoveAll(folder)
	n, at := c.network, func(name string) string { return filepath.Join(folder, name) }
	c.files = map[string]any{
		"inputs": at("inputs.npz"), "onnx": at("model.onnx"), "program": at("program.pickle"),
		"pt2":       orNull(exportedProgram(n.Model)),
		"reference": at("reference.npz"),
		"seconds":   c.SearchLimit.Seconds(), "disabled_passes": settings.DefaultDisabledPasses(),
	}
	maps.Copy(c.files, n.files())
	if c.Keep != "" {
		c.files["keep"] = filepath.Join(c.Keep, n.Name+".tvm-collage")
	}
	defer c.end()
	meter := machine.StartMeter()
	if err := c.loadAll(ctx); err != nil {
		return load, err
	}
	if err := c.runAll(ctx); err != nil {
		return load, err
	}
	c.end()
	for _, one := range c.contestants {
		if len(one.cell.Turns) > 0 {
			one.cell.Median = statistics.Median(one.cell.Turns)
		}
	}
	return meter.Stop(), nil
}

// files are the network's own, as the engines are told of them.
func (n *Network) files() map[string]any {
	return map[string]any{"model": n.Model, "params": orNull(n.Params), "format": orNull(n.Format),
		"input_shapes": n.InputShapes}
}

// WriteONNX writes a network as the ONNX model that engines without Relay are given, into the file path. An interpreter
// that has TVM reads it; env is what its environment has beside this process's.
func WriteONNX(ctx context.Context, python string, env []string, n *Network, path string) error {
	p, err := startPeer(python, tvmEngine, 1, env)
	if err != nil {
		return err
	}
	defer p.end()
	files := n.files()
	files["onnx"] = path
	return p.ask(ctx, loadLimit, map[string]any{"op": "write", "files": files}, &struct{}{})
}

// exportedProgram is the file of PyTorch's that has the same network: NAME.pt2 beside NAME.onnx or NAME.WORD.onnx; ""
// where there is none.
func exportedProgram(model string) string {
	name, isONNX := strings.CutSuffix(model, ".onnx")
	if !isONNX {
		return ""
	}
	for _, name := range []string{name, strings.TrimSuffix(name, filepath.Ext(name))} {
		if _, err := os.Stat(name + ".pt2"); err == nil {
			return name + ".pt2"
		}
	}
	return ""
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (c *contest) end() {
	for _, one := range c.contestants {
		one.end()
	}
}

func (o *contestant) end() {
	if o.process != nil {
		o.process.end()
		o.process = nil
	}
}

// loadAll starts every engine and has it load the network and run it once. TVM comes first: it writes the network for
// the others, and its outputs are the reference. Where TVM is not among them it is ended then.
func (c *contest) loadAll(ctx context.Context) error {
	step := c.Progress.Start("loading "+c.network.Name, len(c.contestants)+1)
	reference := &contestant{name: tvmEngine, engine: tvmEngine, python: c.Python, env: c.Env}
	if i := slices.IndexFunc(c.contestants, func(o *contestant) bool { return o.engine == tvmEngine }); i >= 0 {
		reference = c.contestants[i]
	} else {
		defer reference.end()
	}
	if err := c.load(ctx, reference, true); err != nil {
		return err
	}
	loaded := 0
	for i, one := range c.contestants {
		if one != reference {
			err := c.load(ctx, one, false)
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return ctx.Err()
			case one.needed:
				return fmt.Errorf("the executable %s: %w", one.executable, err)
			default:
				one.cell = NetworkCell{Absent: err.Error()}
			}
		}
		one.cell.Peer = one.name
		if one.process != nil {
			loaded++
		}
		step.At(i+1, one.name)
	}
	step.Done("%d engines", loaded)
	return nil
}

// load starts an engine. It has no process with an error, and none where its outputs are wrong.
func (c *contest) load(ctx context.Context, o *contestant, reference bool) (err error) {
	if c.unsupported != "" && !usesTVM(o.engine) {
		needed := "onnx"
		if o.engine == "torch" || o.engine == "torch-compile" {
			needed = "pt2"
		}
		path, _ := c.files[needed].(string)
		if _, err := os.Stat(path); err != nil {
			return &peerError{c.unsupported}
		}
	}
	if o.failure != "" {
		return &peerError{o.failure}
	}
	p, err := startPeer(o.python, o.engine, c.Threads, o.env)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	limit := loadLimit
	if o.engine == "tvm-collage" {
		limit += c.SearchLimit
	}
	var loaded struct {
		Version     string  `json:"version"`
		Seconds     float64 `json:"seconds"`
		Unsupported string  `json:"unsupported"`
	}
	c.files["executable"] = o.executable
	request := map[string]any{"op": "load", "files": c.files, "threads": c.Threads, "prepare": reference}
	if err := p.ask(ctx, limit, request, &loaded); err != nil {
		return err
	}
	request = map[string]any{"op": "check", "inputs": c.files["inputs"], "reference": c.files["reference"]}
	if reference {
		c.unsupported = loaded.Unsupported
		request["reference"], request["outputs"] = nil, c.files["reference"]
	}
	var checked struct {
		MaxError float64 `json:"max_abs_error"`
		Greatest float64 `json:"greatest"`
		L2       float64 `json:"l2"`
		Mismatch string  `json:"mismatch"`
	}
	if err := p.ask(ctx, callLimit, request, &checked); err != nil {
		return err
	}
	o.version = loaded.Version
	o.cell = NetworkCell{LoadSeconds: loaded.Seconds, MaxError: checked.MaxError, Greatest: checked.Greatest,
		L2: checked.L2}
	switch {
	case checked.Mismatch != "":
		o.cell.Wrong, o.cell.Absent = true, "its outputs are wrong: "+checked.Mismatch
		p.end()
		return nil
	case reference:
		c.greatest = checked.Greatest
	default:
		if o.cell.Wrong = checked.MaxError > Tolerance*c.greatest; c.Narrow != "" || c.network.Budgeted {
			o.cell.Wrong = checked.L2 > somethingElse
		}
	}
	o.process = p
	return nil
}

// runAll gives every engine its turns. Each round begins with another one, so that none always follows the same.
func (c *contest) runAll(ctx context.Context) error {
	step := c.Progress.Start("running "+c.network.Name+" in turn", c.Rounds)
	n := len(c.contestants)
	for round := range c.Rounds {
		for k := range n {
			one := c.contestants[(k+round)%n]
			if one.process == nil {
				continue
			}
			var took struct {
				Samples []float64 `json:"samples_ms"`
			}
			request := map[string]any{"op": "sample", "seconds": c.Turn.Seconds(), "least": leastCalls}
			if err := one.process.ask(ctx, turnLimit, request, &took); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if one.needed {
					return fmt.Errorf("the executable %s: %w", one.executable, err)
				}
				one.end()
				one.cell.Turns, one.cell.Absent = nil, err.Error()
				continue
			}
			one.cell.Turns = append(one.cell.Turns, statistics.Median(took.Samples))
		}
		step.At(round+1, "")
	}
	step.Done("%d rounds", c.Rounds)
	return nil
}
