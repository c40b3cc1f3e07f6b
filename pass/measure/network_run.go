// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/pass/witness"
)

type networkRunMessage struct {
	ID          int     `json:"id"`
	Op          string  `json:"op"` // "network_run", "network_profile" or "network_footprint"
	Model       string  `json:"model"`
	Against     string  `json:"against,omitempty"`
	Reference   string  `json:"reference,omitempty"`
	Rounds      int     `json:"rounds,omitempty"`
	Check       bool    `json:"check,omitempty"`
	Threads     int     `json:"threads,omitempty"`
	MinSampleMs float64 `json:"min_sample_ms,omitempty"`
	Inputs      []Input `json:"inputs,omitempty"`
	HeldOut     []Input `json:"held_out,omitempty"`
	// RTol, ATol and ATolOfEach are as of compareMessage, for "network_run" with Check.
	RTol       float64 `json:"rtol,omitempty"`
	ATol       float64 `json:"atol_of_greatest,omitempty"`
	ATolOfEach float64 `json:"atol_of_each,omitempty"`
	// Measure is another one in which errors are taken.
	Measure *OwnMeasure `json:"measure,omitempty"`
}

type networkDropMessage struct {
	ID   int      `json:"id"`
	Op   string   `json:"op"` // "network_drop"
	Keep []string `json:"keep"`
}

type networkRunResult struct {
	Samples  []float64    `json:"samples_ms"`
	Against  []float64    `json:"against_ms"`
	Outputs  *outputsSeen `json:"outputs"`
	Resident int64        `json:"resident_bytes"`
	Errors   *cost.Errors `json:"errors"`
	HeldOut  *cost.Errors `json:"held_out_errors"`
}

type networkProfileResult struct {
	Kernels []float64                `json:"kernels_ms"`
	Names   []string                 `json:"names"`
	Regions map[string]*trace.Inside `json:"regions"`
}

// NetworkRun says how a network is measured.
type NetworkRun struct {
	// Model is the executable, Reference plain TVM's, whose outputs its own are compared with, and Against what it runs
	// in turn with: plain TVM's, or that of a network of which is known how fast it is beside plain TVM (Pace).
	Model, Reference, Against string
	// Pace is the time of Against over plain TVM's; 0 where it is plain TVM's.
	Pace float64
	// Inputs are those on which its errors are taken (cost.Network.Errors); nil where they are not. Narrow says that it
	// computes in a narrower type than the network's: then they are all that is said of its outputs.
	Inputs *Inputs
	Narrow bool
	// Doubt is by how much plain TVM's outputs are off another engine's, as a share of the greatest (Doubtful).
	Doubt float64
	// Step is how many rounds are run until More is asked whether to go on, Rounds how many at most.
	Step, Rounds int
	// More says of what is known so far whether further rounds are worth their time; nil: they are.
	More func(c cost.Cost) bool
}

// Run measures a network that was built. A network that cannot be run, or answers otherwise than plain TVM's, is a cost
// with a failure; the others have the rounds of both in Samples and Network.Against, and Network.Resident. Errors: as
// Build's.
func (n *Networks) Run(ctx context.Context, run NetworkRun) (c cost.Cost, err error) {
	for _, path := range []*string{&run.Model, &run.Reference, &run.Against} {
		if *path, err = filepath.Abs(*path); err != nil {
			return c, fmt.Errorf("measure: running a network: %w", err)
		}
	}
	err = n.waiting(ctx, func(ctx context.Context) error {
		c, err = n.run(ctx, &run)
		return err
	})
	return c, err
}

func (n *Networks) run(ctx context.Context, run *NetworkRun) (cost.Cost, error) {
	taken := time.Now()
	c := cost.Cost{Origin: cost.Measured, Taken: taken, Network: &cost.Network{Pace: run.Pace}}
	inputs := run.Inputs
	if inputs == nil {
		inputs = &Inputs{}
	}
	for len(c.Samples) < run.Rounds {
		var result networkRunResult
		rounds := min(run.Step, run.Rounds-len(c.Samples))
		failure, err := n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &result, func(id int) any {
			return networkRunMessage{ID: id, Op: "network_run", Model: run.Model, Reference: run.Reference,
				Against: run.Against, Rounds: rounds,
				Check: len(c.Samples) == 0, Threads: n.options.Threads,
				MinSampleMs: float64(n.options.MinSample) / float64(time.Millisecond),
				Inputs:      inputs.Searched, HeldOut: inputs.HeldOut, RTol: networkRTol,
				ATol: shareOfAll(run.Doubt), ATolOfEach: shareOfGreatest, Measure: inputs.Measure}
		})
		if err != nil {
			return c, err
		}
		if failure == nil {
			failure = result.Outputs.networkVerdict(run.Narrow)
		}
		if failure == nil && (len(result.Samples) != rounds || len(result.Against) != rounds) {
			failure = &cost.Failure{Phase: "run", Kind: cost.KindError,
				Detail: fmt.Sprintf("the worker ran %d rounds instead of %d", len(result.Samples), rounds)}
		}
		if failure != nil {
			return cost.FromFailure(*failure, taken), nil
		}
		c.Samples = append(c.Samples, result.Samples...)
		for _, against := range result.Against {
			c.Network.Against = append(c.Network.Against, cost.RoundSample(against))
		}
		c.MaxError = max(c.MaxError, result.Outputs.greatest())
		c.Network.Resident = max(c.Network.Resident, result.Resident)
		if result.Errors != nil {
			c.Network.Errors, c.Network.HeldOut = result.Errors, result.HeldOut
		}
		if bad := slices.ContainsFunc(slices.Concat(result.Samples, result.Against),
			func(s float64) bool { return !(s > 0) || math.IsInf(s, 1) }); bad {
			return cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindError,
				Detail: "the worker's samples are no times"}, taken), nil
		}
		if run.More != nil && !run.More(c) {
			break
		}
	}
	return c, nil
}

// Profile times each kernel of a network that was run, in place, and the steps inside regions whose engines tell. The
// failure says why the network cannot be profiled; there are no times then. Errors: as Build's.
func (n *Networks) Profile(ctx context.Context, model, reference string, rounds int) (times trace.Times,
	failure *cost.Failure, err error) {
	for _, path := range []*string{&model, &reference} {
		if *path, err = filepath.Abs(*path); err != nil {
			return times, nil, fmt.Errorf("measure: profiling a network: %w", err)
		}
	}
	err = n.waiting(ctx, func(ctx context.Context) (err error) {
		var result networkProfileResult
		failure, err = n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &result, func(id int) any {
			return networkRunMessage{ID: id, Op: "network_profile", Model: model, Reference: reference, Rounds: rounds}
		})
		if failure == nil {
			times = trace.Times{Kernels: result.Kernels, Inside: result.Regions}
		}
		return err
	})
	return times, failure, err
}

// Drop makes the lane forget all networks but the one that others run in turn with.
func (n *Networks) Drop(ctx context.Context, keep string) error {
	if n.lane == nil {
		return nil
	}
	keep, err := filepath.Abs(keep)
	if err != nil {
		return err
	}
	return n.waiting(ctx, func(ctx context.Context) error {
		var nothing struct{}
		_, err := n.ask(ctx, &n.lane, n.options.RunTimeout, "run", &nothing, func(id int) any {
			return networkDropMessage{ID: id, Op: "network_drop", Keep: []string{keep}}
		})
		return err
	})
}

type networkAgreeMessage struct {
	ID      int    `json:"id"`
	Op      string `json:"op"` // "network_agree"
	Model   string `json:"model"`
	Answers string `json:"answers"`
	Loose   bool   `json:"loose"`
}

type networkAgreeResult struct {
	Share    float64 `json:"max_error_share"`
	Mismatch string  `json:"mismatch"`
	Doubt    float64 `json:"doubt"`
}

// Agree runs an executable on the inputs that another engine was given, and compares the outputs with that one's
// answers. Errors: a *witness.DisagreementError, what the executable fails with, and as Build's.
func (n *Networks) Agree(ctx context.Context, model string, t witness.Testimony) (witness.Agreement, error) {
	agreement := witness.Agreement{Engine: t.Engine}
	var err error
	for _, path := range []*string{&model, &t.Answers} {
		if *path, err = filepath.Abs(*path); err != nil {
			return agreement, fmt.Errorf("measure: comparing with %s: %w", t.Engine, err)
		}
	}
	err = n.waiting(ctx, func(ctx context.Context) error {
		var result networkAgreeResult
		failure, err := n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &result, func(id int) any {
			return networkAgreeMessage{ID: id, Op: "network_agree", Model: model, Answers: t.Answers, Loose: t.Loose}
		})
		switch {
		case err != nil:
			return err
		case failure != nil:
			return fmt.Errorf("comparing with %s: %s", t.Engine, failure)
		case result.Mismatch != "":
			return &witness.DisagreementError{Engine: t.Engine, Mismatch: result.Mismatch}
		}
		agreement.Share = result.Share
		if !t.Loose {
			agreement.Doubt = result.Doubt
		}
		return nil
	})
	return agreement, err
}

// Footprint is what loading and running an executable takes of memory.
type Footprint struct {
	// Resident is by how much the process is larger afterwards, Peak by how much it was at most, in bytes.
	Resident int64 `json:"resident_bytes"`
	Peak     int64 `json:"peak_bytes"`
}

// Footprint measures an executable in a process of its own. The zero Footprint, without an error, is for one that
// cannot be run.
func (n *Networks) Footprint(ctx context.Context, model string) (f Footprint, err error) {
	if model, err = filepath.Abs(model); err != nil {
		return f, fmt.Errorf("measure: running a network: %w", err)
	}
	err = n.waiting(ctx, func(ctx context.Context) error {
		var worker *process
		defer func() {
			if worker != nil {
				worker.quit()
			}
		}()
		failure, err := n.ask(ctx, &worker, n.options.NetworkTimeout, "run", &f, func(id int) any {
			return networkRunMessage{ID: id, Op: "network_footprint", Model: model}
		})
		if failure != nil {
			f = Footprint{}
		}
		return err
	})
	return f, err
}
