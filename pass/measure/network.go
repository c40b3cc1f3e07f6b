// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/trace"
)

// Networks builds whole networks on several workers side by side, and measures them on a worker of its own, never both
// at once: what is timed has the machine for itself. Make it with NewNetworks and Close it. Its methods are called by
// one goroutine at a time; while they wait they call Options.Poll.
type Networks struct {
	options  Options
	dir      string
	builders []*process
	lane     *process
}

// NewNetworks makes them; workers are started when they are first needed. builders is how many build side by side; dir
// is the workers' folder, which is the caller's.
func NewNetworks(options Options, builders int, dir string) (*Networks, error) {
	options = options.withDefaults()
	if options.Command[0] == "" {
		return nil, errors.New("measure: no Python interpreter for the workers is known; set COLLAGE_PYTHON or " +
			"Config.Python")
	}
	return &Networks{options: options, dir: dir, builders: make([]*process, max(1, builders))}, nil
}

// Close ends the workers.
func (n *Networks) Close() {
	var group sync.WaitGroup
	for i, p := range n.builders {
		if p != nil {
			group.Go(p.quit)
			n.builders[i] = nil
		}
	}
	group.Wait()
	n.Rest()
}

// Rest ends the worker that measures, with all that it has loaded. The next Run starts another one.
func (n *Networks) Rest() {
	if n.lane != nil {
		n.lane.quit()
		n.lane = nil
	}
}

// NetworkBuild asks for a network to be built.
type NetworkBuild struct {
	// Module and Params are the network's files (network.Carried), Network the regions that it is to have, as JSON
	// (network.Spec), Compilers the Compiler attributes of these.
	Module    string   `json:"module"`
	Params    string   `json:"params"`
	Network   string   `json:"network"`
	Compilers []string `json:"compilers"`
	// Out is the file to write, .so or .tar.
	Out string `json:"out"`
}

// NetworkBuilt is what became of a NetworkBuild.
type NetworkBuilt struct {
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Bytes is the executable's size, Storage what it keeps between kernels while it runs, Parameters what its weights
	// take that are not in regions.
	Bytes      int64 `json:"bytes"`
	Storage    int64 `json:"storage_bytes"`
	Parameters int64 `json:"parameter_bytes"`
	// Executable says what the kernels are; nil where TVM's executable could not be read.
	Executable *trace.Executable `json:"executable"`
	// Failure says why there is none.
	Failure *cost.Failure `json:"-"`
}

// kindDiskFull is what a worker says where the disk is full: it is no fault of the network's.
const kindDiskFull = "disk-full"

// DiskFullError says that a worker found the disk full.
type DiskFullError struct{ Detail string }

func (e *DiskFullError) Error() string { return "no space left on device: " + e.Detail }

// Build builds networks, so many side by side as there are builders, and calls built on this goroutine with each one
// that is finished. The first so many are wanted; the others are begun only while one of these is not finished: plain
// TVM takes long, and one builder would have nothing to do meanwhile. Errors: no worker can be started, a full disk
// (*DiskFullError), an interrupt; those of built.
func (n *Networks) Build(ctx context.Context, jobs []NetworkBuild, wanted int,
	built func(i int, b *NetworkBuilt) error) error {
	type outcome struct {
		built *NetworkBuilt
		err   error
	}
	left := wanted
	d := dispatching[outcome]{workers: len(n.builders), jobs: len(jobs), poll: n.poll,
		prepare: func(job int) (bool, error) { return job >= wanted && left == 0, nil },
		run: func(ctx context.Context, slot, job int) (o outcome) {
			defer func() {
				if r := recover(); r != nil {
					o.err = fmt.Errorf("measure: building a network: %v", r)
				}
			}()
			o.built, o.err = n.buildOne(ctx, slot, &jobs[job])
			return o
		},
		take: func(job int, o outcome, stopped bool) error {
			if job < wanted {
				left--
			}
			if o.err != nil || stopped {
				return o.err
			}
			return built(job, o.built)
		}}
	return d.dispatch(ctx)
}

func (n *Networks) poll(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.options.Poll == nil {
		return nil
	}
	return n.options.Poll()
}

type networkBuildMessage struct {
	ID int    `json:"id"`
	Op string `json:"op"` // "network_build"
	NetworkBuild
	Target         string   `json:"target"`
	OptLevel       int      `json:"opt_level"`
	DisabledPasses []string `json:"disabled_passes"`
	Threads        int      `json:"threads"`
}

func (n *Networks) buildOne(ctx context.Context, slot int, job *NetworkBuild) (*NetworkBuilt, error) {
	var built NetworkBuilt
	failure, err := n.ask(ctx, &n.builders[slot], n.options.NetworkTimeout, "build", &built, func(id int) any {
		m := networkBuildMessage{ID: id, Op: "network_build", NetworkBuild: *job, Target: n.options.Target,
			OptLevel:       n.options.OptLevel,
			DisabledPasses: n.options.DisabledPasses, Threads: n.options.Threads}
		if m.Compilers == nil {
			m.Compilers = []string{}
		}
		if m.DisabledPasses == nil {
			m.DisabledPasses = []string{}
		}
		return m
	})
	if err != nil {
		return nil, err
	}
	if failure != nil {
		if failure.Kind == kindDiskFull {
			return nil, &DiskFullError{failure.Detail}
		}
		return &NetworkBuilt{Failure: failure}, nil
	}
	return &built, nil
}

// ask has a worker answer one request; it starts the worker if there is none. A worker that dies, hangs or talks
// nonsense is a failure of what was asked for, and is gone. The error is for what makes going on impossible.
func (n *Networks) ask(ctx context.Context, at **process, limit time.Duration, phase string, into any,
	message func(id int) any) (*cost.Failure, error) {
	if worker := *at; worker != nil && worker.memory() > n.options.MaxMemory {
		worker.quit()
		*at = nil
	}
	fresh := *at == nil
	for {
		if *at == nil {
			role := roleRunningNetwork
			if phase == "build" {
				role = roleBuildingNetwork
			}
			worker, err := startProcess(ctx, &n.options, n.dir, role)
			if err != nil {
				return nil, err
			}
			*at = worker
		}
		failure, alive, err := n.exchange(ctx, *at, limit, phase, into, message)
		if !alive {
			(*at).kill()
			*at = nil
		}
		if err == nil && !alive && !fresh && failure.Kind == cost.KindCrash {
			fresh = true // it may have been what the worker did before
			continue
		}
		return failure, err
	}
}

func (n *Networks) exchange(ctx context.Context, worker *process, limit time.Duration, phase string, into any,
	message func(id int) any) (failure *cost.Failure, alive bool, err error) {
	fail := func(kind, detail string) *cost.Failure {
		return &cost.Failure{Phase: phase, Kind: kind, Detail: detail}
	}
	worker.lastID++
	if err := worker.send(message(worker.lastID)); err != nil {
		kind, detail := describeEnd(worker.exit())
		return fail(kind, detail), false, nil
	}
	r, line, err := worker.receive(ctx, limit)
	if err != nil {
		var end *exitError
		switch {
		case ctx.Err() != nil:
			return nil, false, ctx.Err()
		case errors.Is(err, errTimeout):
			return fail(cost.KindTimeout, fmt.Sprintf("no answer within %v", limit)), false, nil
		case errors.Is(err, errMemory):
			return fail(cost.KindOutOfMemory, fmt.Sprintf("the worker held more than %d MiB", worker.most>>20)), false,
				nil
		case errors.As(err, &end):
			kind, detail := describeEnd(end)
			return fail(kind, detail), false, nil
		}
		return fail(cost.KindError, err.Error()), false, nil
	}
	switch {
	case r.Event == "error" && r.Phase == "protocol":
		return nil, true, fmt.Errorf("measure: the worker cannot do what it was asked to: %s", r.Detail)
	case r.Event == "error":
		if r.Phase != "" {
			phase = r.Phase
		}
		return &cost.Failure{Phase: phase, Kind: r.Kind, Detail: r.Detail}, true, nil
	case r.Event != "result":
		return fail(cost.KindError, fmt.Sprintf("the worker sent the unknown event %q", r.Event)), false, nil
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fail(cost.KindError, fmt.Sprintf("the worker's result is not readable: %v: %s", err, excerpt(line))),
			false, nil
	}
	return nil, true, nil
}

// waiting runs f on a goroutine of its own and polls on this one until it is done.
func (n *Networks) waiting(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("measure: running a network: %v", r)
			}
			done <- err
		}()
		err = f(ctx)
	}()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var interrupted error
	for {
		select {
		case err := <-done:
			if interrupted != nil {
				return interrupted
			}
			return err
		case <-ticker.C:
			if interrupted == nil {
				if interrupted = n.poll(ctx); interrupted != nil {
					cancel()
				}
			}
		}
	}
}
